"""What is in the clipboard of the desktop: a picture or a text, by whichever program can tell.

    wl-paste    Wayland        pngpaste, osascript    macOS
    xclip       X11

A terminal pastes only text; a picture has to be asked for. The programs are asked in the order in
which they are likely to know, and whatever they say, nothing is raised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from treadle.apps.services import helper_programs
from treadle.core.transcript.content import Image

TIMEOUT_SECONDS = 5.0  # seconds for a program to answer; an owner of the selection may be gone
MAX_BYTES = 20 << 20
_DISPLAY_VARIABLES = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
NO_PROGRAM_MESSAGE = (
    "nothing here can read the clipboard: install wl-clipboard (Wayland), xclip (X11) "
    "or pngpaste (macOS)"
)


class ClipboardContent(msgspec.Struct, frozen=True):
    """A picture, or a text, or why there is neither."""

    image: Image | None = None
    text: str = ""
    problem: str = ""


async def read_clipboard(environ: Mapping[str, str] = os.environ) -> ClipboardContent:
    """What the clipboard holds now."""
    there = _find_programs(environ)
    if not there:
        return ClipboardContent(problem=NO_PROGRAM_MESSAGE)
    found = ClipboardContent(problem="the clipboard is empty")
    for program in there:
        found = await _READERS[program]()
        if not found.problem:
            break
    return found


def _find_programs(environ: Mapping[str, str]) -> list[str]:
    there = [name for name in _READERS if helper_programs.find_program(name, Path.cwd(), environ)]
    has_display = {
        "wl-paste": bool(environ.get("WAYLAND_DISPLAY")),
        "xclip": bool(environ.get("DISPLAY")),
    }
    return sorted(there, key=lambda name: not has_display.get(name, True))


# ------------------------------------------------------------------ the programs


async def _read_wayland() -> ClipboardContent:
    code, listed, said = await _run_program("wl-paste", "--list-types")
    if code:
        return _no_content("wl-paste", said)
    kind = _find_image_type(listed)
    if kind:
        _, data, said = await _run_program("wl-paste", "--type", kind)
        return _image_content(kind, data, said)
    _, data, said = await _run_program("wl-paste", "--no-newline")
    return _text_content(data, said)


async def _read_x11() -> ClipboardContent:
    ask = ("xclip", "-selection", "clipboard", "-o")
    code, listed, said = await _run_program(*ask, "-t", "TARGETS")
    if code:
        return _no_content("xclip", said)
    kind = _find_image_type(listed)
    if kind:
        _, data, said = await _run_program(*ask, "-t", kind)
        return _image_content(kind, data, said)
    _, data, said = await _run_program(*ask)
    return _text_content(data, said)


async def _read_pngpaste() -> ClipboardContent:
    _, data, said = await _run_program("pngpaste", "-")
    return _image_content("image/png", data, said)


async def _read_osascript() -> ClipboardContent:
    _, printed, said = await _run_program("osascript", "-e", "get the clipboard as «class PNGf»")
    held = re.search(rb"PNGf([0-9A-Fa-f]+)", printed)
    if held:
        return _image_content("image/png", bytes.fromhex(held[1].decode()), said)
    _, data, said = await _run_program("pbpaste")
    return _text_content(data, said)


_READERS: dict[str, Callable[[], Awaitable[ClipboardContent]]] = {
    "wl-paste": _read_wayland,
    "xclip": _read_x11,
    "pngpaste": _read_pngpaste,
    "osascript": _read_osascript,
}


# ------------------------------------------------------------------ what they say


def _find_image_type(types: bytes) -> str:
    offered = types.decode(errors="replace").split()
    return next((kind for kind in IMAGE_TYPES if kind in offered), "")


def _image_content(media_type: str, data: bytes, stderr: str) -> ClipboardContent:
    if len(data) > MAX_BYTES:
        return ClipboardContent(
            problem=f"the picture in the clipboard is too large: {len(data):,} bytes"
        )
    return (
        ClipboardContent(Image(media_type, data)) if data else _no_content("the clipboard", stderr)
    )


def _text_content(data: bytes, stderr: str) -> ClipboardContent:
    text = data.decode(errors="replace")
    return ClipboardContent(text=text) if text else _no_content("the clipboard", stderr)


def _no_content(source: str, stderr: str) -> ClipboardContent:
    why = " ".join(stderr.split())[:200]
    return ClipboardContent(
        problem=f"{source}: {why}" if why else "the clipboard holds no picture and no text"
    )


async def _run_program(*argv: str) -> tuple[int, bytes, str]:
    """Exit code, output, and what it said about an error."""
    program = helper_programs.find_program(argv[0], Path.cwd()) or argv[0]
    most = MAX_BYTES * 2 + 1_000  # one of them writes pictures as hexadecimal digits
    return await helper_programs.run_program(
        program, *argv[1:], variables=_DISPLAY_VARIABLES, timeout=TIMEOUT_SECONDS, max_bytes=most
    )
