"""What the log of a session makes possible, command by command.

    -p --dry-run, apply, undo    what would be done; a part of it; and it is taken back
    test                         a session as a regression test: what it would do now
    bisect, whatif               the turn that broke something; that turn with another message
    --verbose, cost --by         what a task will cost, and what the cost belongs to
    review                       findings, and an exit code for CI

A provider on this machine plays the model, in a folder and a home that are gone at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

from treadle.testing import FakeCall, FakeReply, ProviderServer

COMMANDS = """
-p --dry-run "Set it to 2" --permission-mode accept-edits
apply --only 1
undo --yes
-p "Set it to 3" --permission-mode accept-edits
-p --continue "Rename it" --permission-mode accept-edits
test "to 3" --exact
bisect "to 3" --check "grep -q price shop.py"
trust
whatif "to 3" --prompts "Set it to 4" --check "grep -q price shop.py" --allow Write
cost --by file
-p "Set it to 5" --verbose
review
"""
TEXTS = {"to 2": "price = 2", "to 3": "price = 3", "to 4": "price = 4", "Rename": "cost = 3"}
FOUND = """{"summary": "A rename.", "findings": [{"file": "shop.py", "line": 1,
"severity": "error", "title": "the name is gone", "detail": "Others import it."}]}"""


def answer(request: Any) -> FakeReply:
    """What the model says to the last message: it writes, reviews or is done."""
    last = json.dumps(json.loads(request.body)["messages"][-1])
    if "uncommitted" in last:
        return FakeReply(FOUND)
    for asked in [one for one in TEXTS if one in last]:
        read = FakeCall("read", {"file_path": "shop.py"})
        write = FakeCall("write", {"file_path": "shop.py", "content": f"{TEXTS[asked]}\n"})
        return FakeReply(calls=(read, write))
    return FakeReply("Done.")


async def main(folder: Path) -> None:
    (shop := folder / "shop").mkdir()
    (shop / "shop.py").write_text("price = 1\n")
    async with ProviderServer(answer) as server:
        keys = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": server.url}
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), **keys}

        async def run(*words: str) -> str:
            done = await asyncio.to_thread(
                subprocess.run, words, cwd=shop, env=env, stdout=PIPE, stderr=STDOUT, text=True
            )
            return done.stdout

        for words in ("init -q", "add .", "commit -qm shop"):
            await run("git", "-c", "user.name=a", "-c", "user.email=a@b", *words.split())
        for line in COMMANDS.strip().splitlines():
            out = await run(sys.executable, "-P", "-m", "treadle", *shlex.split(line))
            print(f"$ treadle {line}\n{out}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary)))
