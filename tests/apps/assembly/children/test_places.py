"""Where a child agent works: a sandbox that is read-only, and a worktree beside others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.apps.assembly.children.helpers import (
    FREE,
    answers,
    bash,
    git,
    messages,
    needs_git,
    request_of,
    scripted,
    task,
)
from tests.workspace.helpers import needs_bubblewrap
from treadle.core.contracts.model import ModelRequest
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptedCall

# --- commands of a reviewer --------------------------------------------------------------

TEST_FILE = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n"
RUN_TESTS = f"{sys.executable} -m unittest -v test_a"


@needs_git
@needs_bubblewrap
@pytest.mark.parametrize("more", [{}, {"worktree": "changes"}])
@pytest.mark.parametrize("mode", ["plan", "ask", "bypass"])
async def test_a_reviewer_runs_tests_where_they_can_change_nothing(
    repository: Path, mode: Any, more: dict[str, object]
):
    (repository / "test_a.py").write_text(TEST_FILE)
    (repository / ".env").write_text("KEY=topsecret\n")
    (repository / "denied.txt").write_text("hush-hush\n")
    outside = repository.parent / "outside.txt"
    outside.write_text("elsewhere\n")
    attacks = ["echo x > a.txt", "rm -r .git", "echo exit > .git/hooks/pre-commit", "cat .env"]
    calls = [
        bash(RUN_TESTS),
        *map(bash, attacks),
        bash("git log --format=%H | tail -1; git status"),
    ]
    calls += [("bash", {"command": RUN_TESTS, "sandbox": one}) for one in ("network", "off")]
    calls += [("read", {"file_path": one}) for one in ("a.txt", str(outside))]
    calls += [("grep", {"pattern": "one"}), bash("cat $(pwd)/d*.txt")]
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="review", **more)]), "ok"],
        child=[Say(calls=calls), "All is well."],
    )
    head = git(repository, "rev-parse", "HEAD")
    rules = {"allow": [f"Read(/{outside})"], "deny": [f"Read(/{repository}/denied.txt)"]}
    options: dict[str, Any] = {"trust": True, "permission_mode": mode, **rules}
    async with treadle.coding_agent(repository, model=model, **options) as agent:
        if not (await agent._get_parts().workspace.open()).sandboxed:
            pytest.skip("no sandbox here")
        result = await agent.run("parent")
    child = next(one for one in reversed(model.requests) if messages(one)[-1] == "child")
    tested, write, remove, hook, secret, status, network, free, read, other, found, denied = (
        answers(child.transcript)
    )
    assert "Ran 1 test" in tested, tested
    assert "Read-only file system" in write
    assert "plan mode" in remove  # nothing protected is removed without a question
    assert "[exit code 1]" in hook
    assert "topsecret" not in secret
    assert "hush-hush" not in denied
    assert status.startswith(head), status
    assert "plan mode" in network
    assert "plan mode" in free
    assert "one" in read
    assert "elsewhere" in other
    assert "a.txt" in found
    assert "Commands may run, such as tests" in child.system
    assert "You may only look: calls" not in child.system
    assert "- Commands: in a sandbox; they can write only to a /tmp of their own" in child.system
    assert "All is well." in answers(result.transcript)[0]
    assert (repository / "a.txt").read_text() == "one\n"
    assert git(repository, "rev-parse", "HEAD") == head
    assert not (repository / ".git/hooks/pre-commit").exists()


async def test_without_a_sandbox_a_reviewer_runs_nothing(tmp_path: Path):
    (tmp_path / "test_a.py").write_text(TEST_FILE)
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="review")]), "ok"],
        child=[Say(calls=[bash(RUN_TESTS)]), "done"],
    )
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    child = next(one for one in reversed(model.requests) if messages(one)[-1] == "child")
    assert "plan mode: nothing may change" in answers(child.transcript)[0]
    assert "You may only look: calls" in child.system
    assert not (tmp_path / "__pycache__").exists()


# --- children that edit at once ------------------------------------------------------------


class Writers:
    """A model with two children that each add a line to a file: the second begins its work before
    the first has written, and ends after it."""

    def __init__(self, *files: str, then: ScriptedCall | None = None) -> None:
        self._replies = [Say(calls=[task("a"), task("b")]), *([Say(calls=[then])] if then else [])]
        self._looks = [Say(calls=[bash("cat a.txt")]), "seen"]
        lines = [f"echo {name} >> {file}" for name, file in zip("ab", files, strict=True)]
        self._edits = dict(zip("ab", lines, strict=True))
        self._done = {name: asyncio.Event() for name in "ab"}
        self._has_begun = asyncio.Event()
        self.model = Scripted(self._answer)

    async def _answer(self, request: ModelRequest) -> Any:
        name = messages(request)[-1]
        if name == "look":
            return self._looks.pop(0)
        if name not in self._edits:
            return self._replies.pop(0) if self._replies else "ok"
        if not answers(request.transcript):
            if name == "b":
                self._has_begun.set()
            await (self._has_begun if name == "a" else self._done["a"]).wait()
            return Say(calls=[bash(self._edits[name])])
        self._done[name].set()
        return "done"


@needs_git
async def test_the_second_of_two_children_that_edit_at_once_has_a_worktree(repository: Path):
    (repository / "mine.txt").write_text("of the user\n")
    writers = Writers("a.txt", "b.txt")
    async with treadle.coding_agent(repository, model=writers.model, trust=True, **FREE) as agent:
        result = await agent.run("parent")
    first, second = answers(result.transcript)
    assert first == "done"
    assert second == (
        "done\n\nIt worked in a git worktree, because general-1 could change files in the folder. "
        "Its changes are in the folder now, not committed: b.txt"
    )
    assert (repository / "a.txt").read_text() == "one\na\n"
    assert (repository / "b.txt").read_text() == "b\n"
    assert "You work in a git worktree" in request_of(writers.model, "b").system
    assert "You work in a git worktree" not in request_of(writers.model, "a").system


@needs_git
async def test_of_two_edits_of_one_file_at_once_none_is_lost(repository: Path):
    writers = Writers("a.txt", "a.txt")
    async with treadle.coding_agent(repository, model=writers.model, trust=True, **FREE) as agent:
        result = await agent.run("parent")
    second = answers(result.transcript)[1]
    assert (repository / "a.txt").read_text() == "one\na\n"
    assert "Nothing is merged: changed in the folder meanwhile" in second
    [branch] = git(
        repository, "for-each-ref", "--format=%(refname:short)", "refs/heads/treadle"
    ).split()
    assert branch in second
    assert git(repository, "show", f"{branch}:a.txt") == "one\nb"


async def test_where_there_are_no_worktrees_the_second_result_says_that_both_could_edit(
    tmp_path: Path,
):
    writers = Writers("a.txt", "a.txt")
    async with treadle.coding_agent(tmp_path, model=writers.model, trust=True, **FREE) as agent:
        result = await agent.run("parent")
    first, second = answers(result.transcript)
    assert first == "done"
    assert "beside general-1, without a git worktree (the folder is not trusted, no git" in second
    assert "check that no change is lost" in second
    assert (tmp_path / "a.txt").read_text() == "a\nb\n"


@needs_git
async def test_children_that_edit_one_after_the_other_work_in_the_folder(repository: Path):
    model = scripted(
        parent=[Say(calls=[task("a")]), Say(calls=[task("b")]), "ok"],
        a=[Say(calls=[bash("echo a >> a.txt")]), "done"],
        b=[Say(calls=[bash("echo b >> a.txt"), task("c")]), "done"],  # c's parent waits for it
        c=[Say(calls=[bash("echo c >> a.txt")]), "done"],
    )
    async with treadle.coding_agent(repository, model=model, trust=True, **FREE) as agent:
        result = await agent.run("parent")
    assert answers(result.transcript) == ["done", "done"]
    assert (repository / "a.txt").read_text() == "one\na\nb\nc\n"


@needs_git
async def test_a_child_that_is_continued_begins_with_the_branch_of_its_worktree(repository: Path):
    """Also if the worktree was not asked for."""
    look = task("look", continue_agent="general-2")
    writers = Writers("a.txt", "a.txt", then=look)
    async with treadle.coding_agent(repository, model=writers.model, trust=True, **FREE) as agent:
        await agent.run("parent")
    looked = next(one for one in reversed(writers.model.requests) if messages(one)[-1] == "look")
    assert answers(looked.transcript)[-1].strip() == "one\nb"
