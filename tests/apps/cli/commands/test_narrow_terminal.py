"""`treadle models` and `treadle doctor` on narrow terminals: no line is cut in a word."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios

import pytest

from tests.apps.program import PROGRAM, environment, read_terminal

WORDS = {"models": "set ANTHROPIC_API_KEY, window 1,000,000", "doctor": "-> "}


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", WORDS)
async def test_lines_fit_the_terminal(command: str, columns: int):
    terminal, other = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        command,
        stdin=other,
        stdout=other,
        stderr=other,
        env=environment(COLUMNS="", NO_COLOR="1"),
    )
    os.close(other)
    said = (await asyncio.to_thread(read_terminal, terminal)).decode()
    os.close(terminal)
    assert await process.wait() in (0, 1)
    lines = said.replace("\r", "").split("\n")
    long = [line for line in lines if len(line) > columns and " " in line.strip()]
    assert not long
    assert " ".join(WORDS[command].split()) in " ".join(said.split())
