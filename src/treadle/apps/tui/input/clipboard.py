"""Reads the desktop's clipboard, an image or a text, through a helper program.

    wl-paste    Wayland        pngpaste, osascript    macOS
    xclip       X11

Terminals paste only text, so images need this. The program of the active display is tried first.
Failures are returned as `problem`, never raised.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from treadle.apps.conversation import helper_programs
from treadle.core.transcript.content import Image
from treadle.lib.files.media_types import IMAGE_MEDIA_TYPES
from treadle.lib.files.search_path import find_program
from treadle.lib.text.text import format_bytes

TIMEOUT_SECONDS = 5.0  # the owner of the selection may be gone
MAX_BYTES = 20 << 20
_DISPLAY_VARIABLES = ("DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
NO_PROGRAM_MESSAGE = (
    "no program to read the clipboard: install wl-clipboard (Wayland), xclip (X11) "
    "or pngpaste (macOS)"
)


class ClipboardContent(msgspec.Struct, frozen=True):
    """An image, or a text, or the problem why there is neither."""

    image: Image | None = None
    text: str = ""
    problem: str = ""


async def read_clipboard() -> ClipboardContent:
    """The current content of the clipboard."""
    content = ClipboardContent(problem=NO_PROGRAM_MESSAGE)
    for program in _find_programs():
        content = await _READERS[program]()
        if not content.problem:
            break
    return content


def _find_programs() -> list[str]:
    names = [name for name in _READERS if find_program(name, Path.cwd(), os.environ)]
    displays = {"wl-paste": os.environ.get("WAYLAND_DISPLAY"), "xclip": os.environ.get("DISPLAY")}
    return sorted(names, key=lambda name: not displays.get(name, "any"))


# ------------------------------------------------------------------ the programs


async def _read_wayland() -> ClipboardContent:
    return await _read_by_type(
        ("wl-paste",), ("--list-types",), type_option="--type", text_options=("--no-newline",)
    )


async def _read_x11() -> ClipboardContent:
    command = ("xclip", "-selection", "clipboard", "-o")
    return await _read_by_type(command, ("-t", "TARGETS"), type_option="-t")


async def _read_by_type(
    command: tuple[str, ...],
    list_options: tuple[str, ...],
    *,
    type_option: str,
    text_options: tuple[str, ...] = (),
) -> ClipboardContent:
    """With a program that lists the types of the content first."""
    code, types, stderr = await _run_program(*command, *list_options)
    if code:
        return _no_content(command[0], stderr)
    media_type = _find_image_type(types)
    if media_type:
        _, data, stderr = await _run_program(*command, type_option, media_type)
        return _image_content(media_type, data, stderr)
    _, data, stderr = await _run_program(*command, *text_options)
    return _text_content(data, stderr)


async def _read_pngpaste() -> ClipboardContent:
    _, data, stderr = await _run_program("pngpaste", "-")
    return _image_content("image/png", data, stderr)


async def _read_osascript() -> ClipboardContent:
    _, output, stderr = await _run_program("osascript", "-e", "get the clipboard as «class PNGf»")
    digits = re.search(rb"PNGf([0-9A-Fa-f]+)", output)
    if digits:
        return _image_content("image/png", bytes.fromhex(digits[1].decode()), stderr)
    _, data, stderr = await _run_program("pbpaste")
    return _text_content(data, stderr)


_READERS: dict[str, Callable[[], Awaitable[ClipboardContent]]] = {
    "wl-paste": _read_wayland,
    "xclip": _read_x11,
    "pngpaste": _read_pngpaste,
    "osascript": _read_osascript,
}


# ------------------------------------------------------------------ their output


def _find_image_type(types: bytes) -> str:
    offered = types.decode(errors="replace").split()
    known = [media_type for media_type in offered if media_type in IMAGE_MEDIA_TYPES]
    return "image/png" if "image/png" in known else known[0] if known else ""


def _image_content(media_type: str, data: bytes, stderr: str) -> ClipboardContent:
    if len(data) > MAX_BYTES:
        size, limit = format_bytes(len(data)), format_bytes(MAX_BYTES)
        problem = f"the image in the clipboard is too large: {size}, the limit is {limit}"
        return ClipboardContent(problem=problem)
    image = Image(media_type, data)
    return ClipboardContent(image) if data else _no_content("the clipboard", stderr)


def _text_content(data: bytes, stderr: str) -> ClipboardContent:
    text = data.decode(errors="replace")
    return ClipboardContent(text=text) if text else _no_content("the clipboard", stderr)


def _no_content(source: str, stderr: str) -> ClipboardContent:
    error = " ".join(stderr.split())[:200]
    problem = f"{source}: {error}" if error else "the clipboard holds no image and no text"
    return ClipboardContent(problem=problem)


async def _run_program(*argv: str) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr."""
    program = find_program(argv[0], Path.cwd()) or argv[0]
    return await helper_programs.run_program(
        program,
        *argv[1:],
        variables=_DISPLAY_VARIABLES,
        timeout=TIMEOUT_SECONDS,
        max_bytes=MAX_BYTES * 2 + 1_000,  # osascript writes hexadecimal digits
    )
