"""Memory that the agent keeps: the model proposes a line, you accept it, a later session reads it.

At the terminal the same is `treadle memory`, or /memory in a session. Lines are kept in a file of
your own, never in a file of the project; a home folder of its own keeps yours out of this example.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import treadle
from treadle.models import Say, Scripted

LINE = "Run the tests with `make check`; pytest alone misses the C part."


def manage(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "treadle", "memory", *words]
    print("$ treadle memory", *words)
    print(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)


async def work(folder: Path, model: Scripted) -> str:
    """The instructions that the model was given."""
    async with treadle.coding_agent(folder, model=model, sandbox="off") as agent:
        await agent.run("Why do the tests fail in CI only?")
    return model.requests[0].system


async def main() -> None:
    home = Path(tempfile.mkdtemp())
    os.environ["HOME"] = str(home)
    folder = home / "project"
    folder.mkdir()

    call = ("remember", {"text": LINE})
    await work(folder, Scripted([Say(calls=[call]), "CI runs `make check`."]))
    manage(folder)
    told = await work(folder, Scripted(["I look."]))
    print("before you accept it, it is read:", LINE in told)
    manage(folder, "accept", "1")
    told = await work(folder, Scripted(["I look."]))
    print("then it is:", LINE in told)


if __name__ == "__main__":
    asyncio.run(main())
