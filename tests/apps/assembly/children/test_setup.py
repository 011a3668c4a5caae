"""Child agents in worktrees: what becomes of their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import treadle
from tests.apps.assembly.children.helpers import (
    FREE,
    answers,
    bash,
    git,
    needs_git,
    request_of,
    scripted,
    task,
)
from tests.workspace.helpers import needs_bubblewrap
from treadle.agents.subagents import make_child_digest
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import Lazy
from treadle.core.events import ChildEvent, UsageUpdated
from treadle.core.steps import PendingApproval
from treadle.core.transcript import AssistantItem, ToolResultItem, Transcript
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.state import SessionState
from treadle.models import Pause, Say
from treadle.testing.observers import RecordingObserver
from treadle.workspace.worktrees.worktrees import Worktrees


@needs_git
async def test_children_in_worktrees_work_at_once_and_their_changes_come_back(repository: Path):
    model = scripted(
        parent=[Say(calls=[task(f"c{n}", worktree="head") for n in range(3)]), "ok"],
        **{f"c{n}": [Say(calls=[bash(f"pwd; echo {n} > {n}.txt")]), "done"] for n in range(3)},
    )
    watch = RecordingObserver()
    options: dict[str, Any] = {**FREE, "trust": True, "observers": [watch]}
    async with treadle.coding_agent(repository, model=model, **options) as agent:
        result = await agent.run("parent")
    expected = "done\n\nIts changes are in the folder now, not committed: {}.txt"
    assert answers(result.transcript) == [expected.format(n) for n in range(3)]
    assert [(repository / f"{n}.txt").read_text() for n in range(3)] == ["0\n", "1\n", "2\n"]
    assert git(repository, "worktree", "list").count("\n") == 0
    system = request_of(model, "c0").system
    assert f"You work in a git worktree, a copy of {repository}" in system
    assert f"Working folder: {repository}\n" not in system
    used = [event for event in watch.events_of(ChildEvent) if isinstance(event.child, UsageUpdated)]
    assert len(used) == 6  # the cost of each request reaches the parent


@needs_git
async def test_approvals_in_a_worktree_reach_the_approver_of_the_parent(repository: Path):
    asked: list[str] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval.call.name)
        return True

    model = scripted(
        parent=[Say(calls=[task("child", worktree="head")]), "ok"],
        child=[Say(calls=[("write", {"file_path": "new.txt", "content": "new\n"})]), "done"],
    )
    options: dict[str, Any] = {"permission_mode": "ask", "sandbox": "off", "trust": True}
    async with treadle.coding_agent(repository, model=model, approve=approve, **options) as agent:
        await agent.run("parent")
    assert asked == ["write"]
    assert (repository / "new.txt").read_text() == "new\n"


READS = (
    *(("read", {"file_path": path}) for path in ("secret.txt", "link", "sub/../secret.txt")),
    ("grep", {"pattern": "hush"}),
    *map(bash, ("cat secret.txt", "cat link", "cat sub/../secret.txt", "cat s*t.txt")),
    *map(bash, ("cp secret.txt x; cat x", "ln secret.txt y; cat y", "cd sub; cat ../secret.txt")),
)
ANY_READS = (bash("cat $(pwd)/secret.txt"), bash("grep -r hush ."), bash("ln -s . d; cat d/s*.txt"))


@needs_git
@pytest.mark.parametrize(
    ("sandbox", "reads"),
    [("off", READS), pytest.param("required", (*READS, *ANY_READS), marks=needs_bubblewrap)],
)
@pytest.mark.parametrize("pattern", ["{}/*/secret.txt", "{}/**/secret.txt", "{}/p*/secret*"])
async def test_a_rule_about_a_path_of_the_folder_holds_in_a_worktree_by_any_name(
    repository: Path, pattern: str, sandbox: str, reads: Sequence[Any]
):
    (repository / "secret.txt").write_text("hush-hush\n")
    (repository / "link").symlink_to("secret.txt")
    (repository / "sub").mkdir()
    (repository / "sub/b.txt").write_text("x\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    model = scripted(
        parent=[Say(calls=[task("child", worktree="head")]), "ok"],
        child=[Say(calls=reads), "done"],
    )
    rule = f"Read(/{pattern.format(repository.parent)})"
    options: dict[str, Any] = {**FREE, "sandbox": sandbox, "trust": True, "deny": [rule]}
    async with treadle.coding_agent(repository, model=model, **options) as agent:
        await agent.run("parent")
    seen = answers(model.requests[-2].transcript)
    assert len(seen) == len(reads)
    assert not [text for text in seen if "hush-hush" in text]


@needs_git
async def test_a_rule_about_another_folder_of_the_repository_holds_in_a_worktree(repository: Path):
    for name in ("sub/b.txt", "other/secret.txt"):
        (repository / name).parent.mkdir()
        (repository / name).write_text("hush-hush\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "second")
    model = scripted(
        parent=[Say(calls=[task("child", worktree="head")]), "ok"],
        child=[Say(calls=[bash("cat ../other/secret.txt")]), "done"],
    )
    options: dict[str, Any] = {**FREE, "trust": True, "deny": [f"Read(/{repository}/other)"]}
    async with treadle.coding_agent(repository / "sub", model=model, **options) as agent:
        await agent.run("parent")
    assert "hush-hush" not in answers(model.requests[-2].transcript)[0]


@needs_git
async def test_a_child_of_a_child_works_in_the_worktree_of_its_parent(repository: Path):
    model = scripted(
        parent=[Say(calls=[task("child", worktree="head")]), "ok"],
        child=[Say(calls=[task("grandchild")]), "done"],
        grandchild=[Say(calls=[bash("echo deep > deep.txt; pwd")]), "dug"],
    )
    async with treadle.coding_agent(repository, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    assert (repository / "deep.txt").read_text() == "deep\n"
    deep = request_of(model, "grandchild")
    assert "You work in a git worktree" in deep.system
    properties = next(spec for spec in request_of(model, "child").tools if spec.name == "task")
    assert "worktree" not in properties.schema["properties"]


@needs_git
async def test_a_worktree_gives_a_child_no_tools_that_its_parent_lacks(repository: Path):
    agents = repository / ".treadle" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text("---\ndescription: d\ntools: Read, Task\n---\nRead.\n")
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="reader")]), "ok"],
        child=[Say(calls=[task("grandchild", worktree="head")]), "b"],
        grandchild="a",
    )
    async with treadle.coding_agent(repository, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    names = [spec.name for spec in request_of(model, "grandchild").tools]
    assert names == ["read", "task"]


@needs_git
async def test_an_interrupted_child_keeps_its_worktree_and_closing_makes_it_a_branch(
    repository: Path,
):
    pause = Pause()
    model = scripted(
        parent=[Say(calls=[task("child", worktree="head", name="kid")])],
        child=[Say(calls=[bash("echo half > a.txt")]), [pause, "never"]],
        go=[Say(calls=[task("finish", continue_agent="kid")]), [Pause(), "never"]],
        finish=[
            Say(calls=[bash("cat a.txt; echo more >> a.txt")]),
            AssertionError("the model died"),
        ],
    )
    async with treadle.coding_agent(repository, model=model, trust=True, **FREE) as agent:
        driver = agent.start("parent")
        step = asyncio.create_task(driver.next())
        await pause.reached.wait()
        driver.interrupt()
        await step
        driver.submit("go on")
        await driver.next()
        [_, result] = answers(driver.transcript)
        await driver.aclose()
    assert result.startswith("error: ")
    assert (repository / "a.txt").read_text() == "one\n"
    branch = git(repository, "branch", "--list", "treadle/*", "--format=%(refname:short)")
    assert branch.startswith("treadle/kid-")
    assert "the agent failed: AssertionError: the model died" in result
    assert f"All its changes are in the branch {branch}: a.txt" in result
    assert git(repository, "show", f"{branch}:a.txt") == "half\nmore"
    assert git(repository, "worktree", "list").count("\n") == 0


@needs_git
async def test_without_trust_there_are_no_worktrees(repository: Path):
    model = scripted(parent="ok")
    async with treadle.coding_agent(repository, model=model, trust=False, **FREE) as agent:
        await agent.run("parent")
    spec = next(one for one in request_of(model, "parent").tools if one.name == "task")
    assert "worktree" not in spec.schema["properties"]


@needs_git
async def test_a_worktree_that_cannot_be_made_is_an_error_result_with_the_reason(tmp_path: Path):
    git(tmp_path, "init", "-q")
    model = scripted(parent=[Say(calls=[task("child", worktree="head")]), "ok"])
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        result = await agent.run("parent")
    assert "error: the agent has no worktree: " in answers(result.transcript)[0]
    assert "no commit yet: make a first commit" in answers(result.transcript)[0]


@needs_git
async def test_a_child_that_was_lost_with_its_process_is_known_by_its_branch(repository: Path):
    started = AssistantItem((ToolCall("c1", "task", "{}"),))
    name = f"kid-{make_child_digest('s', 'c1')}"
    before = Worktrees(repository, repository.parent / "state")
    killed = await before.open(name)
    (killed.root / "a.txt").write_text("of the child\n")
    killed.release()  # as the end of its process does

    worktrees = Worktrees(repository, repository.parent / "state")
    kept = KeptBranches(Lazy(lambda: worktrees))
    assert (
        await kept.describe("s", SessionState(Transcript([started]))) == {}
    )  # it goes on by itself
    answered = Transcript([started, ToolResultItem("c1", "task", (Text("Running as task t1."),))])
    context: Any = SimpleNamespace(session_id="s", transcript=answered)
    changed = await kept.mutate(context)
    assert changed is not None
    assert f"- treadle/{name}" in changed[-1].text
    assert [*await kept.describe("s", SessionState(answered))] == [f"treadle/{name}"]
    assert await kept.describe("s", SessionState(Transcript([started]))) == {}
