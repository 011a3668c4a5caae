"""Reminders for an agent at work here, made when the first of them could be due.

What is reminded of, and how it is said, is context/reminders' business; here they are given what
they ask about: the files that the tools saw, the memory that the prompt holds, the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.hook import Answer, HookPoint, Moment
from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.secrets import without
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.context.memory import Memory, MemoryFile
    from treadle.context.reminders import Reminders
    from treadle.tools.builtin import Builtin


class LateReminders:
    """A Mutator before each model call but a session's first; `at_stop` is its Hook."""

    name = "reminders"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(
        self,
        builtin: Builtin,
        root: Path,
        memory: Memory | None,
        mode: Callable[[], str],
        *,
        trusted: bool,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._builtin = builtin
        self._root = root
        self._memory = memory
        self._trusted = trusted
        self._secrets = secrets
        self._mode = mode
        self._first_mode = mode()
        self._made: Reminders | None = None
        self.at_stop = _AtStop(self)

    async def mutate(self, scene: Scene) -> Transcript | None:
        if self._made is None and len(scene.transcript) < 2 and self._mode() == self._first_mode:
            return None  # one message: nothing was seen that could have changed since
        return await self.reminders().mutate(scene)

    def reminders(self) -> Reminders:
        if self._made is None:
            from treadle.context.memory import Memory
            from treadle.context.reminders import ChangedFiles, ChangedMemory, Reminders

            folders = self._folders if self._trusted else None
            memory = ChangedMemory(self._memory or Memory(), self._root, folders)
            self._made = Reminders(
                changed_files=ChangedFiles(self._seen),
                changed_memory=lambda session_id: self._discreet(memory(session_id)),
                mode=_said_first(self._first_mode, self._mode),
            )
        return self._made

    def _discreet(self, files: list[MemoryFile]) -> list[MemoryFile]:
        return [
            msgspec.structs.replace(file, text=without(self._secrets, file.text)) for file in files
        ]

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def _seen(self, session_id: str) -> dict[Path, str]:
        notes = self._builtin.desk.notes(session_id)
        return {path: seen.digest for path, seen in notes.seen.items()}

    def _folders(self, session_id: str) -> Iterator[Path]:
        """Below the root, where the session saw files."""
        for path in self._builtin.desk.notes(session_id).seen:
            if path.parent != self._root and path.is_relative_to(self._root):
                yield path.parent


class _AtStop:
    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self, late: LateReminders) -> None:
        self._late = late

    async def ask(self, moment: Moment) -> Answer | None:
        return await self._late.reminders().at_stop.ask(moment) if self._late.is_made else None


def _said_first(first: str, mode: Callable[[], str]) -> Callable[[], str]:
    """The first answer is the mode that the prompt was written for."""
    answers = iter((first,))
    return lambda: next(answers, None) or mode()
