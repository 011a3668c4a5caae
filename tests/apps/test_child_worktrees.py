"""Child agents in git worktrees, through the real program: together, killed, resumed, merged."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import finish, run, start
from tests.patience import until
from tests.workspace.helpers import alive, gone, marker
from treadle.sessions.library import Library
from treadle.sessions.log.lock import is_locked
from treadle.testing.provider import (
    FakeCall,
    FakeReply,
    FakeUsage,
    ProviderServer,
    RequestViolation,
)
from treadle.testing.provider.http import ReceivedRequest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

FREELY = ("--permission-mode", "bypass", "--sandbox", "off", "--model", "sonnet")
USED = FakeUsage(input=1_000, output=1_000)
NAMES = ("one", "two", "three", "four")
STATE = Path(".local/state/treadle/worktrees")


def git(*arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


async def make_repository() -> None:
    for name in NAMES:
        Path(f"{name}.txt").write_text(f"{name}\n")
    Path("mine.txt").write_text("committed\n")
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    assert (await run(None, "trust")).code == 0


def messages_of(request: ReceivedRequest) -> list[dict[str, Any]]:
    body: dict[str, Any] = dict(request.json)
    return list(body["messages"])


def first_words(request: ReceivedRequest) -> str:
    content = messages_of(request)[0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def reply(text: str = "", *calls: FakeCall) -> FakeReply:
    return FakeReply(text, calls=calls, usage=USED)


def task(name: str, prompt: str, **more: str) -> FakeCall:
    return FakeCall("task", {"description": "work", "prompt": prompt, "name": name, **more})


def bash(command: str) -> FakeCall:
    return FakeCall("bash", {"command": command})


def write(name: str) -> FakeCall:
    return bash(f"echo {name} by its agent > {name}.txt")


class Family:
    """A parent with four children. Each writes its file and then waits; the fourth dies."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.is_resumed = False

    def __call__(self, request: ReceivedRequest) -> FakeReply:
        name = first_words(request)
        said = json.dumps(messages_of(request))
        if name == "go":
            return self._lead(said)
        if "Try again" in said:
            return reply("four is done")
        if f"{name} by its agent" not in said:
            return reply("", write(name))
        if not self.is_resumed:
            return reply("", bash(f"sleep {self._mark}"))
        return reply(f"{name} is done")

    def _lead(self, said: str) -> FakeReply:
        if "four is done" in said:
            return reply("All is done.")
        if "one is done" in said:
            return reply(
                "",
                FakeCall(
                    "task",
                    {"description": "again", "prompt": "Try again", "continue_agent": "four"},
                ),
            )
        return reply("", *(task(name, name, worktree="head") for name in NAMES))


def is_refused(request: ReceivedRequest) -> bool:
    """The fourth child dies after it has written its file, and works when it is continued."""
    said = messages_of(request)
    return first_words(request) == "four" and len(said) > 1 and "Try again" not in json.dumps(said)


class RefusingServer(ProviderServer):
    def _check_request(self, request: ReceivedRequest, *more: Any) -> list[RequestViolation]:
        if is_refused(request):
            return [RequestViolation("", "the key was withdrawn", 401, "authentication_error")]
        return super()._check_request(request, *more)


async def until_unlocked(folder: Path) -> None:
    """Until no process of the killed program has the last session open."""
    session = Library().find_latest(folder)
    assert session is not None
    await until(lambda: not is_locked(session))  # another process does it


async def test_four_children_in_worktrees_one_dies_the_parent_is_killed_and_resumed():
    await make_repository()
    Path("mine.txt").write_text("not committed\n")
    mark = marker()
    family = Family(mark)
    async with RefusingServer(family) as server:
        limit = ("--max-cost", "5")
        process = await start(server, "-p", "go", *FREELY, *limit)
        while len(alive(mark)) < 3 or not git("branch", "--list", "treadle/four-*"):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]
        await gone(mark)
        await until_unlocked(Path.cwd())
        # Of the three that were at work, and of the fourth if it was killed before the removal.
        assert git("worktree", "list").count("\n") in (3, 4)
        assert [Path(f"{name}.txt").read_text() for name in NAMES] == [f"{n}\n" for n in NAMES]
        family.is_resumed = True
        ran = await run(server, "-p", "--continue", "--output-format", "json", *FREELY, *limit)
    assert server.violations == []
    assert ran.code == 0, ran.err
    [report] = ran.lines
    assert (ran.code, report["text"]) == (0, "All is done.")
    # Results right, nothing lost: also the work of the one that died.
    expected = [f"{name} by its agent\n" for name in NAMES]
    assert [Path(f"{name}.txt").read_text() for name in NAMES] == expected
    assert Path("mine.txt").read_text() == "not committed\n"
    # Nothing left behind.
    assert git("worktree", "list").count("\n") == 0
    assert git("branch", "--list", "treadle/*") == ""
    assert list((Path.home() / STATE).rglob("*")) == []
    # One budget: what all of them used is what the session cost.
    answered = [one for one in server.generation_requests if not is_refused(one)]
    listed = (await run(None, "sessions", "list", "--all", "--json")).lines
    assert listed[0]["cost"] == pytest.approx(len(answered) * (1_000 * 2 + 1_000 * 10) / 1e6)
    assert listed[0]["children"] == 4


async def test_changes_that_do_not_fit_are_a_branch_that_the_user_and_the_model_are_told_of():
    await make_repository()

    def answer(request: ReceivedRequest) -> FakeReply:
        said = json.dumps(messages_of(request))
        if first_words(request) == "go":
            is_told = "All its changes are in the branch" in said
            return reply("Told.") if is_told else reply("", task("one", "child", worktree="head"))
        if "by its agent" in said:
            Path("one.txt").write_text("the user was faster\n")
            return reply("child is done")
        return reply("", write("one"))

    async with ProviderServer(answer) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert (ran.code, ran.out) == (0, "Told.\n")
    branch = git("branch", "--list", "treadle/*", "--format=%(refname:short)")
    assert f"All its changes are in the branch {branch}: one.txt" in ran.err
    assert Path("one.txt").read_text() == "the user was faster\n"
    assert git("show", f"{branch}:one.txt") == "one by its agent"


async def test_an_interrupted_run_keeps_the_work_of_its_children_as_branches():
    await make_repository()
    mark = marker()

    def answer(request: ReceivedRequest) -> FakeReply:
        if first_words(request) == "go":
            return reply("", *(task(name, name, worktree="head") for name in NAMES[:2]))
        is_written = "by its agent" in json.dumps(messages_of(request))
        return reply("", bash(f"sleep {mark}") if is_written else write(first_words(request)))

    async with ProviderServer(answer) as server:
        process = await start(server, "-p", "go", *FREELY)
        while len(alive(mark)) < 2:
            assert process.returncode is None
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        ran = await finish(process)
    assert alive(mark) == []
    branches = git("branch", "--list", "treadle/*", "--format=%(refname:short)").split()
    assert [
        git("show", f"{branch}:{name}.txt")
        for branch, name in zip(branches, ("one", "two"), strict=True)
    ] == ["one by its agent", "two by its agent"]
    assert all(f"are in the branch {branch}" in ran.err for branch in branches)
    assert git("worktree", "list").count("\n") == 0
    assert Path("one.txt").read_text() == "one\n"


async def test_undo_takes_back_what_a_child_in_a_worktree_merged():
    await make_repository()

    def answer(request: ReceivedRequest) -> FakeReply:
        said = json.dumps(messages_of(request))
        if first_words(request) == "go":
            is_done = "tool_result" in said
            return reply("Done.") if is_done else reply("", task("one", "one", worktree="head"))
        return reply("done") if "tool_result" in said else reply("", write("one"))

    async with ProviderServer(answer) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert (ran.code, Path("one.txt").read_text()) == (0, "one by its agent\n")
    undone = await run(None, "undo", "--yes")
    assert (undone.code, Path("one.txt").read_text()) == (0, "one\n"), undone


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_a_child_in_a_worktree_works_in_the_sandbox_with_the_rules_of_the_folder():
    await make_repository()
    Path(".treadle").mkdir(exist_ok=True)
    Path(".treadle/settings.json").write_text(
        json.dumps({"permissions": {"deny": ["Edit(/two.txt)"]}})
    )
    assert (await run(None, "trust")).code == 0

    def answer(request: ReceivedRequest) -> FakeReply:
        said = json.dumps(messages_of(request))
        if first_words(request) == "go":
            calls = [task("one", "child", worktree="head")]
            return reply("Done.") if "tool_result" in said else reply("", *calls)
        if "tool_result" in said:
            return reply("child is done")
        return reply("", write("one"), bash("git status --short"), write("two"))

    async with ProviderServer(answer) as server:
        flags = ("--permission-mode", "auto", "--model", "sonnet", "--sandbox", "required")
        ran = await run(server, "-p", "go", *flags)
    assert (ran.code, ran.out) == (0, "Done.\n")
    child = next(
        one
        for one in server.generation_requests
        if first_words(one) == "child" and "tool_result" in json.dumps(messages_of(one))
    )
    said = json.dumps(messages_of(child)[-1])
    assert " M one.txt" in said  # git works in the sandbox of the worktree
    assert "denied" in said
    assert Path("one.txt").read_text() == "one by its agent\n"
    assert Path("two.txt").read_text() == "two\n"
    system = json.dumps(child.json["system"])
    assert "You work in a git worktree" in system
    assert git("worktree", "list").count("\n") == 0
