"""Two processes with several sessions each in one SQLite file: it stays whole."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

ROUNDS = 25
WORK = f"""
import asyncio, sys
from treadle import Agent
from treadle.models import Scripted

async def main(name, store):
    agent = Agent(Scripted(["ok"] * {3 * ROUNDS}), store=store)
    for place in range({ROUNDS}):
        runs = [agent.run("x", session=f"{{name}}-{{place}}-{{one}}") for one in range(3)]
        await asyncio.gather(*runs)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_file_that_two_processes_write_stays_whole(tmp_path: Path):
    store = str(tmp_path / "sessions.db")
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORK, name, store, stderr=asyncio.subprocess.PIPE
        )
        for name in ("a", "b")
    ]
    said = await asyncio.gather(*(one.communicate() for one in started))
    assert [(one.returncode, err) for one, (_, err) in zip(started, said, strict=True)] == [
        (0, b""),
        (0, b""),
    ]
    with closing(sqlite3.connect(store)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM sessions").fetchone() == (6 * ROUNDS,)
