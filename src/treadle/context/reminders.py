"""Reminders: what changed around the model since it last looked, appended where it helps.

    changed_files    a file that was read or written is another one on disk now
    memory           a memory file changed, or one holds for the folder that is worked in
    mode             the user changed what may happen without a question
    open_todos       the todo list has not been touched for many rounds; or the model wants to stop

Each is said once for a change, as a notice at the end: the cached beginning of a request stays as
it is. What was said is read off the view, so a reminder that a compaction took away is said again
where it still holds. Finished background tasks are notices of the loop's own. Files and tools are
others' business: who puts an agent together passes functions.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from treadle.context.compaction.pins import TODO_TOOLS
from treadle.context.memory import Memory, MemoryFile, read_nested_memory, reread_changed
from treadle.core.contracts.hook import Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.untrusted_files import read_prefix

TODO_ROUNDS = 10
MAX_LISTED = 20
MAX_WATCHED_FILES = 256  # files of a session, the newest
MAX_COMPARED_BYTES = 4 << 20  # of a file that is compared
MAX_SESSIONS = 64

MODE_DESCRIPTIONS = {
    "plan": "nothing may be changed now; look, think, and end with a plan",
    "ask": "what changes something may need the user's approval",
    "accept-edits": "files of the workspace may be edited without a question",
    "auto": "edits, and commands inside the sandbox, need no question",
    "bypass": "nothing needs a question, except what is forbidden altogether",
}

ListSessionPaths = Callable[[str], Sequence[Path]]  # of a session
ListSessionMemory = Callable[[str], Sequence[MemoryFile]]


class Reminders:
    """The mutator. `at_stop` is the hook that belongs to it; without it, stopping is free.

    changed_files(session)    paths that are not what the session last saw: each change once
    changed_memory(session)   memory files that the prompt does not hold as they are now
    mode()                    the permission mode of the moment
    """

    def __init__(
        self,
        *,
        changed_files: ListSessionPaths | None = None,
        changed_memory: ListSessionMemory | None = None,
        mode: Callable[[], str] | None = None,
        todo_rounds: int = TODO_ROUNDS,
    ) -> None:
        self._changed_files = changed_files
        self._changed_memory = changed_memory
        self._mode = mode
        self._initial_mode = mode() if mode is not None else ""
        self._todo_rounds = todo_rounds
        self.stop_hook = OpenTodosHook()

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
            *self._memory_notices(view, context.session_id),
            *self._file_notices(context.session_id),
            *self._todo_notices(view, context.session_id),
        ]
        # A list of its own: to grow the shared one here would make the loop copy it.
        return Transcript([*context.transcript, *due]) if due else None

    def _mode_notices(self, view: _NoticeIndex) -> list[Item]:
        if self._mode is None:
            return []
        mode = self._mode()
        text = format_mode(mode)
        last = view.last_text("mode")
        is_known = mode == self._initial_mode if last is None else last == text
        return [] if is_known else [NoticeItem(text, "mode")]

    def _memory_notices(self, view: _NoticeIndex, session_id: str) -> list[Item]:
        files = self._changed_memory(session_id) if self._changed_memory is not None else ()
        due: list[Item] = []
        for file in files:
            notice = make_memory_notice(file)
            if view.last_text(_notice_key(notice)) != notice.text:
                due.append(notice)
        return due

    def _file_notices(self, session_id: str) -> list[Item]:
        paths = self._changed_files(session_id) if self._changed_files is not None else ()
        return [NoticeItem(format_changed_files(paths), "changed_files")] if paths else []

    def _todo_notices(self, view: _NoticeIndex, session_id: str) -> list[Item]:
        listed = view.last_position("todos")
        left = list_open_todos(view.transcript[listed]) if listed is not None else []
        self.stop_hook.update(session_id, left)
        if listed is None or not left or (view.last_position("open_todos") or -1) > listed:
            return []
        if _count_rounds_after(view.transcript, listed, self._todo_rounds) < self._todo_rounds:
            return []
        text = (
            f"The todo list was not touched for {self._todo_rounds} rounds. Open: "
            f"{_join_names(left, '; ')}. Bring it up to date if it is not; else go on."
        )
        return [NoticeItem(text, "open_todos")]


class OpenTodosHook:
    """The hook at `stop`: who worked, and leaves todos open, is asked about them once.

    One who ends with a question wants an answer from the user, and is not held up.
    """

    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self) -> None:
        self._open_todos: OrderedDict[str, list[str]] = OrderedDict()
        self._reminded: dict[str, list[str]] = {}

    def update(self, session_id: str, open_todos: list[str]) -> None:
        """What is open in a session, before each model call."""
        self._open_todos[session_id] = open_todos
        self._open_todos.move_to_end(session_id)
        while len(self._open_todos) > MAX_SESSIONS:
            self._reminded.pop(self._open_todos.popitem(last=False)[0], None)

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        left = self._open_todos.get(hook_input.session_id)
        asks = str(hook_input.data.get("last_message", "")).rstrip().endswith("?")
        if not left or not hook_input.data.get("rounds") or asks:
            return None
        if self._reminded.get(hook_input.session_id) == left:
            return None
        self._reminded[hook_input.session_id] = left
        return Block(
            f"The todo list still has {len(left)} open: {_join_names(left, '; ')}. Finish them. If they "
            "are done or no longer wanted, set the list right and end; if you are stuck, say why."
        )


# --- what has changed ------------------------------------------------------------------------


class ChangedFiles:
    """Files on disk that are not what a session last saw; a change is reported once.

    `seen(session)` gives the digest of each file as the session last read or wrote it, the newest
    last. A file is read again only when its size or time says that it may be another one; what is
    no file any more is never read, and has changed.
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
        looks = self._stamps.setdefault(session_id, {})
        self._stamps.move_to_end(session_id)
        while len(self._stamps) > MAX_SESSIONS:
            self._stamps.popitem(last=False)
        found: list[Path] = []
        for path, digest in islice(
            reversed(self._seen_digests(session_id).items()), MAX_WATCHED_FILES
        ):
            look = (digest, _file_stamp(path))
            before = looks.get(path)
            if before != look:
                looks[path] = look
                # One too large to compare is taken at its size and time, once these are known.
                is_known = before is not None and before[0] == digest
                if self._has_changed(path, digest, if_large=is_known):
                    found.append(path)
        return found

    def _has_changed(self, path: Path, digest: str, *, if_large: bool) -> bool:
        try:
            data = read_prefix(path, MAX_COMPARED_BYTES + 1, within=None)
        except (ConfigError, FileNotFoundError):
            return True
        return if_large if len(data) > MAX_COMPARED_BYTES else self._digest(data) != digest


class ChangedMemory:
    """Memory files that the prompt does not hold as they are now.

    Those that changed since the prompt was built; and with `folders(session)`, those of folders
    below the root in which the session works.
    """

    def __init__(
        self,
        memory: Memory,
        root: Path,
        folders: Callable[[str], Iterable[Path]] | None = None,
    ) -> None:
        self._memory = memory
        self._root = root
        self._folders = folders
        self._changed_originals: dict[
            Path, MemoryFile
        ] = {}  # as in the prompt; what went may come back
        self._nested_files: dict[Path, tuple[MemoryFile, ...]] = {}  # by folder, looked at once

    def __call__(self, session_id: str) -> list[MemoryFile]:
        fresh = {file.path: file for file in reread_changed(self._memory).files}
        self._changed_originals.update(
            {file.path: file for file in self._memory.files if file.path in fresh}
        )
        found = {**self._changed_originals, **fresh}
        for folder in dict.fromkeys(self._folders(session_id) if self._folders else ()):
            if folder not in self._nested_files:
                known = (file.path for file in self._memory.files)
                self._nested_files[folder] = read_nested_memory(self._root, folder, known).files
            below = self._nested_files[folder]
            newer = {file.path: file for file in reread_changed(Memory(below)).files}
            found.update({file.path: newer.get(file.path, file) for file in below})
        return list(found.values())


# --- what is said ----------------------------------------------------------------------------


def format_mode(mode: str) -> str:
    meaning = MODE_DESCRIPTIONS.get(mode, "")
    over = "" if mode == "plan" else " Plan mode, if it was on, is over."
    return f"The permission mode is now {mode}{': ' if meaning else ''}{meaning}.{over}"


def make_memory_notice(file: MemoryFile) -> NoticeItem:
    head = f"What {file.path} says now; it replaces any earlier text of that file:"
    return NoticeItem(f'{head}\n<memory file="{file.path}">\n{file.text}\n</memory>', "memory")


def format_changed_files(paths: Sequence[Path]) -> str:
    names = [f"{path}{_describe_missing(path)}" for path in paths]
    return (
        f"Not as you last saw them: {_join_names(names, ', ')}. Somebody else, or a command, changed "
        "them on disk. Read them again before you rely on them."
    )


def _describe_missing(path: Path) -> str:
    if path.is_file():
        return ""
    return " (no file any more)" if path.exists() else " (gone)"


def list_open_todos(item: Item) -> list[str]:
    """What is open in the list that this item holds: a call of the tool, or what was pinned."""
    if isinstance(item, NoticeItem):
        lines = [line.strip() for line in item.text.splitlines()]
        return [line[4:] for line in lines if line.startswith(("[ ] ", "[>] "))]
    if not isinstance(item, AssistantItem):
        return []
    call = next(call for call in reversed(item.calls) if call.name.lower() in TODO_TOOLS)
    listed = (call.arguments or {}).get("todos")
    todos = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [str(one.get("content", "")) for one in todos if one.get("status") != "completed"]


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


# --- what the view holds ---------------------------------------------------------------------


class _NoticeIndex:
    """Where in a transcript the things stand that reminders are about."""

    def __init__(self, transcript: Transcript, positions: dict[str, list[int]]) -> None:
        self.transcript = transcript
        self._positions = positions

    def last_position(self, key: str) -> int | None:
        """The newest place of this key; what only a longer sibling holds does not count."""
        places = self._positions.get(key, [])
        count = bisect_left(places, len(self.transcript))
        return places[count - 1] if count else None

    def last_text(self, key: str) -> str | None:
        place = self.last_position(key)
        item = self.transcript[place] if place is not None else None
        return item.text if isinstance(item, NoticeItem) else None


def _index_notices(transcript: Transcript) -> _NoticeIndex:
    """Only what is new since the last time is looked at."""
    scratch = transcript.cache
    places: dict[str, list[int]] = scratch.setdefault("context.reminders", {})
    start: int = scratch.get("context.reminders.upto", 0)
    for position in range(start, len(transcript)):
        item = transcript[position]
        if isinstance(item, NoticeItem):
            places.setdefault(_notice_key(item), []).append(position)
        elif isinstance(item, AssistantItem) and _has_todo_call(item):
            places.setdefault("todos", []).append(position)
    scratch["context.reminders.upto"] = max(start, len(transcript))
    return _NoticeIndex(transcript, places)


def _notice_key(notice: NoticeItem) -> str:
    """Notices of a kind replace each other; those on memory do so for each file."""
    return notice.text.partition("\n")[0] if notice.kind == "memory" else notice.kind


def _has_todo_call(reply: AssistantItem) -> bool:
    return any(call.name.lower() in TODO_TOOLS for call in reply.calls)


def _count_rounds_after(transcript: Transcript, start: int, limit: int) -> int:
    rounds = 0
    for position in range(len(transcript) - 1, start, -1):
        item = transcript[position]
        rounds += isinstance(item, AssistantItem) and bool(item.calls)
        if rounds >= limit:
            break
    return rounds
