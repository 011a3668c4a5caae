"""What a list of sessions shows, gathered from the journals and remembered in one index file.

A summary is read off the lines without decoding most of them, and goes on where it stopped when
the journal has grown. The index is only a memory of that: what it says is believed while the
journal has the length and the time that it had, and it can be deleted at any moment.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.core.transcript.entries import ItemAdded, Parked, Spent, TurnEnded
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.usage import Usage
from treadle.sessions.files import LocalFiles
from treadle.sessions.lines import Header, Parent, decode, parse
from treadle.sessions.reading import FIRST, read_header, segments

INDEX = "index.jsonl"
TITLE_CHARS = 80
_KIND = re.compile(
    rb'\{"c":"[0-9a-f]{8}","n":(\d+),"e":\d+,"t":(-?[\d.]+),[^{]{0,120}?"kind":"(\w+)"'
)
_INTERESTING = {b"turn", b"usage", b"end", b"parked", b"item", b"rewind"}


class Mark(msgspec.Struct, frozen=True):
    """How far a journal has been read, and how to know that it is still the same."""

    segment: int = 0
    offset: int = 0
    bytes: int = -1
    modified: int = -1


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session, in a line. `state` is what its log says: done, open, parked, or why it ended."""

    id: str
    project: str
    folder: str = ""
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    turns: int = 0
    entries: int = 0
    usage: Usage = Usage()
    state: str = "empty"
    parked: Parked | None = None
    parent: Parent | None = None
    format: int = 1
    mark: Mark = Mark()

    @property
    def key(self) -> str:
        return f"{self.project}/{self.id}"


def summarise(place: Path, known: Summary | None = None, project: str = "") -> Summary:
    """What is in a journal; `known` is what an earlier look gave, and saves reading it again."""
    files = segments(place)
    status = files[-1].stat()
    if known is not None and known.mark.segment == len(files):
        known = known if known.mark.offset <= status.st_size else None  # cut since then
    if known is None or known.mark.segment > len(files):
        header = read_header(place) or Header(0, place.name, 0.0)
        known = Summary(
            place.name,
            project or place.parent.name,
            header.folder,
            created=header.created,
            parent=header.parent,
            format=header.format,
        )
    gathered = _Gathering(known)
    offset = known.mark.offset
    for number in range(max(known.mark.segment, 1), len(files) + 1):
        offset = gathered.read(files[number - 1], offset if number == known.mark.segment else 0)
    mark = Mark(len(files), offset, status.st_size, status.st_mtime_ns)
    return gathered.summary(max(known.updated, status.st_mtime_ns / 1e9), mark)


class _Gathering:
    """A summary that grows line by line."""

    def __init__(self, known: Summary) -> None:
        self._known = known
        self._title = known.title
        self._turns = known.turns
        self._entries = known.entries
        self._usage = known.usage
        self._state = known.state
        self._parked = known.parked

    def read(self, path: Path, offset: int) -> int:
        """Take in the whole lines behind `offset`; where the last of them ends."""
        with path.open("rb", buffering=1 << 20) as file:
            file.seek(offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    break
                offset += len(raw)
                head = _KIND.match(raw)
                if head is None or head[3] not in _INTERESTING:
                    continue
                self._entries = max(self._entries, int(head[1]))
                self._take(head[3], raw, path.parent)
        return offset

    def _take(self, kind: bytes, raw: bytes, place: Path) -> None:
        if kind == b"item":
            self._parked = None
            if not self._title and b'"item":{"type":"user"' in raw[:400]:
                self._title = _title(raw, place)
            return
        if kind == b"turn":
            self._turns, self._state, self._parked = self._turns + 1, "open", None
            return
        try:
            entry = decode(raw)
        except msgspec.DecodeError:
            return
        if isinstance(entry, Spent):
            self._usage = self._usage + entry.usage
        elif isinstance(entry, TurnEnded):
            self._state = "done" if entry.reason == "end_turn" else entry.reason
            self._parked = None
        elif isinstance(entry, Parked):
            self._parked = entry

    def summary(self, updated: float, mark: Mark) -> Summary:
        return msgspec.structs.replace(
            self._known,
            title=self._title,
            turns=self._turns,
            entries=self._entries,
            usage=self._usage,
            state=self._state,
            parked=self._parked,
            updated=updated,
            mark=mark,
        )


def _title(raw: bytes, place: Path) -> str:
    from treadle.sessions.folding import with_blob

    whole = parse(raw)
    try:
        entry = with_blob(decode(raw), whole.blob if whole is not None else "", place)
    except msgspec.DecodeError:
        return ""
    if not isinstance(entry, ItemAdded) or not isinstance(entry.item, UserItem):
        return ""
    line = " ".join(entry.item.text.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


class Index:
    """The memory of summaries: a file of lines, the last one of a session counts.

    Child agents' sessions are remembered in another file than those that people look for first.
    """

    def __init__(self, root: Path, name: str = INDEX) -> None:
        self._root = root
        self._path = root / name
        self._lines = 0
        self.known: dict[str, Summary] = self._load()

    def fresh(self, place: Path, status: os.stat_result) -> Summary | None:
        """What is known of this journal, if it has not changed since."""
        known = self.known.get(self._key(place))
        if known is None or known.mark.segment != 1:
            return None
        same = (known.mark.bytes, known.mark.modified) == (status.st_size, status.st_mtime_ns)
        return known if same else None

    def look(self, place: Path) -> Summary:
        """The summary as of now, from memory where that is right."""
        key = self._key(place)
        return summarise(place, self.known.get(key), key.rpartition("/")[0])

    def _key(self, place: Path) -> str:
        return str(place)[len(str(self._root)) + 1 :]

    def remember(self, summaries: Iterable[Summary]) -> None:
        """Add these; a disk that takes no more costs only the memory."""
        new = [summary for summary in summaries if self.known.get(summary.key) != summary]
        if not new:
            return
        self.known.update({summary.key: summary for summary in new})
        try:
            if self._lines > 2 * len(self.known) + 1000:
                self._rewrite()
            else:
                self._append(new)
        except OSError:
            return

    def _append(self, new: list[Summary]) -> None:
        files = LocalFiles()
        files.make_folder(self._root)
        fd = files.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, b"".join([msgspec.json.encode(summary) + b"\n" for summary in new]))
        finally:
            os.close(fd)
        self._lines += len(new)

    def _rewrite(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fd = LocalFiles().open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(fd, "wb") as file:
            for key, summary in self.known.items():
                if (self._root / key / FIRST).exists():
                    file.write(msgspec.json.encode(summary) + b"\n")
        draft.replace(self._path)

    def _load(self) -> dict[str, Summary]:
        found: dict[str, Summary] = {}
        decoder = msgspec.json.Decoder(Summary)
        try:
            data = self._path.read_bytes()
        except OSError:
            return found
        for line in data.split(b"\n"):
            if not line:
                continue
            self._lines += 1
            try:
                summary = decoder.decode(line)
            except msgspec.DecodeError:
                continue
            found[summary.key] = summary
        return found
