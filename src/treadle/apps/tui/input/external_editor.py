"""Edits a text in the user's own editor ($VISUAL or $EDITOR).

The caller gives the terminal to the editor before and takes it back afterwards. The text is in a
private file that is removed at the end. The editor gets no secrets, and is never a program of the
project.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.apps.assembly.hooks import make_hook_environment
from treadle.lib.files.search_path import find_program
from treadle.lib.text.redaction import is_secret
from treadle.lib.text.text import format_bytes

MAX_TEXT_BYTES = 10_000_000
FILE_NAME = "message.md"


class EditorError(Exception):
    """The text was not edited; the message says why and what to do."""


def find_editor(folder: Path) -> list[str]:
    """The command of the editor, without the file."""
    name = "VISUAL" if os.environ.get("VISUAL", "").strip() else "EDITOR"
    value = os.environ.get(name, "").strip()
    if not value:
        raise EditorError("no editor is set: set VISUAL or EDITOR, for example EDITOR=nano")
    try:
        program, *arguments = shlex.split(value)
    except ValueError as error:
        raise EditorError(f"{name} is not a command: {value!r}: {error}") from error
    found = find_program(program, folder, os.environ)
    if found is None or not _is_outside(Path(found), folder):
        outside = "a program outside of the project folder"
        raise EditorError(f"the editor {program!r} is not found; set {name} to {outside}")
    return [found, *arguments]


def _is_outside(program: Path, folder: Path) -> bool:
    return program.is_absolute() and not program.resolve().is_relative_to(folder.resolve())


async def edit_text(text: str, command: list[str], folder: Path) -> str:
    """Run the editor on a text until it ends; the new text, without line breaks at its end."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as place:  # mode 700
        file = Path(place) / FILE_NAME
        file.write_text(text, encoding="utf-8", errors="replace")
        file.chmod(0o600)
        with _ignore_interrupts():
            code = await _run([*command, str(file)], folder, Path(place))
        if code:
            reason = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise EditorError(f"the editor failed with {reason}; the text is unchanged")
        return _read_back(file)


async def _run(argv: list[str], folder: Path, cwd: Path) -> int:
    environ = {name: value for name, value in os.environ.items() if not is_secret(name, value)}
    environ.update(make_hook_environment(shlex.join(argv), folder))
    try:
        process = await asyncio.create_subprocess_exec(*argv, cwd=cwd, env=environ)
    except OSError as error:
        raise EditorError(f"the editor {argv[0]} cannot be started: {error.strerror}") from error
    try:
        return await process.wait()
    finally:
        if process.returncode is None:  # the app is closed
            process.terminate()
            await process.wait()


def _read_back(file: Path) -> str:
    try:
        size = file.stat().st_size
        if size > MAX_TEXT_BYTES:
            limit = format_bytes(MAX_TEXT_BYTES)
            problem = f"{format_bytes(size)}, the limit is {limit}"
            raise EditorError(f"the edited text is too long: {problem}; it is unchanged")
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError as error:
        problem = f"{error.strerror}; the text is unchanged"
        raise EditorError(f"the edited text cannot be read: {problem}") from error


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """A ctrl+c in the editor is for the editor only."""
    try:
        previous = signal.signal(signal.SIGINT, lambda number, frame: None)
    except ValueError:  # not in the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
