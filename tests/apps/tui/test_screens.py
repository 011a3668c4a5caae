"""Snapshots of every screen at three sizes, as text in screens/.

UPDATE_SCREENS=1 rewrites them; review the diff before you commit it.
"""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import events

from tests.apps.tui import harness
from tests.apps.tui.harness import (
    SIZES,
    RunningApp,
    StoppedClock,
    make_usage,
    running_app,
    scripted,
    write_file,
)
from tests.apps.tui.test_prompt_keys import PNG
from treadle.apps.tui.inline import InlineApp
from treadle.models.scripted import Pause, Say, ScriptElement

SCREENS = Path(__file__).parent / "screens"
UPDATE = bool(os.environ.get("UPDATE_SCREENS"))

REPLY = """\
## What I found

The test fails because `parse()` drops the *last* line when it has **no** newline:

1. `read_lines` splits by `\\n`
2. the rest is never flushed

```python
def parse(text: str) -> list[str]:
    # keep what is left
    return text.split("\\n") or []
```

| file | lines |
|---|---|
| src/parse.py | 12 |
| tests/test_parse.py | 3 |

> Nothing else depends on it.
"""
TODOS = [
    {"content": "find the cause", "status": "completed"},
    {"content": "mend parse()", "status": "in_progress"},
    {"content": "run the tests", "status": "pending"},
]
EDIT = {
    "file_path": "src/parse.py",
    "old_string": "return lines",
    "new_string": "return lines or []",
}
SOURCE = "def parse(text):\n    lines = text.split()\n    return lines\n"


async def check(on: RunningApp, name: str, look: Callable[[], None] | None = None) -> None:
    """Compare the screen at each size with its snapshot."""
    for width, height in SIZES:
        await on.pilot.resize_terminal(width, height)
        if look is not None:
            look()
        on.app.schedule_frame()
        await on.until(lambda: not on.app._is_frame_due, "the frame")
        file = SCREENS / f"{name}-{width}x{height}.txt"
        if UPDATE:
            await on.pilot.pause(1.0)
            _write(file, _lasting(on.screen()) + "\n")
        shows = partial(_shows, on, expected := _read(file))
        await on.until(shows, f"{file.name} (UPDATE_SCREENS=1 rewrites it)")
        lines = expected.rstrip("\n").split("\n")
        assert len(lines) <= height
        assert all(len(line) <= width for line in lines)


def _shows(on: RunningApp, expected: str) -> bool:
    return _lasting(on.screen()) + "\n" == expected


def _lasting(screen: str) -> str:
    """The screen without what differs between runs, at the same width."""
    screen = re.sub(r"/tmp/treadle-test-\w{8}/", "/tmp/treadle-test-XXXXXXXX/", screen)
    screen = re.sub(r"[◐◓◑◒] ", "◐ ", screen)
    screen = re.sub(r"( {2,}\S.*)( · [0-9]+s)$", _move_right, screen, flags=re.MULTILINE)
    screen = re.sub(r"(?: ·|,) [0-9]+s\b", "", screen)
    screen = re.sub(r" {2,}[0-9]+s$", "", screen, flags=re.MULTILINE)
    return re.sub(r"\d{6}-[0-9a-f]{6}", "261115-3fa9c1", screen)


def _move_right(status: re.Match[str]) -> str:
    """The right part of the status line without the seconds, aligned as without them."""
    return " " * len(status[2]) + status[1]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


async def test_the_first_question(monkeypatch):
    async with running_app(monkeypatch, trusted=False) as on:
        await on.sees("Do you trust")
        await check(on, "trust")


async def test_an_empty_session(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.sees("start a Python project with tests")  # a thing to try
        await check(on, "empty")


async def test_a_conversation(monkeypatch):
    write_file("src/parse.py", SOURCE)
    script: list[ScriptElement] = [
        Say(
            "I look at it first.",
            thinking="The user wants the failing test mended, so I have to see what it does.",
            calls=[("read", {"file_path": "src/parse.py"}), ("glob", {"pattern": "*.nothing"})],
            usage=make_usage(12_000),
        ),
        Say(calls=[("edit", EDIT)], usage=make_usage(14_000)),
        Say(REPLY, usage=make_usage(15_500)),
    ]
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    async with running_app(monkeypatch, scripted(script), flags=flags) as on:
        await on.send("mend the failing test")
        await on.sees("Nothing else depends")
        await on.idle()
        await check(on, "reply")
        await check(on, "calls", on.app.transcript.action_top)
        await on.press("tab")
        on.app.transcript.selected_index = 4
        on.app.transcript.viewport.toggle(4)
        await check(on, "opened", on.app.transcript.action_top)


async def test_a_command_waits_for_approval(monkeypatch):
    command = "git push --force origin main && rm -rf build"
    async with running_app(
        monkeypatch, scripted([Say("Now:", calls=[("bash", {"command": command})])])
    ) as on:
        await on.send("publish it")
        await on.sees("Run this command?")
        await check(on, "approve-command")
        await on.press("e", "enter")
        await on.sees("edit command")
        await check(on, "approve-edit")
        await on.press("escape")
        await on.sees("Run this command?")
        await on.press("r", "enter")
        await on.sees("Why not?")
        await check(on, "approve-deny")


async def test_an_edit_waits_for_approval(monkeypatch):
    write_file("src/parse.py", SOURCE)
    script: list[ScriptElement] = [
        Say(calls=[("read", {"file_path": "src/parse.py"})]),
        Say(calls=[("edit", EDIT)]),
    ]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("mend it")
        await on.sees("Allow edit")
        await check(on, "approve-diff")


async def test_several_calls_wait_for_approval(monkeypatch):
    commands = ("git push --force origin main", "rm -rf build", "touch made.txt")
    calls = [("bash", {"command": command}) for command in commands]
    async with running_app(monkeypatch, scripted([Say(calls=calls)])) as on:
        await on.send("publish it")
        await on.sees("3 calls need your approval")
        await on.press("space", "down")
        await check(on, "approve-list")


async def test_a_plan_waits_for_its_answer(monkeypatch):
    plan = "## Rename `parse`\n\n1. Change `src/parse.py`\n2. Keep the old name as an alias"
    flags: dict[str, object] = {"permission_mode": "plan"}
    model = scripted([Say(calls=[("present_plan", {"plan": plan})]), "I wait."])
    async with running_app(monkeypatch, model, flags=flags) as on:
        await on.send("rename it")
        await on.sees("The plan is ready")
        await check(on, "plan")
        await on.press("escape")
        await on.sees("I wait.")


async def test_at_work_with_a_list_and_messages_that_wait(monkeypatch):
    pause = Pause()
    script: list[ScriptElement] = [
        Say(calls=[("todo", {"todos": TODOS})]),
        ["I mend it now", pause],
    ]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("and keep the old name as an alias, please, because others import it")
        await on.sees("↳ and keep")
        await check(on, "working")
        await on.press("escape")


async def test_offers(monkeypatch):
    for name in ("src/view.py", "src/viewer/page.py", "docs/review.md"):
        write_file(name)
    async with running_app(monkeypatch) as on:
        await on.press("slash")
        await on.sees("/help")
        await check(on, "offers-commands")
        await on.press("escape", "escape")
        await on.until(lambda: bool(on.app.prompt.project_files), "the files")
        await on.press(*"look", "space", "at", *"view")
        await on.sees("@src/view.py")
        await check(on, "offers-files")


async def test_pickers(monkeypatch):
    async with running_app(monkeypatch, scripted(["one", "two"])) as on:
        for text in ("count the lines of every file in this project", "and the words"):
            await on.send(text)
            await on.idle()
        await on.press("escape", "escape")
        await on.sees("no file would change")
        await check(on, "rewind")
        await on.press("escape")
        await on.send("/clear")
        await on.until(lambda: "› count" not in on.screen(), "a new session")
        await on.idle()
        await on.send("/sessions")
        await on.sees("Resume a session")
        await on.sees("› and the words")  # the preview
        await check(on, "sessions")
        await on.press("escape")
        await on.send("/mode")
        await on.sees("Permission mode (now ask)")
        await check(on, "mode")


async def test_what_commands_show(monkeypatch):
    async with running_app(monkeypatch, scripted([Say("ok", usage=make_usage(40_000))])) as on:
        await on.send("hello")
        await on.sees("ok")
        await on.idle()
        await on.send("/context")
        await on.sees("free")
        await check(on, "context")
        await on.send("/help")
        await on.sees("list commands and keys")  # its beginning
        await check(on, "help")


async def test_trouble(monkeypatch):
    from treadle.core.errors import AccessDenied

    async with running_app(monkeypatch, scripted([AccessDenied("the key is not accepted")])) as on:
        await on.send("hello")
        await on.sees("the key is not accepted")
        await on.idle()
        await check(on, "trouble")


async def test_without_colour_nothing_is_lost(monkeypatch):
    async with running_app(monkeypatch, scripted([REPLY]), theme="none") as on:
        await on.send("mend the failing test")
        await on.sees("Nothing else depends")
        await on.idle()
        colours = {
            segment.style.color
            for strip in on.app.screen._compositor.render_strips(on.app.size)
            for segment in strip
            if segment.style is not None and segment.style.color is not None
        }
        assert {colour.name for colour in colours} <= {"default"}


async def test_an_approval_while_a_message_is_typed(monkeypatch):
    call = ("bash", {"command": "touch made.txt"})
    model = scripted([Say("I make it.", calls=[call])])
    async with running_app(monkeypatch, model, clock=StoppedClock()) as on:
        await on.send("go")
        await on.type("wait, look at the tests")
        await on.sees("Run this command?")
        await check(on, "approval-draft", on.app.footer.update_focus)


async def test_the_keys_the_search_and_the_queue(monkeypatch, tmp_path):
    history = tmp_path / "history.jsonl"
    history.write_text('"fix the parser"\n"run the tests"\n')
    pause = Pause()
    model = scripted([["I begin.", pause], "End."])
    async with running_app(
        monkeypatch, model, history_file=history, has_vim_keys=True, clock=StoppedClock()
    ) as on:
        await on.press("?")
        await check(on, "keys")
        await on.press("escape", "ctrl+r", *"fix")
        await check(on, "history-search")
        await on.press("escape")
        await on.send("go")
        await on.until(pause.reached.is_set)
        for number in range(1, 8):
            on.app._send(f"message {number}")
        await on.send("/queue")
        await on.press("down")
        await check(on, "queue")
        await on.press("escape")
        pause.release()
        await on.sees("End.")


async def test_the_first_screen_with_sessions_to_continue(monkeypatch):
    for prompt in ("count the lines of every file in this project", "mend parse()"):
        async with running_app(monkeypatch, scripted(["Done."])) as on:
            await on.send(prompt)
            await on.idle()
    async with running_app(monkeypatch) as on:
        await on.sees("mend parse()")
        await check(on, "first-screen")


async def test_agents_at_work(monkeypatch):
    pause = Pause()
    task = {"description": "find the callers of parse()", "prompt": "look", "name": "scout"}
    script: list[ScriptElement] = [Say(calls=[("task", task)]), ["I look into it.", pause], "End."]
    flags: dict[str, object] = {"permission_mode": "bypass"}
    async with running_app(monkeypatch, scripted(script), flags=flags) as on:
        await on.send("rename parse()")
        await on.until(pause.reached.is_set)
        await on.press("ctrl+b")
        await on.sees("▸ 1 task: scout")
        await check(on, "agents")
        await on.press("enter")
        await on.sees("watching task")
        await check(on, "agent-watched")
        await on.press("escape")
        await on.sees("Agents and tasks at work")
        await on.press("escape")
        pause.release()
        await on.sees("End.")


async def test_an_image_in_the_prompt(monkeypatch):
    (Path.cwd() / "plan.png").write_bytes(PNG)
    async with running_app(monkeypatch) as on:
        await on.type("what is wrong here? ")
        on.app.post_message(events.Paste("plan.png"))
        await on.sees("1 × 1")
        await check(on, "image")


async def test_the_inline_mode(monkeypatch):
    monkeypatch.setattr(harness, "TerminalApp", InlineApp)
    pause = Pause()
    call = ("bash", {"command": "touch made.txt"})
    async with running_app(
        monkeypatch, scripted([["I make it.\n\nNow", pause, Say(calls=[call])]])
    ) as on:
        await on.send("make it")
        await on.until(pause.reached.is_set)
        await check(on, "inline")
        pause.release()
        await on.sees("Run this command?")
        await check(on, "inline-approval")
        await on.press("escape")
        await on.idle()
