"""Reminders for an agent at work here, made when the first of them could be due.

What is reminded of, and how it is said, is context/reminders' business; here they are given what
they ask about: the files that the tools saw, the memory that the prompt holds, the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.hook import HookAnswer, HookPoint, HookInput
from treadle.core.contracts.mutator import MutationPoint, MutationContext
from treadle.core.secrets import redact
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.context.memory import Memory, MemoryFile
    from treadle.context.reminders import Reminders
    from treadle.tools.builtin import BuiltinSource


class LazyReminders:
    """A Mutator before each model call but a session's first; `at_stop` is its Hook."""

    name = "reminders"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(
        self,
        builtin: BuiltinSource,
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
        self._reminders: Reminders | None = None
        self.stop_hook = _StopHook(self)

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if (
            self._reminders is None
            and len(context.transcript) < 2
            and self._mode() == self._first_mode
        ):
            return None  # one message: nothing was seen that could have changed since
        return await self.get_reminders().mutate(context)

    def get_reminders(self) -> Reminders:
        if self._reminders is None:
            from treadle.context.memory import Memory
            from treadle.context.reminders import ChangedFiles, ChangedMemory, Reminders

            folders = self._iter_seen_folders if self._trusted else None
            memory = ChangedMemory(self._memory or Memory(), self._root, folders)
            self._reminders = Reminders(
                changed_files=ChangedFiles(self._get_seen_files),
                changed_memory=lambda session_id: self._redact_files(memory(session_id)),
                mode=_start_with_mode(self._first_mode, self._mode),
            )
        return self._reminders

    def _redact_files(self, files: list[MemoryFile]) -> list[MemoryFile]:
        return [
            msgspec.structs.replace(file, text=redact(self._secrets, file.text)) for file in files
        ]

    @property
    def is_created(self) -> bool:
        return self._reminders is not None

    def _get_seen_files(self, session_id: str) -> dict[Path, str]:
        notes = self._builtin.sessions.get(session_id)
        return {path: seen.digest for path, seen in notes.seen_files.items()}

    def _iter_seen_folders(self, session_id: str) -> Iterator[Path]:
        """Below the root, where the session saw files."""
        for path in self._builtin.sessions.get(session_id).seen_files:
            if path.parent != self._root and path.is_relative_to(self._root):
                yield path.parent


class _StopHook:
    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self, reminders: LazyReminders) -> None:
        self._reminders = reminders

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return (
            await self._reminders.get_reminders().stop_hook.run(hook_input)
            if self._reminders.is_created
            else None
        )


def _start_with_mode(first: str, mode: Callable[[], str]) -> Callable[[], str]:
    """The first answer is the mode that the prompt was written for."""
    answers = iter((first,))
    return lambda: next(answers, None) or mode()
