"""A run loads only what it uses: none of the extras."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE

from tests.apps.program import PROGRAM, environment
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

HEAVY = {"acp", "mcp", "opentelemetry", "pydantic", "rich", "starlette", "textual", "xllamacpp"}


async def test_a_headless_run_imports_nothing_of_the_extras():
    replies = [FakeReply(calls=(FakeCall("bash", {"command": "echo"}),)), FakeReply("Done.")]
    async with ProviderServer(replies) as server:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM[0], "-X", "importtime", *PROGRAM[1:], "-p", "Hello"),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env=environment(server),
        )
        out, err = await process.communicate()
    assert out.decode() == "Done.\n"
    lines = [line for line in err.decode().splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "treadle" in loaded
    assert loaded & HEAVY == set()
