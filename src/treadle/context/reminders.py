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
from treadle.context.memory import Memory, MemoryFile, changed, memory_between
from treadle.core.contracts.hook import Answer, Block, HookPoint, Moment
from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.errors import ConfigError
from treadle.core.textfile import read_beginning
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem
from treadle.core.transcript.transcript import Transcript

TODO_ROUNDS = 10
MOST_NAMED = 20
MOST_WATCHED = 256  # files of a session, the newest
MOST_BYTES = 4 << 20  # of a file that is compared
MOST_SESSIONS = 64

MODES = {
    "plan": "nothing may be changed now; look, think, and end with a plan",
    "ask": "what changes something may need the user's approval",
    "accept-edits": "files of the workspace may be edited without a question",
    "auto": "edits, and commands inside the sandbox, need no question",
    "bypass": "nothing needs a question, except what is forbidden altogether",
}

Paths = Callable[[str], Sequence[Path]]  # of a session
Memories = Callable[[str], Sequence[MemoryFile]]


class Reminders:
    """The mutator. `at_stop` is the hook that belongs to it; without it, stopping is free.

    changed_files(session)    paths that are not what the session last saw: each change once
    changed_memory(session)   memory files that the prompt does not hold as they are now
    mode()                    the permission mode of the moment
    """

    def __init__(
        self,
        *,
        changed_files: Paths | None = None,
        changed_memory: Memories | None = None,
        mode: Callable[[], str] | None = None,
        todo_rounds: int = TODO_ROUNDS,
    ) -> None:
        self._changed_files = changed_files
        self._changed_memory = changed_memory
        self._mode = mode
        self._first_mode = mode() if mode is not None else ""
        self._todo_rounds = todo_rounds
        self.at_stop = OpenTodos()

    @property
    def name(self) -> str:
        return "reminders"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    async def mutate(self, scene: Scene) -> Transcript | None:
        view = _seen(scene.transcript)
        due = [
            *self._about_mode(view),
            *self._about_memory(view, scene.session_id),
            *self._about_files(scene.session_id),
            *self._about_todos(view, scene.session_id),
        ]
        # A list of its own: to grow the shared one here would make the loop copy it.
        return Transcript([*scene.transcript, *due]) if due else None

    def _about_mode(self, view: _View) -> list[Item]:
        if self._mode is None:
            return []
        mode = self._mode()
        text = mode_line(mode)
        last = view.said("mode")
        is_known = mode == self._first_mode if last is None else last == text
        return [] if is_known else [NoticeItem(text, "mode")]

    def _about_memory(self, view: _View, session_id: str) -> list[Item]:
        files = self._changed_memory(session_id) if self._changed_memory is not None else ()
        due: list[Item] = []
        for file in files:
            notice = memory_notice(file)
            if view.said(_key(notice)) != notice.text:
                due.append(notice)
        return due

    def _about_files(self, session_id: str) -> list[Item]:
        paths = self._changed_files(session_id) if self._changed_files is not None else ()
        return [NoticeItem(files_line(paths), "changed_files")] if paths else []

    def _about_todos(self, view: _View, session_id: str) -> list[Item]:
        listed = view.last("todos")
        left = open_todos(view.transcript[listed]) if listed is not None else []
        self.at_stop.note(session_id, left)
        if listed is None or not left or (view.last("open_todos") or -1) > listed:
            return []
        if _rounds_after(view.transcript, listed, self._todo_rounds) < self._todo_rounds:
            return []
        text = (
            f"The todo list was not touched for {self._todo_rounds} rounds. Open: "
            f"{_named(left, '; ')}. Bring it up to date if it is not; else go on."
        )
        return [NoticeItem(text, "open_todos")]


class OpenTodos:
    """The hook at `stop`: who worked, and leaves todos open, is asked about them once.

    One who ends with a question wants an answer from the user, and is not held up.
    """

    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self) -> None:
        self._open: OrderedDict[str, list[str]] = OrderedDict()
        self._asked: dict[str, list[str]] = {}

    def note(self, session_id: str, left: list[str]) -> None:
        """What is open in a session, before each model call."""
        self._open[session_id] = left
        self._open.move_to_end(session_id)
        while len(self._open) > MOST_SESSIONS:
            self._asked.pop(self._open.popitem(last=False)[0], None)

    async def ask(self, moment: Moment) -> Answer | None:
        left = self._open.get(moment.session_id)
        asks = str(moment.data.get("last_message", "")).rstrip().endswith("?")
        if not left or not moment.data.get("rounds") or asks:
            return None
        if self._asked.get(moment.session_id) == left:
            return None
        self._asked[moment.session_id] = left
        return Block(
            f"The todo list still has {len(left)} open: {_named(left, '; ')}. Finish them. If they "
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
        seen: Callable[[str], dict[Path, str]],
        digest: Callable[[bytes], str] = lambda data: hashlib.sha256(data).hexdigest(),
    ) -> None:
        self._seen = seen
        self._digest = digest
        self._looks: OrderedDict[str, dict[Path, tuple[str, object]]] = OrderedDict()

    def __call__(self, session_id: str) -> list[Path]:
        looks = self._looks.setdefault(session_id, {})
        self._looks.move_to_end(session_id)
        while len(self._looks) > MOST_SESSIONS:
            self._looks.popitem(last=False)
        found: list[Path] = []
        for path, digest in islice(reversed(self._seen(session_id).items()), MOST_WATCHED):
            look = (digest, _stamp(path))
            before = looks.get(path)
            if before != look:
                looks[path] = look
                # One too large to compare is taken at its size and time, once these are known.
                is_known = before is not None and before[0] == digest
                if self._differs(path, digest, if_large=is_known):
                    found.append(path)
        return found

    def _differs(self, path: Path, digest: str, *, if_large: bool) -> bool:
        try:
            data = read_beginning(path, MOST_BYTES + 1, within=None)
        except (ConfigError, FileNotFoundError):
            return True
        return if_large if len(data) > MOST_BYTES else self._digest(data) != digest


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
        self._strayed: dict[Path, MemoryFile] = {}  # as in the prompt; what went may come back
        self._below: dict[Path, tuple[MemoryFile, ...]] = {}  # by folder, looked at once

    def __call__(self, session_id: str) -> list[MemoryFile]:
        fresh = {file.path: file for file in changed(self._memory).files}
        self._strayed.update({file.path: file for file in self._memory.files if file.path in fresh})
        found = {**self._strayed, **fresh}
        for folder in dict.fromkeys(self._folders(session_id) if self._folders else ()):
            if folder not in self._below:
                known = (file.path for file in self._memory.files)
                self._below[folder] = memory_between(self._root, folder, known).files
            below = self._below[folder]
            newer = {file.path: file for file in changed(Memory(below)).files}
            found.update({file.path: newer.get(file.path, file) for file in below})
        return list(found.values())


# --- what is said ----------------------------------------------------------------------------


def mode_line(mode: str) -> str:
    meaning = MODES.get(mode, "")
    over = "" if mode == "plan" else " Plan mode, if it was on, is over."
    return f"The permission mode is now {mode}{': ' if meaning else ''}{meaning}.{over}"


def memory_notice(file: MemoryFile) -> NoticeItem:
    head = f"What {file.path} says now; it replaces any earlier text of that file:"
    return NoticeItem(f'{head}\n<memory file="{file.path}">\n{file.text}\n</memory>', "memory")


def files_line(paths: Sequence[Path]) -> str:
    names = [f"{path}{_fate(path)}" for path in paths]
    return (
        f"Not as you last saw them: {_named(names, ', ')}. Somebody else, or a command, changed "
        "them on disk. Read them again before you rely on them."
    )


def _fate(path: Path) -> str:
    if path.is_file():
        return ""
    return " (no file any more)" if path.exists() else " (gone)"


def open_todos(item: Item) -> list[str]:
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


def _named(names: Sequence[str], between: str) -> str:
    shown = between.join(names[:MOST_NAMED])
    left = len(names) - MOST_NAMED
    return f"{shown} and {left} more" if left > 0 else shown


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


# --- what the view holds ---------------------------------------------------------------------


class _View:
    """Where in a transcript the things stand that reminders are about."""

    def __init__(self, transcript: Transcript, places: dict[str, list[int]]) -> None:
        self.transcript = transcript
        self._places = places

    def last(self, key: str) -> int | None:
        """The newest place of this key; what only a longer sibling holds does not count."""
        places = self._places.get(key, [])
        count = bisect_left(places, len(self.transcript))
        return places[count - 1] if count else None

    def said(self, key: str) -> str | None:
        place = self.last(key)
        item = self.transcript[place] if place is not None else None
        return item.text if isinstance(item, NoticeItem) else None


def _seen(transcript: Transcript) -> _View:
    """Only what is new since the last time is looked at."""
    scratch = transcript.scratch
    places: dict[str, list[int]] = scratch.setdefault("context.reminders", {})
    start: int = scratch.get("context.reminders.upto", 0)
    for position in range(start, len(transcript)):
        item = transcript[position]
        if isinstance(item, NoticeItem):
            places.setdefault(_key(item), []).append(position)
        elif isinstance(item, AssistantItem) and _writes_todos(item):
            places.setdefault("todos", []).append(position)
    scratch["context.reminders.upto"] = max(start, len(transcript))
    return _View(transcript, places)


def _key(notice: NoticeItem) -> str:
    """Notices of a kind replace each other; those on memory do so for each file."""
    return notice.text.partition("\n")[0] if notice.kind == "memory" else notice.kind


def _writes_todos(reply: AssistantItem) -> bool:
    return any(call.name.lower() in TODO_TOOLS for call in reply.calls)


def _rounds_after(transcript: Transcript, place: int, enough: int) -> int:
    rounds = 0
    for position in range(len(transcript) - 1, place, -1):
        item = transcript[position]
        rounds += isinstance(item, AssistantItem) and bool(item.calls)
        if rounds >= enough:
            break
    return rounds
