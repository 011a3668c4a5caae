"""Child agents of the coding agent: what they see, and where they work."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import treadle
from tests.workspace.helpers import needs_bubblewrap
from treadle.agents.subagents import make_child_digest
from treadle.apps.assembly import model_choice
from treadle.apps.assembly import parts as assembly_parts
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import Lazy
from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import UnknownModel
from treadle.core.events import ChildEvent, UsageUpdated
from treadle.core.steps import PendingApproval
from treadle.core.transcript import AssistantItem, ToolResultItem, Transcript, UserItem
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.state import SessionState
from treadle.models import Pause, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.workspace.worktrees.worktrees import Worktrees

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
FREE: dict[str, Any] = {"permission_mode": "bypass", "sandbox": "off"}


def task(prompt: str, **more: object) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt, **more}


def bash(command: str) -> tuple[str, dict[str, object]]:
    return "bash", {"command": command}


def answers(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, ToolResultItem)]


def messages(request: ModelRequest) -> list[str]:
    return [item.text for item in request.transcript if isinstance(item, UserItem)]


def scripted(**replies: Any) -> Scripted:
    """A model that answers by the last message of the user: a reply, or replies in order."""
    left = {
        key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()
    }

    def answer(request: ModelRequest) -> Any:
        return left[messages(request)[-1].split()[0]].pop(0)

    return Scripted(answer)


def request_of(model: Scripted, prompt: str) -> ModelRequest:
    return next(one for one in model.requests if messages(one)[-1] == prompt)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


# --- what a child sees -------------------------------------------------------------------


async def test_a_child_sees_environment_and_memory_as_its_parent(tmp_path: Path):
    (tmp_path / "AGENTS.md").write_text("Use tabs here.\n")
    agents = tmp_path / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "reviewer.md").write_text(
        "---\nname: reviewer\ndescription: reviews\ntools: Read, WebFetch, Teleport\n---\n"
        "Be strict.\n"
    )
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="reviewer")]), "ok"], child="done"
    )
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
        assert any("reviewer.md: there is no tool Teleport; ignored" in n for n in agent.notes)
    parent, child = request_of(model, "parent"), request_of(model, "child")
    assert child.system.startswith("Be strict.")
    for part in ("Use tabs here.", f"Working folder: {tmp_path}", "# How to work"):
        assert part in parent.system
        assert part in child.system
    assert "You are Treadle" not in child.system
    assert "It sees only your last message" in " ".join(child.system.split())
    assert [spec.name for spec in child.tools] == ["read", "web_fetch"]


async def test_the_prompt_of_a_child_says_only_what_its_tools_can_do(tmp_path: Path):
    """By the tools of its kind: an editor without commands, and a reader that is not in plan
    mode."""
    agents = tmp_path / ".treadle" / "agents"
    agents.mkdir(parents=True)
    kinds = {"editor": "Read, Edit", "reader": "Read, Grep", "keeper": "Bash, TodoWrite, Task"}
    for name, tools in kinds.items():
        (agents / f"{name}.md").write_text(f"---\ndescription: d\ntools: {tools}\n---\nWork.\n")
    calls = [task(kind, subagent_type=kind) for kind in (*kinds, "general")]
    model = scripted(parent=[Say(calls=calls), "ok"], **dict.fromkeys((*kinds, "general"), "done"))
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    parts = {
        "changes": "# How to change",
        "check": "- Check your work by running something.",
        "commit": "- Commit, push,",
        "prefer": "- Prefer `grep`",
        "todo": "- Keep a `todo` list",
        "task": "- Give `task` a search",
        "ask": "- Ask only if",
        "commands": "- Commands:",
    }

    def list_parts(prompt: str) -> set[str]:
        system = request_of(model, prompt).system
        assert "Working folder: " in system
        assert "<!--" not in system
        return {name for name, text in parts.items() if text in system}

    assert list_parts("parent") == parts.keys()
    assert list_parts("general") == list_parts("keeper") == parts.keys() - {"ask"}
    assert list_parts("editor") == {"changes"}
    assert list_parts("reader") == set()


async def test_a_general_child_has_the_tools_of_its_parent_but_those_that_ask_the_user(
    tmp_path: Path,
):
    agents = tmp_path / ".treadle" / "agents"
    agents.mkdir(parents=True)
    (agents / "asker.md").write_text("---\ndescription: d\ntools: Read, Ask\n---\nAsk.\n")
    calls = [task("general"), task("asker", subagent_type="asker")]
    model = scripted(parent=[Say(calls=calls), "ok"], general="done", asker="done")
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    parent, child, asker = (
        {spec.name for spec in request_of(model, one).tools}
        for one in ("parent", "general", "asker")
    )
    assert parent - child == {"ask", "present_plan"}
    assert asker == {"read", "ask"}


async def test_the_prompt_and_tools_of_a_child_that_only_looks_are_those_of_looking(tmp_path: Path):
    call = task("child", subagent_type="explore")
    model = scripted(parent=[Say(calls=[call]), "ok"], child="done")
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    parent, child, *_ = model.requests
    assert "# How to change" in parent.system
    assert "# How to change" not in child.system
    assert "# How to work" in child.system
    names = {spec.name for spec in child.tools}
    assert {"read", "grep", "bash"} <= names
    assert not names & {"write", "edit", "todo", "task", "ask", "present_plan", "use_tool"}


async def test_a_fork_begins_with_the_request_of_its_parent(tmp_path: Path):
    """So the provider reads all of it from its cache."""
    call = task("child", subagent_type="fork")
    (tmp_path / "a.py").write_text("x = 1\n")
    read = Say(calls=[("read", {"file_path": "a.py"})])
    model = Scripted([read, Say(calls=[call]), Say("The child's report."), Say("ok")])
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        result = await agent.run("Never touch b.py.")
    _, parent, child, after = model.requests
    assert list(child.transcript)[: len(parent.transcript)] == list(parent.transcript)
    assert (child.system, child.options) == (parent.system, parent.options)
    assert child.tools == parent.tools
    told, asked = child.transcript[len(parent.transcript) :][:2]
    assert told.text.startswith("You are a copy of the agent of this conversation.")
    assert asked.text == "child"
    assert "The child's report." in after.transcript[-1].text
    assert result.text == "ok"


async def test_session_hooks_of_the_settings_run_once_and_not_for_each_child(tmp_path: Path):
    hooks = {
        point: [{"hooks": [{"type": "command", "command": f"echo {point} >> {tmp_path}/log"}]}]
        for point in ("SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop")
    }
    settings = Path.home() / ".treadle" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"hooks": hooks}))
    model = scripted(parent=[Say(calls=[task("child")]), "ok"], child="done")
    folder = tmp_path / "work"
    folder.mkdir()
    async with treadle.coding_agent(folder, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    ran = (tmp_path / "log").read_text().split()
    assert ran == ["SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop"]


async def test_a_child_of_a_parent_in_plan_mode_is_told_that_it_may_only_look(tmp_path: Path):
    model = scripted(
        parent=[Say(calls=[task("child")]), "ok"],
        child=[Say(calls=[bash("touch made")]), "done"],
    )
    options: dict[str, Any] = {**FREE, "permission_mode": "plan"}
    async with treadle.coding_agent(tmp_path, model=model, **options) as agent:
        await agent.run("parent")
    assert "You may only look" in request_of(model, "child").system
    assert not (tmp_path / "made").exists()
    notices = [type(item).__name__ for item in request_of(model, "child").transcript]
    assert notices == ["UserItem"]


async def test_explore_uses_the_small_model_and_others_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    agents = tmp_path / ".treadle" / "agents"
    agents.mkdir(parents=True)
    for name, used in (("own", "acme/own"), ("lost", "acme/lost")):
        (agents / f"{name}.md").write_text(f"---\ndescription: d\nmodel: {used}\n---\nWork.\n")
    made: dict[str, Scripted] = {}

    def create(name: str, settings: object) -> Scripted:
        if name == "acme/lost":
            raise UnknownModel("there is no model acme/lost")
        made[name] = Scripted(["done"], name=name)
        return made[name]

    for module in (assembly_parts, model_choice):
        monkeypatch.setattr(module, "create_model", create)
    kinds = ("explore", "own", "lost")
    model = scripted(
        parent=[Say(calls=[task(kind, subagent_type=kind) for kind in kinds]), "ok"], lost="done"
    )
    options: dict[str, Any] = {**FREE, "small_model": "acme/small"}
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **options) as agent:
        result = await agent.run("parent")
    assert answers(result.transcript) == ["done"] * 3
    assert [len(made[name].requests) for name in ("acme/small", "acme/own")] == [1, 1]
    assert made["acme/own"].closed
    assert "agent lost: the model of its parent is used" in caplog.text


async def test_a_child_of_a_narrow_child_is_as_narrow(tmp_path: Path):
    agents = tmp_path / ".treadle" / "agents"
    agents.mkdir(parents=True)
    head = "description: d\nmode: plan\ntools: Bash, Task"
    (agents / "careful.md").write_text(f"---\n{head}\n---\nOnly look.\n")
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="careful")]), "ok"],
        child=[Say(calls=[task("grandchild")]), "b"],
        grandchild=[Say(calls=[bash("touch made")]), "a"],
    )
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    assert not (tmp_path / "made").exists()
    assert "You may only look" in request_of(model, "grandchild").system


# --- commands of a reviewer --------------------------------------------------------------

TEST_FILE = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n        pass\n"
RUN_TESTS = f"{sys.executable} -m unittest -v test_a"


@needs_git
@needs_bubblewrap
@pytest.mark.parametrize("more", [{}, {"worktree": "changes"}])
@pytest.mark.parametrize("mode", ["plan", "ask", "bypass"])
async def test_a_reviewer_runs_tests_where_they_can_change_nothing(
    repository: Path, mode: str, more: dict[str, object]
):
    (repository / "test_a.py").write_text(TEST_FILE)
    (repository / ".env").write_text("KEY=topsecret\n")
    attacks = ["echo x > a.txt", "rm -r .git", "echo exit > .git/hooks/pre-commit", "cat .env"]
    calls = [
        bash(RUN_TESTS),
        *map(bash, attacks),
        bash("git log --format=%H | tail -1; git status"),
    ]
    calls += [("bash", {"command": RUN_TESTS, "sandbox": one}) for one in ("network", "off")]
    calls += [("read", {"file_path": "a.txt"}), ("grep", {"pattern": "one"})]
    model = scripted(
        parent=[Say(calls=[task("child", subagent_type="review", **more)]), "ok"],
        child=[Say(calls=calls), "All is well."],
    )
    head = git(repository, "rev-parse", "HEAD")
    async with treadle.coding_agent(
        repository, model=model, trust=True, permission_mode=mode
    ) as agent:
        if not (await agent._get_parts().workspace.open()).sandboxed:
            pytest.skip("no sandbox here")
        result = await agent.run("parent")
    child = next(one for one in reversed(model.requests) if messages(one)[-1] == "child")
    tested, write, remove, hook, secret, status, network, outside, read, found = answers(
        child.transcript
    )
    assert "Ran 1 test" in tested, tested
    assert "Read-only file system" in write
    assert "plan mode" in remove  # nothing protected is removed without a question
    assert "[exit code 1]" in hook
    assert "topsecret" not in secret
    assert status.startswith(head), status
    assert "plan mode" in network
    assert "plan mode" in outside
    assert "one" in read
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


# --- worktrees ---------------------------------------------------------------------------


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
