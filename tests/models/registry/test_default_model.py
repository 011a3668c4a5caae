from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from treadle.models.embedded.weights import find_default_weights
from treadle.models.registry.default_model import find_default_model, pick_best_model
from treadle.models.registry.local_servers import find_local_servers

PATIENT = 30.0  # for servers that will answer, on a machine that may be busy
DEAD = {
    "OLLAMA_HOST": "127.0.0.1:9",
    "LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1",
    "LLAMACPP_BASE_URL": "http://127.0.0.1:9/v1",
}


@asynccontextmanager
async def server(answer: bytes, asked: list[bytes]) -> AsyncIterator[int]:
    """Something that listens and gives every request the same bytes; b"" never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            if answer:
                writer.write(answer)
                await writer.drain()
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def ok(body: object, kind: str = "application/json") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def listing(*names: str) -> bytes:
    return ok({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai/gpt-6.1-sol"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"ANTHROPIC_API_KEY": "  ", "GROQ_API_KEY": "k"}, "groq/openai/gpt-oss-120b"),
        ({"GOOGLE_API_KEY": "k"}, "gemini/gemini-3.8-flash"),
        ({"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_DEPLOYMENT": "mine"}, "azure/mine"),
    ],
)
async def test_a_key_in_the_environment_decides_and_no_server_is_asked(environ, model):
    asked: list[bytes] = []
    async with server(listing("x"), asked) as port:
        choice = await find_default_model({**environ, "OLLAMA_HOST": f"127.0.0.1:{port}"})
    assert choice.model == model
    assert not asked
    assert "is set" in choice.summary
    assert "\n" not in choice.summary


async def test_without_a_key_a_local_server_that_answers_is_taken():
    asked: list[bytes] = []
    async with server(listing("nomic-embed-text", "llama3.2", "qwen3-coder:30b"), asked) as port:
        choice = await find_default_model(
            {**DEAD, "OLLAMA_HOST": f"http://127.0.0.1:{port}"}, PATIENT
        )
    assert choice.model == "ollama/qwen3-coder:30b"
    assert asked[0].startswith(b"GET /v1/models ")
    assert f"127.0.0.1:{port}" in choice.summary
    assert "free" in choice.summary


@pytest.mark.parametrize(
    ("variable", "provider"),
    [("LMSTUDIO_BASE_URL", "lmstudio"), ("LLAMACPP_BASE_URL", "llamacpp")],
)
async def test_the_other_local_servers_are_found_too(variable, provider):
    async with server(listing("some-model"), []) as port:
        choice = await find_default_model(
            {**DEAD, variable: f"http://127.0.0.1:{port}/v1"}, PATIENT
        )
    assert choice.model == f"{provider}/some-model"


@pytest.mark.parametrize(
    "answer",
    [
        b"",  # accepts and says nothing
        ok(b"<html>my web app</html>", "text/html"),
        ok({"hello": "world"}),
        ok([1, 2]),
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        listing(),
    ],
)
async def test_whatever_else_listens_on_that_port_is_passed_over(answer, no_leaks):
    async with server(answer, []) as port:
        choice = await find_default_model(
            {**DEAD, "LLAMACPP_BASE_URL": f"http://127.0.0.1:{port}/v1"}, 0.15
        )
    assert choice.model.startswith("embedded")


async def test_servers_are_asked_at_the_same_time():
    asked: list[bytes] = []
    all_asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()
        writer.write(listing("m"))
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
        found = await find_local_servers(dict.fromkeys(DEAD, url), PATIENT)
    assert [one.provider for one in found] == ["ollama", "lmstudio", "llamacpp"]


async def test_proxies_are_not_asked_about_local_servers(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with server(listing("m"), []) as port:
        found = await find_local_servers({**DEAD, "OLLAMA_HOST": f"127.0.0.1:{port}"}, PATIENT)
    assert [one.models for one in found] == [("m",)]


async def test_without_anything_the_embedded_model_runs_if_it_is_installed():
    choice = await find_default_model(DEAD)
    assert choice.model.startswith("embedded")
    assert choice.is_available == (find_default_weights() is not None)


async def test_without_any_model_the_choice_says_so(monkeypatch):
    monkeypatch.setattr("treadle.models.embedded.weights.has_engine", lambda: False)
    choice = await find_default_model(DEAD)
    assert not choice.is_available
    assert "ANTHROPIC_API_KEY" in choice.summary


def test_models_that_cannot_chat_are_never_the_best():
    assert pick_best_model(("text-embedding-3", "bge-m3")) == ""
    assert pick_best_model(("bge-m3", "llama3", "devstral")) == "devstral"
    assert pick_best_model(("llama3", "mistral")) == "llama3"
