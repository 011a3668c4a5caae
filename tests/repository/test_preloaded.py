"""tests/preloaded.py: one interpreter for all workers, which ends with the last of them."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests import preloaded

ROOT = Path(__file__).parents[2]
IMPORTS = "import fractions"
PARENT = "import os, sys; print('fractions' in sys.modules, os.getppid())"
OTHER_WORKER = f"""
import asyncio, os
from tests.preloaded import start_preloaded

async def main():
    process = await start_preloaded({IMPORTS!r}, {PARENT!r}, env=dict(os.environ))
    print((await process.communicate())[0].decode(), end="")

asyncio.run(main())
"""


async def test_workers_share_an_interpreter_which_ends_with_the_last_one():
    here = await preloaded.start_preloaded(IMPORTS, PARENT, env=dict(os.environ))
    first, _ = await here.communicate()
    run = {"PYTEST_XDIST_TESTRUNUID": preloaded.RUN, "TMPDIR": str(preloaded.FOLDER)}
    there = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OTHER_WORKER),
        env={**os.environ, **run, "PYTHONPATH": str(ROOT)},
        stdout=PIPE,
    )
    second, _ = await there.communicate()
    interpreter = preloaded.interpreters[-1]
    assert first == second == f"True {interpreter.pid}\n".encode()
    assert interpreter.poll() is None
    preloaded.connections.pop((os.getpid(), IMPORTS)).close()
    assert await asyncio.to_thread(interpreter.wait) == 0
    preloaded.interpreters.remove(interpreter)
