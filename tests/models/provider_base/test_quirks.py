"""Which server is behind an address, where its key comes from, and where the key may not go."""

import subprocess
import sys

import pytest

from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.anthropic import Anthropic
from treadle.models.openai_chat.model import OpenAIChat
from treadle.models.openai_responses import OpenAIResponses
from treadle.models.provider_base.openai_common import OpenAIAccount, build_path
from treadle.models.provider_base.quirks import SERVERS, find_server, resolve_server
from treadle.models.registry.local_servers import find_local_servers
from treadle.testing.provider import ProviderServer


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini"),
        ("https://mine.openai.azure.com/openai/v1", "azure"),
        ("http://localhost:11434/v1", "ollama"),
        ("http://127.0.0.1:1234/v1", "lmstudio"),
        ("http://127.0.0.1:8080/v1", "compatible"),
        ("https://llm.example.org/v1", "compatible"),
        ("https://api.openai.com.example.org/v1", "compatible"),
        ("https://evilapi.openai.com/v1", "compatible"),
    ],
)
def test_a_server_is_known_by_its_address(url, name):
    assert find_server(url).name == name


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("localhost", "http://localhost:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("http://box:9999/", "http://box:9999/v1"),
        ("https://box", "https://box:443/v1"),
        ("[::1]:7", "http://[::1]:7/v1"),
    ],
)
def test_ollamas_host_variable_is_read_as_ollama_reads_it(host, url):
    assert resolve_server("ollama", None, {"OLLAMA_HOST": host})[1] == url


def test_without_a_word_it_is_openai():
    row, url = resolve_server(None, None, {})
    assert (row.name, url) == ("openai", "https://api.openai.com/v1")


def test_the_environment_may_point_elsewhere():
    env = {"OPENAI_BASE_URL": "https://gateway.example.org/v1/", "OPENAI_API_KEY": "k"}
    held = OpenAIAccount(None, None, None, environ=env)

    assert held.url == "https://gateway.example.org/v1"
    assert held.auth_headers() == {"authorization": "Bearer k"}


def test_every_server_finds_its_own_key():
    for row in SERVERS.values():
        held = OpenAIAccount(
            row, row.base_url or None, None, environ=dict.fromkeys(row.key_variables, "k")
        )
        assert held.read_key() == "k"


def test_a_key_does_not_go_to_an_address_from_code_or_settings():
    env = {"OPENAI_API_KEY": "k", "OPENROUTER_API_KEY": "r"}

    assert OpenAIAccount(None, "https://llm.example.org/v1", None, environ=env).read_key() == ""
    assert OpenAIAccount("openai", "https://llm.example.org/v1", None, environ=env).read_key() == ""
    assert (
        OpenAIAccount("openai", "https://openrouter.ai/api/v1", None, environ=env).read_key() == ""
    )
    assert OpenAIAccount(None, "https://openrouter.ai/api/v1", None, environ=env).read_key() == "r"
    assert OpenAIAccount(None, "http://127.0.0.1:8080/v1", None, environ=env).read_key() == "k"
    assert (
        OpenAIAccount(None, "https://llm.example.org/v1", "given", environ=env).read_key()
        == "given"
    )


def test_a_missing_key_names_its_variable_and_a_local_server_needs_none():
    with pytest.raises(AccessDenied, match="OPENROUTER_API_KEY"):
        OpenAIAccount("openrouter", None, None, environ={}).auth_headers()
    with pytest.raises(AccessDenied, match="AZURE_OPENAI_ENDPOINT"):
        OpenAIAccount("azure", None, "k", environ={}).auth_headers()
    assert OpenAIAccount("ollama", None, None, environ={}).auth_headers() == {}


def test_azure_has_its_own_header_and_paths():
    held = OpenAIAccount(None, "https://mine.openai.azure.com", "k", environ={})

    assert held.url == "https://mine.openai.azure.com/openai/v1"
    assert held.auth_headers() == {"api-key": "k"}
    old = "https://mine.openai.azure.com/openai/deployments/gpt"
    path = build_path(old, "/chat/completions", {"OPENAI_API_VERSION": "2024-10-21"})
    assert path == "/chat/completions?api-version=2024-10-21"


def test_an_organisation_is_told_to_openai_only():
    env = {"OPENAI_API_KEY": "k", "OPENAI_ORG_ID": "org", "OPENAI_PROJECT_ID": "proj"}

    assert OpenAIAccount(None, None, None, environ=env).auth_headers() == {
        "authorization": "Bearer k",
        "openai-organization": "org",
        "openai-project": "proj",
    }
    assert "openai-organization" not in OpenAIAccount("groq", None, "k", environ=env).auth_headers()


def test_a_model_is_named_after_its_server():
    assert OpenAIChat("qwen3", quirks="ollama").name == "ollama/qwen3"
    assert OpenAIChat("x/y", quirks="openrouter", api_key="k").name == "openrouter/x/y"


def test_an_unknown_server_is_refused_by_name():
    with pytest.raises(ValueError, match="openrouter"):
        OpenAIChat("m", quirks="nobody")


def test_no_sdk_is_imported_by_the_wires():
    wires = "treadle.models.openai_chat.model, treadle.models.openai_responses.model"
    check = f"import sys, {wires}; sys.exit('openai' in sys.modules or 'httpx' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:8080", "http://localhost:8080/v1"),
        ("10.0.0.5/v1/", "http://10.0.0.5/v1"),
        ("gpu:8000", "http://gpu:8000/v1"),
        ("https://gpu/", "https://gpu/v1"),
    ],
)
def test_a_local_server_may_be_named_by_its_host_alone(address, url):
    assert resolve_server("vllm", address, {})[1] == url


@pytest.mark.parametrize(
    "address", ["notaurl", "http:///v1", "https://me:secret@host/v1", "https://host/v1?key=secret"]
)
@pytest.mark.parametrize("create", [Anthropic, OpenAIChat, OpenAIResponses])
def test_a_base_url_that_is_none_is_refused_where_the_model_is_created(create, address):
    with pytest.raises(ConfigError, match="base URL") as caught:
        create("some-model", base_url=address, api_key="k")
    assert "secret" not in str(caught.value)


async def test_a_bad_address_of_one_local_server_does_not_hide_the_others():
    async with ProviderServer([]) as server:
        environ = {"OLLAMA_HOST": "http://x:99999", "VLLM_BASE_URL": server.url}
        found = await find_local_servers(environ, 30.0, names=("ollama", "vllm"))
    assert [one.provider for one in found] == ["vllm"]
