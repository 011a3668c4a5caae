"""A run loads only what it uses: none of the extras."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE

from tests.apps.program import PROGRAM, environment
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

HEAVY = {"acp", "mcp", "opentelemetry", "pydantic", "rich", "starlette", "textual", "xllamacpp"}


async def _list_loaded(replies: list[FakeReply], *arguments: str) -> set[str]:
    """The modules that a run imports."""
    async with ProviderServer(replies) as server:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM[0], "-X", "importtime", *PROGRAM[1:], *arguments),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(server),
        )
        out, err = await process.communicate()
    assert out.decode() == "Done.\n"
    lines = [line for line in err.decode().splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


async def test_a_headless_run_imports_nothing_of_the_extras():
    calls = (FakeCall("bash", {"command": "echo"}),)
    loaded = await _list_loaded([FakeReply(calls=calls), FakeReply("Done.")], "-p", "Hello")
    packages = {name.partition(".")[0] for name in loaded}
    assert "treadle" in packages
    assert packages & HEAVY == set()


async def test_a_run_without_a_sandbox_imports_no_module_of_it():
    calls = (FakeCall("bash", {"command": "echo"}), FakeCall("write", {"path": "a", "text": "b"}))
    options = ("--sandbox", "off", "--permission-mode", "bypass", "-p", "Hello")
    loaded = await _list_loaded([FakeReply(calls=calls), FakeReply("Done.")], *options)
    assert "treadle.workspace.local" in loaded
    assert [name for name in loaded if name.startswith("treadle.workspace.sandbox")] == []
