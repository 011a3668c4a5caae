"""Child agents at the terminal: what the user learns of the changes of an interrupted one."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from tests.apps.tui.harness import running_app, scripted, write_file
from treadle.core.transcript import NoticeItem
from treadle.models import Pause, Say

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository() -> None:
    write_file("a.txt", "one\n")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "first")


def begin(name: str, pause: Pause) -> list[Any]:
    task = {"description": "work", "prompt": "write it", "name": name, "worktree": "head"}
    write = ("bash", {"command": f"echo {name} > a.txt"})
    return [Say(calls=[("task", task)]), Say(calls=[write]), [pause, "never"]]


@pytest.mark.parametrize("plain_quit", [False, True], ids=["ctrl+c", "quit"])
async def test_the_branch_of_an_interrupted_agent_is_told_and_known_after_a_resume(
    monkeypatch, plain_quit
):
    make_repository()
    pause = Pause()
    bypass: dict[str, object] = {"permission_mode": "bypass"}
    first = scripted([*begin("kid", pause), "fine"])
    async with running_app(monkeypatch, first, size=(120, 40), flags=bypass) as on:
        await on.send("go")
        await pause.reached.wait()
        session = on.app.session.driver.session_id
        if not plain_quit:
            await on.press("ctrl+c")
            await on.sees("git apply")
            await on.send("and now?")
            await on.sees("fine")
            assert "treadle/kid-" in find_notices(first)[0].text
        await on.send("/exit")  # another name of /quit
        await on.until(lambda: on.app.return_code is not None, "the end")
        printed = "\n".join(on.app.unshown_messages)
    branch = git("branch", "--list", "treadle/*", "--format=%(refname:short)")
    assert branch.startswith("treadle/kid-")
    if plain_quit:
        assert f"All its changes are in the branch {branch}: a.txt." in printed
    else:
        assert not printed
    second = scripted(["I know it."])
    async with running_app(monkeypatch, second, size=(120, 40), resume=session) as on:
        await on.sees("changes of an agent of this session are in the branch treadle/kid-")
        await on.send("what is left?")
        await on.sees("I know it.")
    assert [branch in one.text for one in find_notices(second)] == [True]


def find_notices(model) -> list[NoticeItem]:
    items = model.requests[-1].transcript
    return [one for one in items if isinstance(one, NoticeItem) and one.kind == "worktrees"]
