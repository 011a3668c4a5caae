"""Hooks hear of memory files that the model gets, and of files that change under the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.contracts import FileChangedData, HookInput
from treadle.hooks import hook
from treadle.hooks.hook_config import HookConfig
from treadle.hooks.protocol import encode_input
from treadle.models import Say, Scripted


class Heard:
    """What a function hook was told, in order."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, str, str]] = []
        self.changed: list[tuple[str, str]] = []

        @hook("instructions_loaded", "file_changed")
        def listen(hook_input: HookInput[Any]) -> None:
            data, name = hook_input.data, Path(hook_input.data["file_path"])
            if hook_input.point == "file_changed":
                self.changed.append((name.name, data["event"]))
                return
            place = f"{name.parent.name}/{name.name}"
            self.loaded.append((place, data["memory_type"], data["load_reason"]))

        self.hook = listen


def make_project(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Be brief. See @more.md\n")
    (folder / "more.md").write_text("More.\n")
    (folder / "sub" / "AGENTS.md").write_text("Only here.\n")
    for name in ("a.py", "b.py", "sub/c.py"):
        (folder / name).write_text("x = 1\n")
    return folder


async def test_every_memory_file_is_told_once_with_the_reason_of_its_load(own_place: Path):
    project, heard = make_project(own_place / "project"), Heard()
    (Path.home() / ".treadle").mkdir(exist_ok=True)
    (Path.home() / ".treadle" / "AGENTS.md").write_text("Mine.\n")
    reads = Say(calls=[("read", {"file_path": "sub/c.py"})])
    async with treadle.coding_agent(
        project,
        model=Scripted([reads, "Read.", "Again."]),
        trust=True,
        hooks=[heard.hook],
        sandbox="off",
    ) as agent:
        async with agent.session() as session:
            await session.run("go")
            await session.run("go on")
    assert heard.loaded == [
        (".treadle/AGENTS.md", "User", "session_start"),
        ("project/AGENTS.md", "Project", "session_start"),
        ("project/more.md", "Project", "include"),
        ("sub/AGENTS.md", "Project", "nested_traversal"),
    ]
    assert heard.changed == []


async def test_a_file_that_others_changed_or_deleted_is_told_before_the_next_request(
    own_place: Path,
):
    project, heard = make_project(own_place / "project"), Heard()
    reads = Say(calls=[("read", {"file_path": name}) for name in ("a.py", "b.py")])
    async with treadle.coding_agent(
        project,
        model=Scripted([reads, "Read.", "Seen.", "Still."]),
        hooks=[heard.hook],
        sandbox="off",
    ) as agent:
        async with agent.session() as session:
            await session.run("go")
            assert heard.changed == []
            (project / "a.py").write_text("x = 2\n")
            (project / "b.py").unlink()
            await session.run("go on")
            await session.run("and on")
    assert sorted(heard.changed) == [("a.py", "change"), ("b.py", "unlink")]


@pytest.mark.parametrize(
    ("matcher", "is_run"), [(".envrc|.env", True), ("", True), ("env", False), ("/p/.*", True)]
)
def test_a_matcher_is_compared_with_the_path_and_the_name_of_the_file(matcher: str, is_run: bool):
    data = FileChangedData(file_path="/p/.env", event="change")
    given = HookInput("file_changed", "s", "t", dict(data))
    assert HookConfig("FileChanged", "true", matcher).matches(given) == is_run
    sent = json.loads(encode_input(given, {"cwd": "/p"}))
    assert {**data, "hook_event_name": "FileChanged"}.items() <= sent.items()
