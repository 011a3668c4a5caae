"""The memory that the agent keeps, as the user lists and changes it: `treadle memory`, `/memory`.

Lines are proposed by the tool `remember` and kept in one file of the user
(context/memory_lines.py). Used by every host, and by the assembly of the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treadle.apps.settings.settings import treadle_home
from treadle.context.memory_files import KEPT_LINES, find_memory_root
from treadle.context.memory_lines import MemoryLine, MemoryLines
from treadle.core.errors import ConfigError

ACTIONS = "accept N, edit N TEXT, forget N, add [--user] TEXT"
_NEXT = "used from the next session on"


def open_memory_lines(folder: Path) -> MemoryLines:
    """The lines of the user and of the project that the folder is in."""
    return MemoryLines(treadle_home() / KEPT_LINES, find_memory_root(folder))


def run_memory_action(folder: Path, words: Sequence[str]) -> str:
    """List the lines, or do what the words say; a text for the user."""
    lines = open_memory_lines(folder)
    match list(words):
        case [] | ["list"]:
            return format_lines(lines.list_lines())
        case ["accept", *numbers] if numbers:
            accepted = lines.accept(_parse_numbers(numbers))
            return "\n".join(f"accepted, {_NEXT}: {line.text}" for line in accepted)
        case ["forget" | "undo", *numbers] if numbers:
            forgotten = lines.forget(_parse_numbers(numbers))
            return "\n".join(f"forgotten: {line.text}" for line in forgotten)
        case ["edit", number, *text] if text:
            line = lines.edit(_parse_numbers([number])[0], " ".join(text))
            return f"changed, {_NEXT}: {line.text}"
        case ["add", "--user", *text] if text:
            return f"added for every project, {_NEXT}: {lines.add(' '.join(text), 'user').text}"
        case ["add", *text] if text:
            return f"added for this project, {_NEXT}: {lines.add(' '.join(text), 'project').text}"
    raise ConfigError(f"memory: expected {ACTIONS}, or nothing to list the lines")


def format_lines(lines: Sequence[MemoryLine]) -> str:
    proposed = [line for line in lines if not line.is_accepted]
    used = [line for line in lines if line.is_accepted]
    parts = []
    if used:
        parts += ["in use:", *map(_format_line, used)]
    if proposed:
        parts += ["proposed by the agent, not used unless you accept it:"]
        parts += map(_format_line, proposed)
    none = "the agent keeps no line for this project or for you"
    return "\n".join([*(parts or [none]), f"to change them: {ACTIONS}"])


def _format_line(line: MemoryLine) -> str:
    session, _, call = line.source.partition(" ")
    source = f"session {session}, call {call}" if session else "written by you"
    whose = "project" if line.project else "user"
    return f"{line.id:4}  {whose:7}  {line.text}  ({source}, {line.at})"


def _parse_numbers(words: Sequence[str]) -> list[int]:
    for word in words:
        if not word.isdecimal():
            raise ConfigError(f"memory: {word!r} is no number of a line")
    return [int(word) for word in words]
