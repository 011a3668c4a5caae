"""Child agents that work at the same time, each in a git worktree of its own.

Their changes are merged into the folder when they end; what the user has not committed is not
touched. A child can be continued by its name, and knows what it did before.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

import treadle
from treadle import UserItem
from treadle.contracts import ModelRequest
from treadle.models import Say, Scripted

PAGES = ("home", "help")


def start(page: str) -> tuple[str, dict[str, object]]:
    prompt = f"Translate {page}.txt"
    return "task", {"description": page, "prompt": prompt, "name": page, "worktree": "head"}


def answer(request: ModelRequest) -> Say:
    """What a model would do. Leave out `model=` below to let a real one work."""
    said = [item.text for item in request.transcript if isinstance(item, UserItem)]
    page = said[0].removeprefix("Translate ").removesuffix(".txt")
    is_answered = not isinstance(request.transcript[-1], UserItem)
    if page in PAGES:  # a child
        command = f"echo Bonjour >> {page}.txt" if len(said) == 1 else f"wc -l {page}.txt"
        return (
            Say(f"{page} is done.") if is_answered else Say(calls=[("bash", {"command": command})])
        )
    if is_answered:
        return Say("Both pages are translated." if len(said) == 1 else "It has two lines.")
    if len(said) == 1:
        return Say(calls=[start(page) for page in PAGES])
    question = {"description": "count", "prompt": "How long is it?", "continue_agent": "home"}
    return Say(calls=[("task", question)])


def make_repository() -> Path:
    folder = Path(tempfile.mkdtemp(), "project")
    folder.mkdir()
    for page in PAGES:
        (folder / f"{page}.txt").write_text("Hello\n")
    identity = ("-c", "user.name=you", "-c", "user.email=you@localhost")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "pages")):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    (folder / "notes.txt").write_text("mine, not committed\n")
    return folder


async def main() -> None:
    folder = make_repository()
    async with treadle.coding_agent(
        folder,
        model=Scripted(answer),
        permission_mode="bypass",
        sandbox="off",  # so that the example runs anywhere; leave it out at home
        trust=True,  # worktrees need a folder that you trust
    ) as agent:
        async with agent.session("translate", store=folder.parent / "sessions") as session:
            for prompt in ("Translate the pages", "How long is the first one?"):
                result = await session.run(prompt)
                print(result.text)
    print((folder / "home.txt").read_text().split(), (folder / "notes.txt").read_text().strip())


if __name__ == "__main__":
    asyncio.run(main())
