"""Reminders: notices to the model about changes around it.

    changed_files    a file that the session read or wrote has changed on disk
    memory           a memory file changed, or one applies to the folder of the work
    mode             the session is in plan mode, or the user changed the permission mode
    attendance       the user can answer questions now, or cannot any more
    open_todos       the todo list of this turn is stale

Each change gives one notice at the end of the view, so the cached prefix of the request stays
valid. Which notices exist is read off the view by their `data`: one that a compaction removed is
appended again while it still applies. Notices of finished background tasks come from the loop.
Files and tools arrive as functions; apps/assembly passes them.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from treadle.context.compaction.pins import TODO_TOOLS, list_open_todos
from treadle.context.memory import (
    CheckRead,
    Memory,
    MemoryFile,
    allow_read,
    read_nested_memory,
    reread_changed,
)
from treadle.context.prompt import make_attendance_notice
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.untrusted_files import read_prefix

TODO_ROUNDS = 10
MAX_LISTED = 20
MAX_WATCHED_FILES = 256  # the newest of a session
MAX_COMPARED_BYTES = 4 << 20  # larger files are compared by size and time
MAX_SESSIONS = 64

MODE_DESCRIPTIONS = {
    "plan": "change nothing; look, think, and show a plan that names files and steps with "
    "present_plan, or in your answer if you do not have that tool. Then the user decides",
    "ask": "actions that change something may need the user's approval",
    "accept-edits": "files of the workspace may be edited without approval",
    "auto": "edits, and commands inside the sandbox, need no approval",
    "bypass": "nothing needs approval; only forbidden actions are denied",
}

ListSessionPaths = Callable[[str], Sequence[Path]]  # by session id
ListSessionMemory = Callable[[str], Sequence[MemoryFile]]


class Reminders:
    """The mutator. No request is made for a reminder: it goes with the next one.

    changed_files(session)    paths that changed since the session last saw them, each change once
    changed_memory(session)   memory files whose current text is not in the prompt
    mode()                    the current permission mode
    is_attended               whether the user can answer questions; `began_attended`: whether the
                              instructions assume so
    """

    def __init__(
        self,
        *,
        changed_files: ListSessionPaths | None = None,
        changed_memory: ListSessionMemory | None = None,
        mode: Callable[[], str] | None = None,
        is_attended: bool = True,
        began_attended: bool = True,
        todo_rounds: int = TODO_ROUNDS,
    ) -> None:
        self._is_attended = is_attended
        self._began_attended = began_attended
        self._changed_files = changed_files
        self._changed_memory = changed_memory
        self._mode = mode
        self._initial_mode = mode() if mode is not None else ""
        self._todo_rounds = todo_rounds

    @property
    def name(self) -> str:
        return "reminders"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        view = _index_notices(context.transcript)
        due = [
            *self._mode_notices(view),
            *self._attendance_notices(view),
            *await self._memory_notices(view, context),
            *await self._file_notices(context),
            *self._todo_notices(view),
        ]
        # A list of its own: to grow the shared one here would make the loop copy it.
        return Transcript([*context.transcript, *due]) if due else None

    def _mode_notices(self, view: _NoticeIndex) -> list[Item]:
        if self._mode is None:
            return []
        mode = self._mode()
        last = view.last_data("mode")
        known_mode = self._initial_mode if last is None else last.get("mode")
        is_known = mode == known_mode and not (last is None and mode == "plan")
        return [] if is_known else [make_mode_notice(mode)]

    def _attendance_notices(self, view: _NoticeIndex) -> list[Item]:
        last = view.last_data("attendance")
        known = self._began_attended if last is None else last.get("attended")
        return [] if known == self._is_attended else [make_attendance_notice(self._is_attended)]

    async def _memory_notices(self, view: _NoticeIndex, context: MutationContext) -> list[Item]:
        changed = self._changed_memory
        files = changed(context.session_id) if changed is not None else ()
        due: list[Item] = []
        for file in files:
            notice = make_memory_notice(file)
            if view.last_data(_notice_key(notice)) != notice.data:
                due.append(notice)
                await context.run_hooks("instructions_loaded", file.describe_load())
        return due

    async def _file_notices(self, context: MutationContext) -> list[Item]:
        changed = self._changed_files
        paths = changed(context.session_id) if changed is not None else ()
        for path in paths:
            event = "change" if path.is_file() else "unlink"
            await context.run_hooks("file_changed", {"file_path": str(path), "event": event})
        return [NoticeItem(format_changed_files(paths), "changed_files")] if paths else []

    def _todo_notices(self, view: _NoticeIndex) -> list[Item]:
        """About a list that the model made in this turn, once, and not while it plans."""
        listed = view.last_position("todos")
        if listed is None or (self._mode is not None and self._mode() == "plan"):
            return []
        left = view.list_open_todos(listed)
        if not left or (view.last_position("open_todos") or -1) > listed:
            return []
        if not _has_rounds_after(view.transcript, listed, self._todo_rounds):
            return []
        text = (
            f"The todo list has not changed for {self._todo_rounds} rounds. Open: "
            f"{_join_names(left, '; ')}. Update it if it is out of date; otherwise continue."
        )
        return [NoticeItem(text, "open_todos")]


# --- changes ---------------------------------------------------------------------------------


class ChangedFiles:
    """Files that changed on disk since a session last saw them; each change is reported once.

    `seen_digests(session)` gives the digest of each file as the session last read or wrote it, the
    newest last. A file is read again only when its size or time changed. A path that is no longer
    a regular file counts as changed and is not read.
    """

    def __init__(
        self,
        seen_digests: Callable[[str], dict[Path, str]],
        digest: Callable[[bytes], str] = lambda data: hashlib.sha256(data).hexdigest(),
    ) -> None:
        self._seen_digests = seen_digests
        self._digest = digest
        self._stamps: OrderedDict[str, dict[Path, tuple[str, object]]] = OrderedDict()

    def __call__(self, session_id: str) -> list[Path]:
        stamps = self._stamps.setdefault(session_id, {})
        self._stamps.move_to_end(session_id)
        while len(self._stamps) > MAX_SESSIONS:
            self._stamps.popitem(last=False)
        changed: list[Path] = []
        seen = reversed(self._seen_digests(session_id).items())
        for path, digest in islice(seen, MAX_WATCHED_FILES):
            stamp = (digest, _file_stamp(path))
            before = stamps.get(path)
            if before == stamp:
                continue
            stamps[path] = stamp
            # A file too large to compare counts as changed once an earlier stamp is known.
            is_known = before is not None and before[0] == digest
            if self._has_changed(path, digest, if_large=is_known):
                changed.append(path)
        return changed

    def _has_changed(self, path: Path, digest: str, *, if_large: bool) -> bool:
        try:
            data = read_prefix(path, MAX_COMPARED_BYTES + 1, within=None)
        except (ConfigError, FileNotFoundError):
            return True
        return if_large if len(data) > MAX_COMPARED_BYTES else self._digest(data) != digest


class ChangedMemory:
    """Memory files whose current text is not in the prompt.

    Those that changed since the prompt was built, with `folders(session)` those of the subfolders
    in which the session works, and with `files(session)` those of the folders of these files and
    the rules about them. `more`, `check_read`: see `read_memory`.
    """

    def __init__(
        self,
        memory: Memory,
        root: Path,
        folders: Callable[[str], Iterable[Path]] | None = None,
        *,
        files: Callable[[str], Iterable[Path]] | None = None,
        more: bool = False,
        check_read: CheckRead = allow_read,
    ) -> None:
        self._memory = memory
        self._check_read = check_read
        self._root = root
        self._list_folders = folders
        self._list_files = files
        self._more = more
        # As in the prompt: a file may change back.
        self._changed_originals: dict[Path, MemoryFile] = {}
        self._nested: dict[Path, Memory] = {}  # by folder, read once
        self._rules_by_path: dict[Path, tuple[MemoryFile, ...]] = {}

    def __call__(self, session_id: str) -> list[MemoryFile]:
        fresh = {file.path: file for file in self._reread(self._memory).files}
        originals = [file for file in self._memory.files if file.path in fresh]
        self._changed_originals.update({file.path: file for file in originals})
        files = {**self._changed_originals, **fresh}
        paths = list(self._list_files(session_id)) if self._list_files else []
        folders = list(self._list_folders(session_id)) if self._list_folders else []
        added: dict[Path, MemoryFile] = {}
        for folder in dict.fromkeys([*folders, *(path.parent for path in paths)]):
            added.update({file.path: file for file in self._read_nested(folder).files})
        for path in paths:
            added.update({file.path: file for file in self._find_rules(path)})
        newer = {file.path: file for file in self._reread(Memory(tuple(added.values()))).files}
        return list({**files, **added, **newer}.values())

    def _reread(self, memory: Memory) -> Memory:
        return reread_changed(memory, self._check_read)

    def _read_nested(self, folder: Path) -> Memory:
        if folder == self._root:
            return Memory()
        if folder not in self._nested:
            known = [file.path for file in self._memory.files]
            known += [rule.file.path for rule in self._memory.path_rules]
            nested = read_nested_memory(
                self._root, folder, known, more=self._more, check_read=self._check_read
            )
            self._nested[folder] = nested
        return self._nested[folder]

    def _find_rules(self, path: Path) -> tuple[MemoryFile, ...]:
        """The rules about a file; compared with their patterns once."""
        if path not in self._rules_by_path:
            rules = (*self._memory.path_rules, *self._read_nested(path.parent).path_rules)
            matching = tuple(rule.file for rule in rules if rule.patterns.matches(path))
            self._rules_by_path[path] = matching
        return self._rules_by_path[path]


# --- the notices -----------------------------------------------------------------------------


def make_mode_notice(mode: str) -> NoticeItem:
    meaning = MODE_DESCRIPTIONS.get(mode, "")
    plan_over = "" if mode == "plan" else " If plan mode was on, it is over."
    text = f"The permission mode is now {mode}{': ' if meaning else ''}{meaning}.{plan_over}"
    return NoticeItem(text, "mode", data={"mode": mode})


def make_memory_notice(file: MemoryFile) -> NoticeItem:
    head = f"Instructions, as {file.path} has them now; they replace any earlier text of that file:"
    text = f'{head}\n<memory file="{file.path}">\n{file.text}\n</memory>'
    return NoticeItem(text, "memory", data=_memory_data(str(file.path), file.text))


def _memory_data(path: str, text: str) -> dict[str, str]:
    return {"path": path, "sha256": hashlib.sha256(text.encode(errors="replace")).hexdigest()}


def format_changed_files(paths: Sequence[Path]) -> str:
    names = [f"{path}{_describe_missing(path)}" for path in paths]
    return (
        f"Changed on disk since you last saw them: {_join_names(names, ', ')}. The user, another "
        "program or a command changed them. Read them again before you rely on them."
    )


def _describe_missing(path: Path) -> str:
    if path.is_file():
        return ""
    return " (no longer a file)" if path.exists() else " (deleted)"


def _join_names(names: Sequence[str], separator: str) -> str:
    shown = separator.join(names[:MAX_LISTED])
    left = len(names) - MAX_LISTED
    return f"{shown} and {left} more" if left > 0 else shown


def _file_stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


# --- notices in the view ---------------------------------------------------------------------


class _NoticeIndex:
    """The positions of notices and of todo lists in a transcript, by key.

    A todo list is where its result is: one that was refused is none. `todo_calls` are the calls, by
    the positions of their results.
    """

    def __init__(
        self,
        transcript: Transcript,
        positions: dict[str, list[int]],
        todo_calls: dict[int, ToolCall],
    ) -> None:
        self.transcript = transcript
        self._positions = positions
        self._todo_calls = todo_calls

    def list_open_todos(self, position: int) -> list[str]:
        item = self.transcript[position]
        call = self._todo_calls.get(position)
        if call is not None:
            return list_open_todos(call)
        return list_open_todos(item) if isinstance(item, NoticeItem) else []

    def last_position(self, key: str) -> int | None:
        """The newest one in this transcript; a longer one may share the positions."""
        positions = self._positions.get(key, [])
        count = bisect_left(positions, len(self.transcript))
        return positions[count - 1] if count else None

    def last_data(self, key: str) -> dict[str, Any] | None:
        """The data of the newest notice with this key."""
        position = self.last_position(key)
        item = self.transcript[position] if position is not None else None
        return _notice_data(item) if isinstance(item, NoticeItem) else None


def _index_notices(transcript: Transcript) -> _NoticeIndex:
    """Reads only the items that are new since the last call."""
    cache = transcript.cache
    positions: dict[str, list[int]] = cache.setdefault("context.reminders", {})
    requested: dict[str, ToolCall] = cache.setdefault("context.reminders.requested", {})
    todo_calls: dict[int, ToolCall] = cache.setdefault("context.reminders.todos", {})
    start: int = cache.get("context.reminders.upto", 0)
    for position in range(start, len(transcript)):
        item = transcript[position]
        if isinstance(item, NoticeItem):
            positions.setdefault(_notice_key(item), []).append(position)
        elif isinstance(item, AssistantItem):
            requested |= {call.id: call for call in item.calls if call.name.lower() in TODO_TOOLS}
        elif isinstance(item, ToolResultItem) and item.call_id in requested:
            call = requested.pop(item.call_id)
            if not item.is_error:
                positions.setdefault("todos", []).append(position)
                todo_calls[position] = call
    cache["context.reminders.upto"] = max(start, len(transcript))
    return _NoticeIndex(transcript, positions, todo_calls)


def _notice_key(notice: NoticeItem) -> str:
    """A notice replaces the earlier one of its kind; on memory, the one about the same file."""
    return f"memory {_notice_data(notice).get('path')}" if notice.kind == "memory" else notice.kind


def _notice_data(notice: NoticeItem) -> dict[str, Any]:
    return notice.data or _data_of_old_notice(notice)


# Logs of 0.1 hold only the text of a notice.
_OLD_MODE = re.compile(r"The permission mode is now ([\w-]+)")
_OLD_MEMORY = re.compile(r'[^\n]*\n<memory file="([^\n]*)">\n(.*)\n</memory>', re.DOTALL)


def _data_of_old_notice(notice: NoticeItem) -> dict[str, Any]:
    if notice.kind == "mode" and (mode := _OLD_MODE.match(notice.text)):
        return {"mode": mode[1]}
    if notice.kind == "memory" and (memory := _OLD_MEMORY.fullmatch(notice.text)):
        return _memory_data(memory[1], memory[2])
    return {}


def _has_rounds_after(transcript: Transcript, start: int, wanted: int) -> bool:
    """Whether there were so many rounds since, all of them in this turn."""
    rounds = 0
    for position in range(start + 1, len(transcript)):
        item = transcript[position]
        if isinstance(item, UserItem):
            return False
        rounds += isinstance(item, AssistantItem) and bool(item.calls)
    return rounds >= wanted
