"""The end of a connection is told as it was, whoever notices it first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.patience import until
from treadle.tools.language_servers.connection import LspConnection
from treadle.tools.piped_process import PipedProcess


class EndedProcess(NamedTuple):
    exit_code: int

    async def wait(self) -> EndedProcess:
        return self

    def terminate(self) -> None:
        pass

    async def kill_and_wait(self) -> None:
        pass


async def test_a_message_to_a_server_that_has_just_ended_does_not_hide_how_it_ended() -> None:
    """The write fails before the end of its output is read."""
    ours: list[int] = []

    async def start(
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> EndedProcess:
        ours.extend(os.dup(descriptors[number]) for number in (0, 1, 2))
        return EndedProcess(3)

    ends: list[str] = []
    process = PipedProcess(start, ["server"], cwd=None, env=None)
    connection = LspConnection(
        process, lambda *_: None, lambda *_: None, lambda: ends.append(connection.end_reason)
    )
    await connection.open()
    os.write(ours[2], b"a bug in the server\n")
    for fd in ours:
        os.close(fd)
    connection.notify("textDocument/didChange", {})
    await until(lambda: bool(ends), "the end")
    assert ends[0] == "it ended with exit code 3: a bug in the server"
    await connection.aclose()
