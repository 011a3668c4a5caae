"""Reminders: each said once for a change, at the end, where the model can use it."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from treadle import Agent, Transcript
from treadle.context.compaction import Compactor
from treadle.context.compaction.pins import list_open_todos
from treadle.context.memory import MemoryFile, read_memory
from treadle.context.reminders import (
    ChangedFiles,
    ChangedMemory,
    Reminders,
    format_changed_files,
)
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.policy import AllowAll
from treadle.core.loop.driver import Driver
from treadle.core.steps import Finished
from treadle.core.transcript import NoticeItem
from treadle.models import Say, Scripted
from treadle.testing.tools import RecordingTool
from treadle.tools.builtin import builtin_tools
from treadle.workspace.local import LocalWorkspace

LIST = [{"content": "write it", "status": "completed"}, {"content": "test it"}]
TODO = ("todo", {"todos": LIST})
WORK = Say(calls=[("record", {})])


def notices(items: Transcript | ModelRequest, kind: str) -> list[str]:
    transcript = items.transcript if isinstance(items, ModelRequest) else items
    return [i.text for i in transcript if isinstance(i, NoticeItem) and i.kind == kind]


async def say(driver: Driver, text: str) -> None:
    driver.submit(text)
    while not isinstance(await driver.next(), Finished):
        pass


def keeps_its_beginning(model: Scripted) -> bool:
    """Whether each request only continues the one before it."""
    views = [list(request.transcript) for request in model.requests]
    return all(
        len(older) <= len(newer) and all(a is b for a, b in zip(older, newer, strict=False))
        for older, newer in pairwise(views)
    )


async def test_a_file_that_somebody_else_changed_is_named_once(own_place: Path):
    folder = own_place / "cwd"
    (folder / "a.py").write_text("one\n")
    (folder / "b.py").write_text("two\n")
    workspace = await LocalWorkspace.open(folder)
    tools = builtin_tools(workspace, ["read", "write"])

    def seen(session: str) -> dict[Path, str]:
        return {path: seen.digest for path, seen in tools.sessions.get(session).seen_files.items()}

    model = Scripted(
        [
            Say(calls=[("read", {"path": "a.py"}), ("read", {"path": "b.py"})]),
            Say(calls=[("write", {"path": "b.py", "content": "own edit\n"})]),
            "done",
            "seen",
            "still seen",
            Say(calls=[("read", {"path": "a.py"})]),
            "read again",
        ]
    )
    reminders = Reminders(changed_files=ChangedFiles(seen))
    driver = Agent(
        model, [tools], workspace=workspace, policy=AllowAll(), mutators=[reminders]
    ).start()
    try:
        await say(driver, "look and edit")
        assert notices(driver.transcript, "changed_files") == []  # its own edit is no news
        (folder / "a.py").write_text("somebody else's\n")
        await say(driver, "go on")
        await say(driver, "and on")
        [text] = notices(driver.transcript, "changed_files")
        assert "a.py" in text
        assert "b.py" not in text
        await say(driver, "read it")
        (folder / "a.py").unlink()
        model_said = model.requests[-1]
        assert len(notices(model_said, "changed_files")) == 1
        assert keeps_its_beginning(model)
    finally:
        await driver.aclose()
        await workspace.aclose()


def test_a_file_that_is_gone_or_changed_again_is_news_again(own_place: Path):
    file = own_place / "f"
    file.write_bytes(b"1")
    changes = ChangedFiles(
        lambda session: {file: "digest of 1"}, lambda data: f"digest of {data!r}"
    )
    assert changes("s") == [file]
    assert changes("s") == []
    file.write_bytes(b"22")
    assert changes("s") == [file]
    file.unlink()
    assert (changes("s"), changes("s")) == ([file], [])
    assert changes("another session") == [file]


def test_a_file_that_was_only_touched_is_no_news(own_place: Path):
    file = own_place / "f"
    file.write_bytes(b"1")
    changes = ChangedFiles(lambda session: {file: "1"}, lambda data: data.decode())
    assert changes("s") == []
    file.touch()
    assert changes("s") == []


@pytest.mark.parametrize("become", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_that_became_something_else_is_news_and_is_not_read(own_place: Path, become):
    file = own_place / "f"
    file.write_bytes(b"1")
    changes = ChangedFiles(lambda session: {file: "1"}, lambda data: data.decode())
    assert changes("s") == []
    file.unlink()
    become(file)
    assert (changes("s"), changes("s")) == ([file], [])
    assert "(no longer a file)" in format_changed_files([file])


def test_a_file_that_grew_beyond_comparing_is_news(own_place: Path):
    file = own_place / "f"
    file.write_bytes(b"1")
    changes = ChangedFiles(lambda session: {file: "1"}, lambda data: data.decode())
    assert changes("s") == []
    os.truncate(file, 1 << 40)  # a hole: it takes no room on the disk
    assert (changes("s"), changes("s")) == ([file], [])
    assert changes("one that saw it as it is") == []


async def test_a_changed_memory_file_is_appended_and_what_came_back_too(own_place: Path):
    folder = own_place / "cwd"
    (folder / "AGENTS.md").write_text("Use tabs.")
    memory = read_memory(folder)
    model = Scripted(["x"] * 5)
    reminders = Reminders(changed_memory=ChangedMemory(memory, folder))
    driver = Agent(model, mutators=[reminders]).start()
    await say(driver, "a")
    assert notices(driver.transcript, "memory") == []
    (folder / "AGENTS.md").write_text("Use spaces.")
    await say(driver, "b")
    await say(driver, "c")
    assert ["Use spaces." in text for text in notices(driver.transcript, "memory")] == [True]
    (folder / "AGENTS.md").write_text("Use tabs.")
    await say(driver, "d")
    await say(driver, "e")
    assert ["Use tabs." in text for text in notices(driver.transcript, "memory")] == [False, True]
    assert keeps_its_beginning(model)


async def test_memory_of_a_folder_that_is_worked_in_is_told_when_work_begins_there(own_place: Path):
    folder = own_place / "cwd"
    (folder / "web" / "ui").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("root")
    (folder / "web" / "AGENTS.md").write_text("Only here: no jQuery.")
    worked_in: list[Path] = []
    watch = ChangedMemory(read_memory(folder), folder, lambda session: worked_in)
    driver = Agent(Scripted(["x"] * 3), mutators=[Reminders(changed_memory=watch)]).start()
    await say(driver, "a")
    assert notices(driver.transcript, "memory") == []
    worked_in.append(folder / "web" / "ui")
    await say(driver, "b")
    await say(driver, "c")
    [text] = notices(driver.transcript, "memory")
    assert "Only here: no jQuery." in text


async def test_a_change_of_mode_is_told_and_told_again_when_it_is_out_of_view():
    mode = ["plan"]
    model = Scripted(["x"] * 12)
    agent = Agent(model, mutators=[Reminders(mode=lambda: mode[0]), Compactor()])
    driver = agent.start()
    await say(driver, "a")
    [plan] = notices(driver.transcript, "mode")
    assert plan.startswith("The permission mode is now plan: change nothing;")
    mode[0] = "auto"
    await say(driver, "b")
    await say(driver, "c")
    _, text = notices(driver.transcript, "mode")
    assert text.startswith("The permission mode is now auto: edits, and commands")
    for _ in range(4):
        await say(driver, "long " * 2_000)
    assert await driver.compact()
    await say(driver, "d")
    assert notices(driver.transcript, "mode") == [text]
    mode[0] = "plan"
    await say(driver, "e")
    assert notices(driver.transcript, "mode")[-1].startswith("The permission mode is now plan")


async def test_open_todos_are_named_after_many_rounds_and_only_once():
    work = Say(calls=[("record", {})])
    model = Scripted([Say(calls=[TODO]), *[work] * 9, "done"])
    tools = [RecordingTool("todo"), RecordingTool()]
    reminders = Reminders(todo_rounds=3)
    result = await Agent(model, tools, mutators=[reminders]).run("go")
    [text] = notices(result.transcript, "open_todos")
    assert "test it" in text
    assert "write it" not in text
    assert [len(notices(request, "open_todos")) for request in model.requests[:6]] == [
        0, 0, 0, 0, 1, 1,
    ]  # fmt: skip


async def test_a_list_without_open_todos_is_left_alone():
    done = ("todo", {"todos": [{"content": "all", "status": "completed"}]})
    model = Scripted([Say(calls=[done]), *[Say(calls=[("record", {})])] * 5, "done"])
    reminders = Reminders(todo_rounds=2)
    agent = Agent(model, [RecordingTool("todo"), RecordingTool()], mutators=[reminders])
    result = await agent.run("go")
    assert not [item for item in result.transcript if isinstance(item, NoticeItem)]


@pytest.mark.parametrize(
    ("mode", "script"),
    [
        ("ask", [Say(calls=[TODO]), "stop", *[WORK] * 5, "done"]),  # of an earlier turn
        ("plan", [Say(calls=[TODO]), *[WORK] * 5, "stop", "done"]),
    ],
)
async def test_a_todo_list_of_an_earlier_turn_or_of_plan_mode_is_left_alone(mode, script):
    reminders = Reminders(todo_rounds=2, mode=lambda: mode)
    tools = [RecordingTool("todo"), RecordingTool()]
    driver = Agent(Scripted(script), tools, mutators=[reminders]).start()
    await say(driver, "go")
    await say(driver, "What now?")
    assert notices(driver.transcript, "open_todos") == []


def test_a_pinned_list_is_read_as_well():
    pinned = NoticeItem("The todo list:\n[x] write it\n[>] test it\n[ ] ship it", "todos")
    assert list_open_todos(pinned) == ["test it", "ship it"]


OLD_MODE = "The permission mode is now auto: other words. Plan mode, if it was on, is over."


async def test_notices_that_an_older_version_worded_differently_are_not_repeated(own_place: Path):
    """Notices of 0.1 have no data; their mode, file and text are read from their texts."""
    file = MemoryFile(own_place / "AGENTS.md", "Use uv.\nAlways.")
    old = (
        f"What {file.path} says now; it replaces any earlier text of that file:\n"
        f'<memory file="{file.path}">\n{file.text}\n</memory>'
    )
    modes, texts = ["ask", "auto", "auto", "plan"], [file.text] * 2 + ["Use pip."]
    reminders = Reminders(
        mode=lambda: modes.pop(0),
        changed_memory=lambda _: [MemoryFile(file.path, texts.pop(0))],
    )
    before = [NoticeItem(OLD_MODE, "mode"), NoticeItem(old, "memory")]
    agent = Agent(Scripted(["Hello."] * 3), mutators=[reminders])
    driver = agent.start(history=before)
    for expected in ([], [], ["plan", str(file.path)]):
        await say(driver, "go")
        notices_now = [i for i in driver.transcript[2:] if isinstance(i, NoticeItem)]
        assert [
            (i.data or {}).get("mode") or (i.data or {}).get("path") for i in notices_now
        ] == expected
