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

from treadle.apps.wiring import programs
from treadle.core.transcript.content import Image

PATIENCE = 5.0  # seconds for a program to answer; an owner of the selection may be gone
MOST_BYTES = 20 << 20
_DOORS = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
KINDS = ("image/png", "image/jpeg", "image/webp", "image/gif")
NO_PROGRAM = (
    "nothing here can read the clipboard: install wl-clipboard (Wayland), xclip (X11) "
    "or pngpaste (macOS)"
)


class Clip(msgspec.Struct, frozen=True):
    """A picture, or a text, or why there is neither."""

    image: Image | None = None
    text: str = ""
    problem: str = ""


async def clip(environ: Mapping[str, str] = os.environ) -> Clip:
    """What the clipboard holds now."""
    there = _programs(environ)
    if not there:
        return Clip(problem=NO_PROGRAM)
    found = Clip(problem="the clipboard is empty")
    for program in there:
        found = await _READERS[program]()
        if not found.problem:
            break
    return found


def _programs(environ: Mapping[str, str]) -> list[str]:
    there = [name for name in _READERS if programs.found(name, Path.cwd(), environ)]
    has_display = {
        "wl-paste": bool(environ.get("WAYLAND_DISPLAY")),
        "xclip": bool(environ.get("DISPLAY")),
    }
    return sorted(there, key=lambda name: not has_display.get(name, True))


# ------------------------------------------------------------------ the programs


async def _wayland() -> Clip:
    code, listed, said = await _run("wl-paste", "--list-types")
    if code:
        return _nothing("wl-paste", said)
    kind = _picture(listed)
    if kind:
        _, data, said = await _run("wl-paste", "--type", kind)
        return _image(kind, data, said)
    _, data, said = await _run("wl-paste", "--no-newline")
    return _text(data, said)


async def _x11() -> Clip:
    ask = ("xclip", "-selection", "clipboard", "-o")
    code, listed, said = await _run(*ask, "-t", "TARGETS")
    if code:
        return _nothing("xclip", said)
    kind = _picture(listed)
    if kind:
        _, data, said = await _run(*ask, "-t", kind)
        return _image(kind, data, said)
    _, data, said = await _run(*ask)
    return _text(data, said)


async def _pngpaste() -> Clip:
    _, data, said = await _run("pngpaste", "-")
    return _image("image/png", data, said)


async def _applescript() -> Clip:
    _, printed, said = await _run("osascript", "-e", "get the clipboard as «class PNGf»")
    held = re.search(rb"PNGf([0-9A-Fa-f]+)", printed)
    if held:
        return _image("image/png", bytes.fromhex(held[1].decode()), said)
    _, data, said = await _run("pbpaste")
    return _text(data, said)


_READERS: dict[str, Callable[[], Awaitable[Clip]]] = {
    "wl-paste": _wayland,
    "xclip": _x11,
    "pngpaste": _pngpaste,
    "osascript": _applescript,
}


# ------------------------------------------------------------------ what they say


def _picture(listed: bytes) -> str:
    offered = listed.decode(errors="replace").split()
    return next((kind for kind in KINDS if kind in offered), "")


def _image(kind: str, data: bytes, said: str) -> Clip:
    if len(data) > MOST_BYTES:
        return Clip(problem=f"the picture in the clipboard is too large: {len(data):,} bytes")
    return Clip(Image(kind, data)) if data else _nothing("the clipboard", said)


def _text(data: bytes, said: str) -> Clip:
    text = data.decode(errors="replace")
    return Clip(text=text) if text else _nothing("the clipboard", said)


def _nothing(who: str, said: str) -> Clip:
    why = " ".join(said.split())[:200]
    return Clip(problem=f"{who}: {why}" if why else "the clipboard holds no picture and no text")


async def _run(*words: str) -> tuple[int, bytes, str]:
    """Exit code, output, and what it said about an error."""
    program = programs.found(words[0], Path.cwd()) or words[0]
    most = MOST_BYTES * 2 + 1_000  # one of them writes pictures as hexadecimal digits
    return await programs.run(program, *words[1:], passed=_DOORS, seconds=PATIENCE, most=most)
