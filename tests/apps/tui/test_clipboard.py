"""Pasting from the desktop's clipboard, through fake programs that are real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from tests.apps.tui.harness import running_app, scripted
from treadle.apps.tui.input import clipboard
from treadle.apps.tui.input.clipboard import read_clipboard
from treadle.core.transcript.content import Image
from treadle.core.transcript.items import UserItem

PICTURE = b"\x89PNG\r\n\x1a\nnot much of one\0\xff"


class FakePrograms:
    """A folder of programs that is the only entry of PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = folder / "held"

    def program(self, name: str, text: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def xclip(self, targets: str, held: bytes) -> None:
        """An xclip with content of one type."""
        self.held.write_bytes(held)
        kind = targets.split()[-1]
        listed = targets.replace(" ", r"\n")
        self.program(
            "xclip",
            f"""case "$*" in
            *TARGETS*) printf '{listed}\\n' ;;
            *"-t {kind}"*) exec /bin/cat '{self.held}' ;;
            *-t*) echo 'no such target' >&2; exit 1 ;;
            *) exec /bin/cat '{self.held}' ;;
            esac""",
        )


@pytest.fixture
def programs(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> FakePrograms:
    folder = own_place / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DISPLAY", ":7")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return FakePrograms(folder)


async def test_ctrl_v_attaches_the_picture_in_the_clipboard(monkeypatch, programs):
    programs.xclip("TARGETS image/png", PICTURE)
    model = scripted(["A picture."])
    async with running_app(monkeypatch, model) as on:
        await on.type("look at ")
        await on.press("ctrl+v")
        await on.sees(f"look at [image 1: {len(PICTURE)} bytes]")
        await on.press("enter")
        await on.sees("A picture.")
        message = model.requests[-1].transcript[-1]
        assert isinstance(message, UserItem)
        assert Image("image/png", PICTURE) in message.content


async def test_an_empty_paste_asks_the_clipboard_and_text_is_pasted_as_text(monkeypatch, programs):
    programs.xclip("TARGETS UTF8_STRING", b"just words")
    async with running_app(monkeypatch) as on:
        on.app.prompt.post_message(events.Paste(""))
        await on.sees("› just words")
        await on.press("escape", "ctrl+v")
        await on.sees("› just words")


async def test_without_a_program_a_line_says_what_to_install(monkeypatch, programs):
    async with running_app(monkeypatch, size=(120, 24)) as on:
        await on.press("ctrl+v")
        await on.sees("install wl-clipboard (Wayland), xclip (X11)")
        on.app.copy_to_clipboard("copied here")
        await on.press("ctrl+v")
        await on.sees("› copied here")


async def test_the_program_of_the_display_that_is_there_is_asked_first(monkeypatch, programs):
    programs.xclip("TARGETS image/png", b"from X")
    programs.program("wl-paste", "printf text/plain; exit 0")
    assert (await read_clipboard()).image == Image("image/png", b"from X")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("DISPLAY")
    assert await read_clipboard() == clipboard.ClipboardContent(text="text/plain")
    programs.program("wl-paste", "echo 'no compositor' >&2; exit 1")
    assert (await read_clipboard()).image == Image("image/png", b"from X")


async def test_the_programs_of_a_mac(programs):
    programs.program("osascript", f"echo '«data PNGf{PICTURE.hex().upper()}»'")
    assert (await read_clipboard()).image == Image("image/png", PICTURE)
    programs.program("osascript", "echo 'no picture' >&2; exit 1")
    programs.program("pbpaste", "printf words")
    assert (await read_clipboard()).text == "words"


async def test_a_program_that_fails_or_hangs_is_named_and_leaves_nothing(
    monkeypatch, programs, no_leaks
):
    programs.program("xclip", 'echo "Error: Can\'t open display" >&2; exit 1')
    assert (await read_clipboard()).problem == "xclip: Error: Can't open display"
    programs.xclip("TARGETS STRING", b"")
    assert (await read_clipboard()).problem == "the clipboard holds no image and no text"
    monkeypatch.setattr(clipboard, "TIMEOUT_SECONDS", 0.05)
    programs.program("xclip", "exec /bin/sleep 60")
    assert (await read_clipboard()).problem == "xclip: timed out"
