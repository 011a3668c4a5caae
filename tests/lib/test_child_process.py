"""What is left of a child process after its reader."""

from __future__ import annotations

import os
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.patience import until
from treadle.lib.child_process import start_child

# It prints the process ID of a program that holds its pipes.
STARTS_ANOTHER = "sleep 1000 & echo $!; "


class Stopped(Exception):
    pass


async def test_the_output_of_a_program_that_ends():
    async with start_child("sh", "-c", "echo yes; exit 3", stdout=PIPE) as process:
        out, _ = await process.communicate()
    assert (process.returncode, out) == (3, b"yes\n")


async def test_a_program_that_still_runs_ends_with_the_block():
    with pytest.raises(Stopped):
        async with start_child("sleep", "1000", stdout=PIPE) as process:
            raise Stopped
    assert process.returncode == -9


async def test_pipes_that_another_program_holds_are_closed():
    async with start_child("sh", "-c", STARTS_ANOTHER + "exit 1", stdout=PIPE) as process:
        assert process.stdout is not None
        other = int(await process.stdout.readline())
        await until(lambda: process.returncode == 1)
    try:
        assert process._transport.is_closing()  # type: ignore[attr-defined]
    finally:
        os.kill(other, 9)


async def test_a_group_of_its_own_ends_with_the_program():
    script = STARTS_ANOTHER + "wait"
    async with start_child("sh", "-c", script, stdout=PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        other = int(await process.stdout.readline())
    status = Path(f"/proc/{other}/stat")
    # Nobody may have collected its exit code.
    await until(lambda: not status.exists() or " Z " in status.read_text())
