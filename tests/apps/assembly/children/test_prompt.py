"""What a child agent sees: its prompt, its tools, its model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.apps.assembly.children.helpers import (
    FREE,
    answers,
    bash,
    request_of,
    scripted,
    task,
)
from treadle.apps.assembly import model_choice
from treadle.apps.assembly import parts as assembly_parts
from treadle.apps.assembly.children.prompt import may_change
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import UnknownModel
from treadle.models import Say, Scripted
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.code.rename_symbol import RenameSymbolTool
from treadle.tools.builtin.files.read import ReadTool


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


@pytest.mark.parametrize(("tool", "expected"), [(RenameSymbolTool, True), (ReadTool, False)])
def test_whether_a_tool_may_change_files_is_known_by_its_kind(
    tool: type[BuiltinTool[Any]], expected: bool
):
    assert may_change([ToolSpec(tool.name, "", {}, kind=tool.kind)]) is expected


async def test_a_general_child_has_the_tools_of_its_parent(tmp_path: Path):
    """So the provider reads them from its cache; a question of the child reaches the user."""
    model = scripted(parent=[Say(calls=[task("general")]), "ok"], general="done")
    async with treadle.coding_agent(tmp_path, model=model, trust=True, **FREE) as agent:
        await agent.run("parent")
    assert request_of(model, "general").tools == request_of(model, "parent").tools


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
    *others, last = answers(result.transcript)
    assert others == ["done"] * 2
    assert last.startswith("done\n\nIt could change files of the folder beside own-1")
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
