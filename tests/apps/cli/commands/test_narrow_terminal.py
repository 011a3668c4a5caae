"""Commands on narrow terminals: `models` and `doctor` break lines between words, `ps` cuts rows."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, environment, read_terminal
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ItemAdded
from treadle.sessions.detached.background import NO_CHOICES, save_choices
from treadle.sessions.library import Library

WORDS = {"models": "set ANTHROPIC_API_KEY, window 1,000,000", "doctor": "-> "}


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("command", WORDS)
async def test_lines_fit_the_terminal(command: str, columns: int):
    lines = await show(command, columns)
    long = [line for line in lines if len(line) > columns and " " in line.strip()]
    assert not long
    assert " ".join(WORDS[command].split()) in " ".join(" ".join(lines).split())


async def test_each_session_of_ps_is_one_line():
    for title in ("tidy up the parser and all of its tests", "and the rest"):
        journal = Library().create(Path())
        journal.append(ItemAdded(to_user_item(title)))
        await journal.aclose()
        os.close(save_choices(journal.session_dir, NO_CHOICES))
    rows = [line for line in await show("ps", 40) if line]
    assert len(rows) == 2
    assert all(len(row) <= 40 and "  interrupted  " in row for row in rows), rows
    assert any(row.endswith("  and the") for row in rows), rows


async def show(command: str, columns: int) -> list[str]:
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
    return said.replace("\r", "").split("\n")
