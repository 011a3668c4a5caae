from __future__ import annotations

import subprocess
import sys

import pytest

from treadle.core.contracts.model import ModelRequest, Reply
from treadle.core.errors import AccessDenied, ConfigError, UnknownModel
from treadle.core.transcript import Transcript, to_user_item
from treadle.models import Recorded, Scripted
from treadle.models.provider_base.error_map import ProviderInfo, map_response_error
from treadle.models.registry import Alias, Aliases, model
from treadle.models.registry.model_names import resolve_model


def find_full_name(name: str) -> str:
    provider, model_name, _ = resolve_model(name, {})
    return f"{provider.name}/{model_name}" if model_name else provider.name


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("claude-something-new", "anthropic/claude-something-new"),
        ("gpt-5", "openai/gpt-5"),
        ("o3", "openai/o3"),
        ("openai-chat/gpt-5", "openai-chat/gpt-5"),
        ("gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("deepseek-v4-pro", "deepseek/deepseek-v4-pro"),
        ("codestral-2508", "mistral/codestral-2508"),
        ("openrouter/qwen/qwen3-coder", "openrouter/qwen/qwen3-coder"),
        ("groq/openai/gpt-oss-20b", "groq/openai/gpt-oss-20b"),
        ("ollama/llama3.2:3b", "ollama/llama3.2:3b"),
        ("llama.cpp/any", "llamacpp/any"),
        ("azure/my-deployment", "azure/my-deployment"),
        ("anthropic", "anthropic/claude-sonnet-5-5"),
        ("opus", "anthropic/claude-opus-5-5"),
        ("anthropic/haiku", "anthropic/claude-haiku-5-5"),
        ("embedded", "embedded"),
        ("embedded/smollm2-135m", "embedded/smollm2-135m"),
    ],
)
def test_a_name_leads_to_one_provider_and_model(name, full):
    assert find_full_name(name) == full


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("claude-sonnet-4-5", "Anthropic"),
        ("gpt-5", "OpenAIResponses"),
        ("openai-chat/gpt-5", "OpenAIChat"),
        ("gemini/some-model", "Gemini"),
        *[
            (f"{provider}/some-model", "OpenAIChat")
            for provider in (
                "openrouter",
                "ollama",
                "lmstudio",
                "llamacpp",
                "vllm",
                "deepseek",
                "groq",
                "mistral",
                "gemini-chat",
                "azure",
            )
        ],
    ],
)
def test_the_model_is_made_by_the_right_wire(name, kind):
    made = model(name, environ={})
    assert type(made).__name__ == kind
    assert made.name == find_full_name(name)
    assert made.card.name == made.name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("antropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
        ("sonet", "sonnet"),
        ("olama", "ollama"),
        ("my-fats", "my-fast"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(name, near):
    with pytest.raises(UnknownModel, match=f"Did you mean '{near}'") as caught:
        model(name, aliases={"my-fast": "gpt-5"})
    assert "PROVIDER/MODEL" in str(caught.value)


@pytest.mark.parametrize("name", ["", " , ", "ollama", "vllm/"])
def test_a_name_without_a_model_says_what_is_missing(name):
    with pytest.raises(UnknownModel, match=r"name is empty|has no default model"):
        model(name)


def test_an_alias_may_lead_to_a_name_to_another_alias_or_to_an_address_of_ones_own():
    aliases: Aliases = {
        "fast": "quick",
        "quick": "groq/openai/gpt-oss-20b",
        "mine": {
            "model": "openai-chat/big",
            "base_url": "http://127.0.0.1:9/v1",
            "key_variable": "MY_KEY",
            "window": 9_000,
        },
        "yours": Alias(model="claude-sonnet-4-5", max_output=100),
    }
    assert model("fast", aliases=aliases).name == "groq/openai/gpt-oss-20b"
    mine = model("mine", aliases=aliases, environ={"MY_KEY": "secret"})
    assert (mine.name, mine.card.window) == ("openai-chat/big", 9_000)
    assert model("yours", aliases=aliases).card.max_output == 100


@pytest.mark.parametrize(
    ("aliases", "problem"),
    [
        ({"a": "b", "b": "a"}, "cycle: a -> b -> a"),
        ({"a": {"modle": "x"}}, "alias 'a' is invalid"),
        ({"a": {"model": "gpt-5", "window": "big"}}, "alias 'a' is invalid"),
    ],
)
def test_a_wrong_alias_is_named(aliases, problem):
    with pytest.raises(ConfigError, match=problem):
        model("a", aliases=aliases)


def test_a_key_does_not_go_to_an_address_of_a_settings_file_unless_the_file_names_it():
    elsewhere = {"model": "sonnet", "base_url": "https://collector.example"}
    with pytest.raises(ConfigError, match="key_variable"):
        model("a", aliases={"a": elsewhere})
    named = {"a": {**elsewhere, "key_variable": "MY_KEY"}}
    assert model("a", aliases=named, environ={"MY_KEY": "k"})
    with pytest.raises(AccessDenied, match="set MY_KEY"):
        model("a", aliases=named)
    assert model("a", aliases={"a": {"model": "sonnet", "base_url": "http://127.0.0.1:9"}})


@pytest.mark.parametrize("environ", [None, {"OPENAI_API_KEY": "sk-precious"}])
async def test_the_openai_key_stays_at_home_too(environ, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-precious")
    alias = {"a": {"model": "gpt-5", "base_url": "https://collector.example/v1"}}
    made = model("a", aliases=alias, environ=environ)
    codec = made._codec  # type: ignore[attr-defined]
    try:
        sent = codec.auth_headers()
    except AccessDenied:
        sent = {}
    assert "precious" not in str(sent)


def test_several_names_make_an_order_of_models():
    first = model("sonnet, gpt-5 ,ollama/llama3", environ={})
    names = []
    one = first
    while one is not None:
        names.append(one.name)
        one = one.fallback  # type: ignore[assignment]
    assert names == ["anthropic/claude-sonnet-5-5", "openai/gpt-5", "ollama/llama3"]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("sonnet", "ANTHROPIC_API_KEY"),
        ("gpt-5", "OPENAI_API_KEY"),
        ("groq/x", "GROQ_API_KEY"),
        ("openrouter/x", "OPENROUTER_API_KEY"),
    ],
)
async def test_a_missing_key_is_an_error_that_names_the_variable_when_the_model_is_asked(
    name, variable
):
    stream = model(name, environ={}).stream(ModelRequest(Transcript([to_user_item("hi")])))
    with pytest.raises(AccessDenied, match=variable):
        await anext(stream)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("claude-sonet-4-5", "claude-sonnet-4-5"),
        ("openai/gpt-5-mni", "gpt-5-mini"),
        ("openai-chat/gpt-5-mni", "gpt-5-mini"),
        ("gpt-5-mini", ""),
        ("claude-sonnet-4-5-20250929", ""),
        ("claude-something-new", ""),
        ("gpt-5.1-codex-max", ""),  # only in the price list
    ],
)
async def test_a_misspelt_model_is_noticed_without_a_key(name, near):
    stream = model(name, environ={}).stream(ModelRequest(Transcript([to_user_item("hi")])))
    with pytest.raises(AccessDenied) as caught:
        await anext(stream)
    hint = f" The catalog has no {name.rpartition('/')[2]!r}. Did you mean {near!r}?"
    assert str(caught.value).endswith(hint if near else "lists what can be used here.")


def test_a_misspelt_model_is_noticed_when_the_provider_does_not_know_it():
    info = ProviderInfo("Anthropic", "claude-sonet-4-5")
    error = map_response_error(info, 404, {}, b"{}")
    assert isinstance(error, UnknownModel)
    assert "Did you mean 'claude-sonnet-4-5'? `treadle models` lists" in str(error)


async def test_a_recording_is_a_model_by_its_path(tmp_path):
    path = tmp_path / "talk.jsonl"
    request = ModelRequest(Transcript([to_user_item("hi")]))
    async for _ in Recorded(Scripted(["hello"]), path).stream(request):
        pass
    events = [event async for event in model(f"recorded/{path}").stream(request)]
    assert isinstance(events[-1], Reply)


def test_prices_of_models_beyond_the_table_are_on_the_card_before_the_first_call():
    assert model("groq/llama-3.3-70b-versatile", environ={}).card.input_price is not None
    at_home = {"GROQ_BASE_URL": "http://127.0.0.1:9/v1"}
    assert model("groq/llama-3.3-70b-versatile", environ=at_home).card.input_price is None


def test_importing_the_package_is_cheap_and_a_model_needs_no_sdk():
    program = (
        "import sys, treadle.models as m\n"
        "assert not [n for n in sys.modules if n.startswith('treadle.models.')]\n"
        "assert 'asyncio' not in sys.modules and 'msgspec' not in sys.modules\n"
        "m.model('claude-sonnet-4-5'); m.model('gpt-5'); m.Fallback('ollama/a', 'openrouter')\n"
        "heavy = {'anthropic', 'openai', 'httpx', 'aiohttp', 'pydantic', 'xllamacpp'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0


def test_every_public_name_loads():
    import treadle.models as package

    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Oracle'"):
        package.Oracle  # noqa: B018
