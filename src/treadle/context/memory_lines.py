"""Memory that the agent keeps: single lines, proposed by the model and accepted by the user.

One file of the user, never one of a repository: `~/.treadle/memory.json`. A line belongs to a
project or, with the project "", to the user. Its source is the entry of the log that proposed it:
session and call. Only accepted lines are in the prompt. The memory files that people write are
memory.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.files.private_files import locked_update
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural

MemoryScope = Literal["project", "user"]

MAX_LINE_CHARS = 400
MAX_PROPOSED = 50  # of one project, and of the user
MAX_FILE_BYTES = 4 << 20
PROMPT_CHARS = 6_000  # of all lines in a prompt

_Returned = TypeVar("_Returned")


class MemoryLine(msgspec.Struct, frozen=True):
    """One line. `source` is "SESSION CALL", or "" if the user wrote it; `at` a day."""

    id: int
    text: str
    project: str = ""
    source: str = ""
    at: str = ""
    is_accepted: bool = False


class _MemoryData(msgspec.Struct):
    last_id: int = 0  # an id is never given again
    lines: list[MemoryLine] = []


class MemoryLines:
    """The lines of one file that are about a project or the user. Each call reads the file; a
    change is made while no other program changes it."""

    def __init__(self, file: Path, project: Path) -> None:
        self.file = file
        self._projects = {"project": str(project), "user": ""}

    def list_lines(self) -> list[MemoryLine]:
        """Those of the user, then those of the project, each in the order of their ids."""
        return sorted(self._select(self._read()), key=lambda line: (line.project, line.id))

    def propose(self, text: str, scope: MemoryScope, source: str) -> MemoryLine:
        """A line that is not used before the user accepts it. The same line, or the same call once
        more, changes nothing. ConfigError says why it cannot be kept."""
        return self._add(text, scope, source, is_accepted=False)

    def add(self, text: str, scope: MemoryScope) -> MemoryLine:
        """A line that the user wrote."""
        return self._add(text, scope, "", is_accepted=True)

    def accept(self, ids: Collection[int]) -> list[MemoryLine]:
        return self._change_lines(ids, lambda line: msgspec.structs.replace(line, is_accepted=True))

    def edit(self, line_id: int, text: str) -> MemoryLine:
        """Another text for a line; who edits a line accepts it."""
        new = _check_text(text)

        def replace(line: MemoryLine) -> MemoryLine:
            return msgspec.structs.replace(line, text=new, is_accepted=True)

        return self._change_lines([line_id], replace)[0]

    def forget(self, ids: Collection[int]) -> list[MemoryLine]:
        """Remove lines, proposed or accepted; what they said."""
        return self._change_lines(ids, lambda line: None)

    # --- the file ------------------------------------------------------------------------

    def _select(self, data: _MemoryData) -> list[MemoryLine]:
        return [line for line in data.lines if line.project in self._projects.values()]

    def _read(self) -> _MemoryData:
        try:
            text = read_text(self.file, MAX_FILE_BYTES, within=None)
            return msgspec.json.decode(text, type=_MemoryData)
        except FileNotFoundError:
            return _MemoryData()
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.file}: {error}; mend it, or remove it") from error

    def _update(self, change: Callable[[_MemoryData], _Returned]) -> _Returned:
        returned: list[_Returned] = []

        def update() -> bytes:
            data = self._read()
            returned.append(change(data))
            return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"

        locked_update(self.file, update)
        return returned[0]

    def _add(self, text: str, scope: MemoryScope, source: str, *, is_accepted: bool) -> MemoryLine:
        new, project = _check_text(text), self._projects[scope]

        def add(data: _MemoryData) -> MemoryLine:
            own = [line for line in data.lines if line.project == project]
            for line in own:
                if line.text == new or (source and line.source == source):
                    return line
            waiting = sum(not line.is_accepted for line in own)
            if not is_accepted and waiting >= MAX_PROPOSED:
                proposed = plural(waiting, "line")
                raise ConfigError(f"{proposed} wait for the user's decision; propose no more")
            data.last_id += 1
            today = datetime.now(UTC).date().isoformat()
            line = MemoryLine(data.last_id, new, project, source, today, is_accepted)
            data.lines.append(line)
            return line

        return self._update(add)

    def _change_lines(
        self, ids: Collection[int], change: Callable[[MemoryLine], MemoryLine | None]
    ) -> list[MemoryLine]:
        """The lines of these ids as they then are, or were if `change` returns None."""

        def change_all(data: _MemoryData) -> list[MemoryLine]:
            known = {line.id: line for line in self._select(data)}
            if missing := [line_id for line_id in ids if line_id not in known]:
                raise ConfigError(f"no line of memory has the number {missing[0]}")
            changed = {line_id: change(known[line_id]) for line_id in ids}
            lines = [changed.get(line.id, line) for line in data.lines]
            data.lines = [line for line in lines if line is not None]
            return [new or known[line_id] for line_id, new in changed.items()]

        return self._update(change_all)


def format_for_prompt(lines: Iterable[MemoryLine]) -> tuple[str, str]:
    """The accepted lines for the prompt, the newest ones if they are too long; and a problem."""
    accepted = [line for line in lines if line.is_accepted]
    kept: set[int] = set()
    left = PROMPT_CHARS
    for line in sorted(accepted, key=lambda line: line.id, reverse=True):
        left -= len(line.text) + 3
        if left < 0:
            break
        kept.add(line.id)
    problem = ""
    if len(kept) < len(accepted):
        problem = (
            f"memory: only the newest {len(kept)} of {len(accepted)} lines fit into "
            f"{PROMPT_CHARS:,} characters; forget some with `treadle memory`"
        )
    return "\n".join(f"- {line.text}" for line in accepted if line.id in kept), problem


def _check_text(text: str) -> str:
    line = escape_invisible(" ".join(text.split()))
    if not line:
        raise ConfigError("the line is empty")
    if len(line) > MAX_LINE_CHARS:
        raise ConfigError(
            f"the line has {len(line)} characters, {MAX_LINE_CHARS} at most: say it in fewer words"
        )
    return line
