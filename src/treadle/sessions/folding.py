"""Lines to the view that a driver goes on from, without holding the whole log.

The core's own fold is shown stand-ins for the items; a line is decoded only if its item is still
in the view when the log has been read. A compacted session of a gigabyte costs what its view
costs. A view of more than VIEW_BYTES, which no model could be shown, keeps its newest part whole;
of older items only the beginning is in the view, and all of it in the log.
"""

from __future__ import annotations

import gc
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import Entry, ItemAdded, Queued, View, fold
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.sessions.blobs import Blobs
from treadle.sessions.files import LocalFiles
from treadle.sessions.lines import Line, decode, decode_content, with_content
from treadle.sessions.reading import Reading

VIEW_BYTES = 96 << 20
SHOWN_OF_OLD = 400  # characters
_SMALL = 1024  # bytes of a line that is not worth a stand-in

_RESULT = re.compile(
    rb'\{[^{]*"kind":"item","item":\{"type":"tool_result",'
    rb'"call_id":"([^"\\]*)","name":"([^"\\]*)","content":'
)
_REPLY = re.compile(rb'\{[^{]*"kind":"item","item":\{"type":"assistant",')
_MESSAGE = re.compile(rb'\{[^{]*"kind":"item","item":\{"type":"user",')


class _Held:
    """A long line whose item may be wanted: its bytes, or the number to find it again by."""

    __slots__ = ("blob", "place", "raw", "seq", "short", "size")

    def __init__(self, line: Line, place: Path) -> None:
        self.seq = line.seq
        self.size = len(line.raw) + line.blob_bytes
        self.raw: bytes | None = line.raw
        self.short: Item | None = None
        self.blob = line.blob
        self.place = place


class Folding:
    """One fold over a session's lines."""

    def __init__(self, reading: Reading, view_bytes: int = VIEW_BYTES) -> None:
        self._reading = reading
        self._limit = view_bytes
        self._recent: deque[_Held] = deque()
        self._recent_bytes = 0
        self._messages_wait = False
        self._room = view_bytes
        self._items: dict[int, Item] = {}  # what stand-ins stand for, by number
        self._again: set[int] = set()  # numbers of lines that are wanted whole after all
        self.unknown: dict[str, int] = {}  # kinds of a newer version, and how many
        self.lost_blobs: list[str] = []
        self.shortened = 0

    def view(self) -> View:
        """What the lines amount to."""
        # A million values and no circles: looking for some would take a tenth of the time.
        was_on = gc.isenabled()
        gc.disable()
        try:
            return self._view()
        finally:
            if was_on:
                gc.enable()

    def _view(self) -> View:
        folded = fold(self._entries(self._reading.lines()))
        self._recent.clear()
        self._choose(folded.transcript)
        if folded.history is not None:
            self._choose(folded.history)
        if self._again:
            self._read_again()
        return msgspec.structs.replace(
            folded,
            transcript=self._real(folded.transcript),
            history=None if folded.history is None else self._real(folded.history),
        )

    def _choose(self, transcript: Transcript) -> None:
        """Settle what stands behind each stand-in, the newest first while there is room."""
        for position in range(len(transcript) - 1, -1, -1):
            held = _held(transcript[position])
            if held is not None and held.seq not in self._items:
                self._room -= held.size
                self._items[held.seq] = self._settle(transcript[position], held, self._room >= 0)

    def _real(self, transcript: Transcript) -> Transcript:
        """One item, one object: the view and its history have to agree on that."""
        return Transcript(
            [
                item if (held := _held(item)) is None else self._items[held.seq]
                for item in transcript
            ]
        )

    # --- while the log is read ---------------------------------------------------------------

    def _entries(self, lines: Iterable[tuple[Line, Path]]) -> Iterator[Entry]:
        for line, place in lines:
            if line.kind == "item" and (len(line.raw) > _SMALL or line.blob):
                yield self._stand_in(line, place)
            else:
                entry = self._decoded(line, place)
                if entry is not None:
                    self._messages_wait = self._messages_wait or type(entry) is Queued
                    yield entry

    def _stand_in(self, line: Line, place: Path) -> Entry:
        """An entry that the fold treats as it would the real one."""
        item: Item
        if (result := _RESULT.match(line.raw)) is not None:
            item = ToolResultItem(result.group(1).decode(), result.group(2).decode(), ())
        elif _REPLY.match(line.raw) is not None:
            item = AssistantItem(())
        elif self._messages_wait or _MESSAGE.match(line.raw) is None:
            # A message that was queued is known again by its value, and a result whose id is not
            # plain by what it says: no stand-in will do.
            entry = self._decoded(line, place)
            assert entry is not None, "the kind of this line is known"
            return entry
        else:
            item = UserItem(())
        held = _Held(line, place)
        vars(item)["held"] = held
        self._recent.append(held)
        self._recent_bytes += len(line.raw)
        while self._recent_bytes > self._limit:
            self._let_go(self._recent.popleft())
        return ItemAdded(item)

    def _decoded(self, line: Line, place: Path) -> Entry | None:
        try:
            return self._whole(decode(line.raw), line.blob, place)
        except msgspec.DecodeError:
            self.unknown[line.kind] = self.unknown.get(line.kind, 0) + 1
            return None

    # --- when it has been read ---------------------------------------------------------------

    def _let_go(self, held: _Held) -> None:
        """Keep no more of a line than will be shown of it if there is no room."""
        raw, held.raw = held.raw, None
        if raw is None:
            return
        self._recent_bytes -= len(raw)
        if _RESULT.match(raw) is None:
            held.short = self._short(self._item(raw, held, whole=False))

    def _settle(self, stand_in: Item, held: _Held, whole: bool) -> Item:
        if not whole:
            self.shortened += 1
            return self._shortened(stand_in, held)
        if held.raw is None:
            self._again.add(held.seq)
            return stand_in
        return self._item(held.raw, held, whole=True)

    def _shortened(self, stand_in: Item, held: _Held) -> Item:
        if held.short is not None:
            return held.short
        if held.raw is not None and not isinstance(stand_in, ToolResultItem):
            return self._short(self._item(held.raw, held, whole=False))
        assert isinstance(stand_in, ToolResultItem), "all else was shortened when it was let go"
        text = f"[{held.size} bytes of an old result are left out; they are in the journal.]"
        return ToolResultItem(stand_in.call_id, stand_in.name, (Text(text),), is_truncated=True)

    def _read_again(self) -> None:
        for line, place in Reading(self._reading.place).lines():
            if line.seq in self._again:
                held = _Held(line, place)
                self._items[line.seq] = self._item(line.raw, held, whole=True)

    def _item(self, raw: bytes, held: _Held, *, whole: bool) -> Item:
        entry = decode(raw)
        if whole or _REPLY.match(raw) is not None:  # its calls are needed even of an old one
            entry = self._whole(entry, held.blob, held.place)
        assert isinstance(entry, ItemAdded), "only items have stand-ins"
        return entry.item

    def _whole(self, entry: Entry, blob: str, place: Path) -> Entry:
        whole = with_blob(entry, blob, place)
        if whole is None:
            self.lost_blobs.append(blob)
            return with_content(entry, (Text(f"[This content is lost: blob {blob}.]"),))
        return whole

    @staticmethod
    def _short(item: Item) -> Item:
        if not isinstance(item, (UserItem, AssistantItem, ToolResultItem)):
            return item
        content = tuple(
            [Text(_beginning(part.text)) if type(part) is Text else part for part in item.content]
        )
        if not content:  # it is a blob
            content = (Text("[Left out; it is in the journal.]"),)
        return msgspec.structs.replace(item, content=content)


def with_blob(entry: Entry, blob: str, place: Path) -> Entry | None:
    """The entry with the content that stands beside the journal; None if that is lost."""
    if not blob:
        return entry
    data = Blobs(place / "blobs", LocalFiles()).get(blob)
    return None if data is None else with_content(entry, decode_content(entry, data))


def _held(item: Item) -> _Held | None:
    found = vars(item).get("held")
    return found if isinstance(found, _Held) else None


def _beginning(text: str) -> str:
    if len(text) <= _SMALL:
        return text
    left = len(text) - SHOWN_OF_OLD
    return f"{text[:SHOWN_OF_OLD]}… [{left} more characters are in the journal]"
