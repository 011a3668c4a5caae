"""What the terminal around the screen is told, and what it tells."""

import asyncio
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.filter import Monochrome, NoColor

from tests.apps.tui.harness import running_app, scripted
from tests.apps.tui.tmux import PROGRAM
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.input.keyboard import PasteParser
from treadle.apps.tui.render.palette import THEMES
from treadle.apps.tui.terminal.background import BackgroundReport, BackgroundReported
from treadle.apps.tui.terminal.status import (
    TerminalStatus,
    detect_terminal,
    format_notification,
    format_title,
)
from treadle.apps.tui.terminal.terminal_screen import wants_reduced_motion
from treadle.core.transcript.items import to_user_item
from treadle.models.scripted import Say

GHOSTTY = {"TERM_PROGRAM": "ghostty"}


@pytest.mark.parametrize(
    ("environ", "notification", "has_progress"),
    [
        ({}, "bell", False),
        ({"TERM": "xterm-256color"}, "bell", False),
        ({"TERM": "xterm-kitty"}, "osc99", False),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "osc99", False),
        (GHOSTTY, "osc9", True),
        ({"TERM_PROGRAM": "WezTerm"}, "osc9", False),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.5.1"}, "osc9", False),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.6.10"}, "osc9", True),
        ({"LC_TERMINAL": "iTerm2", "LC_TERMINAL_VERSION": "3.6.6"}, "osc9", True),
        ({"TERM": "foot"}, "osc777", False),
        ({"VTE_VERSION": "7600"}, "osc777", False),
        ({"VTE_VERSION": "8000"}, "osc777", True),
        ({"WT_SESSION": "x"}, "bell", True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, "bell", False),
    ],
)
def test_a_terminal_gets_the_notifications_and_the_progress_that_it_takes(
    environ: dict[str, str], notification: str, has_progress: bool
):
    terminal = detect_terminal(environ)
    assert terminal.notification == notification
    assert terminal.has_progress is has_progress


def test_a_name_of_a_folder_cannot_control_the_terminal():
    title = format_title("a\x1b]0;b\x07", "working")
    assert title.count("\x1b") == 1
    assert title.count("\x07") == 1
    assert format_notification("osc777", "a;b\x07").count(";") == 3


def make_status(environ: dict[str, str], notify: str = "auto") -> tuple[TerminalStatus, list[str]]:
    written: list[str] = []
    return TerminalStatus(Path("/src/project"), written.append, notify, environ), written


def test_the_title_and_the_progress_change_with_the_state_and_are_taken_back():
    status, written = make_status(GHOSTTY)
    status.update(is_busy=True, is_waiting=False)
    status.update(is_busy=True, is_waiting=False)
    assert written == ["\x1b]2;project · working\x07\x1b]9;4;3;0\x07"]
    status.update(is_busy=True, is_waiting=True)
    assert written[-1] == "\x1b]2;project · needs your answer\x07\x1b]9;4;4;100\x07"
    status.update(is_busy=False, is_waiting=False)
    assert written[-1] == "\x1b]2;project\x07\x1b]9;4;0;0\x07"
    assert status.begin_sequence.startswith("\x1b[22;2t")
    assert status.end_sequence == "\x1b]9;4;0;0\x07\x1b]2;\x07\x1b[23;2t"


def test_inside_tmux_what_is_for_the_terminal_around_it_is_passed_through():
    status, written = make_status({**GHOSTTY, "TMUX": "/tmp/tmux"})
    status.set_focus(False)
    status.notify("done")
    assert written == ["\x07", "\x1bPtmux;\x1b\x1b]9;treadle: project: done\x07\x1b\\"]
    status.copy("text")
    assert written[2:] == [
        "\x1b]52;c;dGV4dA==\x07",
        "\x1bPtmux;\x1b\x1b]52;c;dGV4dA==\x07\x1b\\",
    ]


def test_only_a_window_without_focus_notifies_and_the_setting_decides_how():
    status, written = make_status({"TERM": "xterm-kitty"})
    status.notify("done")  # the terminal has not told whether it has focus
    assert written == ["\x07"]
    status.set_focus(True)
    status.notify("done")
    assert written == ["\x07"]
    status.set_focus(False)
    status.notify("done")
    assert written[1:] == ["\x1b]99;;treadle: project: done\x1b\\"]
    status.notify_setting = "bell"
    status.notify("done")
    assert written[2:] == ["\x07"]
    status.notify_setting = "off"
    status.notify("done")
    assert len(written) == 3


@pytest.mark.parametrize("parts", [1, 2, 20])
@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
def test_the_colour_that_the_terminal_reports_is_no_typed_text(parts: int, end: str):
    answer = f"\x1b]11;rgb:ffff/fafa/f0f0{end}"
    size = -(-len(answer) // parts) if parts < 20 else 6
    parser, found, typed = PasteParser(), [], ""
    for start in range(0, len(answer), size):
        for message in parser.feed(answer[start : start + size]):
            if isinstance(message, BackgroundReported):
                found.append(message.is_light)
            else:
                typed += str(message)
    assert found == [True]
    assert not typed
    keys = [message for message in parser.feed("a") if not isinstance(message, BackgroundReported)]
    assert len(keys) == 1


@pytest.mark.parametrize("text", ["\x1b]11;rgb", "\x1b]11;rgb:00/00/00\x07", "a\x1b]11;"])
def test_a_pasted_text_that_looks_like_a_report_is_a_paste(text: str):
    parser = PasteParser()
    (paste,) = parser.feed(f"\x1b[200~{text}\x1b[201~")
    assert isinstance(paste, events.Paste)
    assert paste.text == text
    assert len(list(parser.feed("a"))) == 1


def test_what_is_no_report_is_not_held_back():
    text = "\x1b]11;hello"
    assert BackgroundReport().take(text) == (text, None)


@pytest.mark.parametrize(("colour", "theme"), [("ffff/ffff/ffff", "light"), ("00/2b/36", "dark")])
async def test_the_theme_follows_the_background_unless_one_was_chosen(
    monkeypatch: pytest.MonkeyPatch, colour: str, theme: str
):
    monkeypatch.setenv("COLORFGBG", "0;15" if theme == "dark" else "15;0")
    (report,) = PasteParser().feed(f"\x1b]11;rgb:{colour}\x07")
    async with running_app(monkeypatch, theme="") as on:
        on.app.post_message(report)
        await on.until(lambda: on.app.palette.name == theme, "the theme of the background")
        on.app.change_theme("dark-contrast")
        on.app.post_message(report)
        await on.pilot.pause()
        assert on.app.palette.name == "dark-contrast"


@pytest.mark.parametrize(("name", "background"), [("dark-contrast", 0.0), ("light-contrast", 1.0)])
def test_the_themes_with_high_contrast_have_at_least_seven_to_one(name: str, background: float):
    for role in THEMES[name].__struct_fields__:
        style: Any = getattr(THEMES[name], role)
        if role == "name" or style.color is None:
            continue
        behind = luminance(style.bgcolor.get_truecolor()) if style.bgcolor else background
        front = luminance(style.color.get_truecolor())
        ratio = (max(front, behind) + 0.05) / (min(front, behind) + 0.05)
        assert ratio >= 7, f"{name} {role}: {ratio:.1f}"


def luminance(colour: tuple[int, int, int]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


async def test_without_colours_the_text_has_the_colours_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("NO_COLOR", "1")
    async with running_app(monkeypatch) as on:
        kinds = {type(one) for one in on.app._filters}
        assert NoColor in kinds
        assert Monochrome not in kinds


async def test_the_terminal_hears_of_a_turn_and_of_a_question(monkeypatch: pytest.MonkeyPatch):
    write = Say(calls=[("write", {"file_path": "a.txt", "content": "a"})])
    async with running_app(monkeypatch, scripted([write, "done"])) as on:
        written: list[str] = []
        monkeypatch.setattr(on.app.terminal_status, "_write", written.append)
        on.app.post_message(events.AppFocus())
        await on.pilot.pause()
        on.app.terminal_status.notify("not seen: the window has focus")
        on.app.post_message(events.AppBlur())
        await on.pilot.pause()
        assert not written
        on.app.conversation.submit(to_user_item("go"))
        await on.sees("Allow write")
        await on.until(lambda: any("needs your answer" in text for text in written), "the title")
        assert "\x07" in written
        on.app.post_message(events.AppFocus())
        await on.press("y", "enter")
        await on.sees("done")
        await on.until(lambda: written[-1] == f"\x1b]2;{on.folder.name}\x07", "the last title")


async def test_settings_of_the_terminal_are_changed_from_inside(monkeypatch: pytest.MonkeyPatch):
    async with running_app(monkeypatch) as on:
        await on.send("/config reduced_motion on")
        await on.sees("reduced_motion = on is written")
        assert on.app.is_motion_reduced
        assert on.app.animation_level == "none"
        tick = on.app.status_area.tick
        on.app._tick()
        assert on.app.status_area.tick == tick
        await on.send("/config notify off")
        await on.sees("notify = off is written")
        assert on.app.terminal_status.notify_setting == "off"
        await on.send("/config theme light-contrast")
        await on.until(lambda: on.app.palette.name == "light-contrast", "the theme")


async def test_the_desktop_is_asked_about_motion(tmp_path: Path):
    program = tmp_path / "gsettings"
    program.write_text("#!/bin/sh\necho false\n")
    program.chmod(0o755)
    here = {"PATH": str(tmp_path)}
    assert await wants_reduced_motion(Path("/nowhere"), here) is True
    assert await wants_reduced_motion(Path("/nowhere"), {**here, "SSH_CONNECTION": "x"}) is False
    assert await wants_reduced_motion(Path("/nowhere"), {"PATH": "/nowhere"}) is False


def read_until(fd: int, text: bytes) -> bytes:
    """What the program wrote, up to a text; or all of it, if it ends before."""
    output = b""
    while text not in output:
        try:
            piece = os.read(fd, 1 << 16)
        except OSError:  # the program has closed its side
            break
        if not piece:
            break
        output += piece
    return output


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--inline",)])
async def test_a_program_that_is_told_to_end_leaves_the_terminal_as_it_was(flags: tuple[str, ...]):
    HostedSession(Path.cwd()).trust.give()
    outer, inner = pty.openpty()
    env = {"ANTHROPIC_API_KEY": "k", "TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}
    given = ("--model=claude-sonnet-4-5", "--sandbox=off", *flags)
    process = subprocess.Popen(  # noqa: ASYNC220
        [PROGRAM, *given], stdin=inner, stdout=inner, stderr=inner, env={**os.environ, **env}
    )
    os.close(inner)
    try:
        name = Path.cwd().name.encode()
        first = await asyncio.to_thread(read_until, outer, b"\x1b]11;?")
        first += await asyncio.to_thread(read_until, outer, b"lists commands")
        assert b"\x1b[22;2t\x1b]2;" + name in first
        os.write(outer, b"\x1b]11;rgb:ffff/ffff/ffff\x07")
        process.send_signal(signal.SIGTERM)
        last = await asyncio.to_thread(read_until, outer, b"\x1b[?1004l")
        assert b"\x1b]9;4;0;0\x07\x1b]2;\x07\x1b[23;2t" in last
        assert await asyncio.to_thread(process.wait) == 143
    finally:
        process.kill()
        process.wait()
        os.close(outer)
