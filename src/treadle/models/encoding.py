"""A transcript as request bytes: each item is encoded once, a request is a join.

    [{"role":"user","content":[B1 │ ]},{"role":"assistant","content":[B2,B3 │ ]},{"role": ...
     └── item 0 ──────────────────┘ └── item 1 ────────────────────────────┘

What an item adds is appended and never changed, so the bytes of one request are the beginning
of the next one's, and a turn costs the same at any length. Answers are paired, ids made legal
and roles put in order on the way, in one pass. The state lives in the transcript's scratch.
A `Dialect` says what the blocks of one provider look like.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import ContextTooLong
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    ResultContent,
    Text,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.integrity import INTERRUPTED
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.weighing import picture_size
from treadle.models.compiler import (
    Rules,
    Weight,
    over_limits,
    sendable_answer,
    sendable_input,
    sendable_reply,
    wire_id,
)

Role = Literal["user", "assistant"]
Block = tuple[int, bytes]  # the number of the part in its item, and one JSON value

REFUSED = "the provider refused it"
UNAVAILABLE = "The beginning of this conversation is not available."
PAGE = 64  # items that are joined at once


class Dialect(Protocol):
    """How one provider writes things down. All methods are pure.

    `opening` and `closing` are what stands around consecutive blocks of one role; a dialect
    whose every block is a message of its own leaves them empty and is not `merging`.
    """

    key: Hashable  # under which the encoded history is kept: all that the bytes depend on
    rules: Rules
    merging: bool

    def opening(self, role: Role) -> bytes: ...

    def closing(self, role: Role) -> bytes: ...

    def said(self, parts: Sequence[tuple[int, UserContent]]) -> list[Block]: ...

    def replied(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[Block]: ...

    def answered(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[Block]: ...

    def after_answers(self, items: Sequence[tuple[int, ToolResultItem]]) -> list[Block]:
        """What must follow a round of answers, such as pictures that they cannot hold."""


class History:
    """The encoded beginning of a transcript, and what the next item needs to know of it."""

    __slots__ = (
        "_answers", "_base", "_begun", "_calls", "_dialect", "_last_input", "_loose", "_map",
        "_omitted", "_open_role", "_pages", "_previous_input", "_taken", "_weights",
        "length", "quarantine", "size",
    )  # fmt: skip

    def __init__(
        self,
        dialect: Dialect,
        quarantine: frozenset[tuple[int, int]] = frozenset(),
        limited: dict[tuple[int, int], str] | None = None,
        places: list[list[tuple[int, int]]] | None = None,
    ) -> None:
        self._dialect = dialect
        self.quarantine = quarantine
        self._omitted = {**(limited or {}), **dict.fromkeys(quarantine, REFUSED)}
        self._map = places
        self.length = 0
        self.size = 0
        self._pages: list[bytes] = []  # closed stretches, joined
        self._loose: list[bytes] = []  # one an item, from position `_base` on
        self._base = 0
        self._begun = False
        self._open_role: Role = "user"
        self._calls: dict[str, list[tuple[str, str]]] = {}  # open: id -> (id on the wire, name)
        self._taken: set[str] = set()
        self._answers: list[tuple[int, ToolResultItem]] = []
        self._weights: list[Weight] = []
        self._last_input = -1  # position of the newest item whose last block a user role sends
        self._previous_input = -1  # the same, before the newest reply

    @property
    def limited(self) -> dict[tuple[int, int], str]:
        return {at: why for at, why in self._omitted.items() if at not in self.quarantine}

    @property
    def has_calls(self) -> bool:
        return bool(self._taken)

    # -------------------------------------------------------------- growing

    def advance(self, transcript: Transcript) -> None:
        for position in range(self.length, len(transcript)):
            data = b"".join(self._added_by(position, transcript[position]))
            self._loose.append(data)
            self.size += len(data)
            self.length = position + 1
        if self._previous_input - self._base >= PAGE:
            self._turn_page(self._previous_input - self._base)

    def _turn_page(self, count: int) -> None:
        """Join what no mark will touch again. Few large pieces cost less to send than many."""
        if len(self._pages) >= PAGE:
            self._pages = [b"".join(self._pages)]
        self._pages.append(b"".join(self._loose[:count]))
        del self._loose[:count]
        self._base += count

    def _added_by(self, position: int, item: Item) -> list[bytes]:
        out: list[bytes] = []
        dialect, rules = self._dialect, self._dialect.rules
        if isinstance(item, ToolResultItem):
            waiting = self._calls.get(item.call_id)
            if waiting:  # otherwise nobody asked, or it was answered already
                call_id, name = waiting.pop(0)
                parts = sendable_answer(item, position, rules, self._omitted)
                self._weigh(position, parts)
                blocks = dialect.answered(call_id, name, parts, item.is_error)
                self._put(out, "user", position, blocks)
                self._answers.append((position, item))
        elif isinstance(item, AssistantItem):
            last_input = self._last_input
            self._close_round(out, position)
            self._add_reply(out, position, item)
            # Input that was made up on the way cannot bear a mark: the reply stands behind it.
            self._last_input = self._previous_input = last_input
        else:
            self._close_round(out, position)
            said = sendable_input(item, position, rules, self._omitted)
            self._weigh(position, said)
            self._put(out, "user", position, dialect.said(said))
        return out

    def _add_reply(self, out: list[bytes], position: int, item: AssistantItem) -> None:
        rules = self._dialect.rules
        parts = sendable_reply(item, position, rules, self._omitted)
        for index, (number, part) in enumerate(parts):
            if type(part) is ToolCall:
                call_id = wire_id(part.id, self._taken, rules.max_id_length)
                self._calls.setdefault(part.id, []).append((call_id, part.name))
                if call_id != part.id:
                    parts[index] = (number, ToolCall(call_id, part.name, part.raw))
        blocks = self._dialect.replied(parts, item)
        if not blocks:
            return
        if not self._begun:
            self._put(out, "user", position, self._dialect.said([(0, Text(UNAVAILABLE))]))
        self._put(out, "assistant", position, blocks)

    def _close_round(self, out: list[bytes], position: int) -> None:
        """Answer what was left open, and say what the answers could not hold."""
        if not self._calls:
            return
        for waiting in self._calls.values():
            for call_id, name in waiting:
                lost = [(0, Text(INTERRUPTED))]
                blocks = self._dialect.answered(call_id, name, lost, True)
                self._put(out, "user", position, blocks)
        self._calls = {}
        if self._answers:
            self._put(out, "user", position, self._dialect.after_answers(self._answers))
            self._answers = []

    def _put(self, out: list[bytes], role: Role, position: int, blocks: list[Block]) -> None:
        if not blocks:
            return
        dialect = self._dialect
        starts = True
        if not self._begun:
            out.append(dialect.opening(role))
        elif role != self._open_role:
            out += (dialect.closing(self._open_role), b",", dialect.opening(role))
        else:
            out.append(b",")
            starts = not dialect.merging
        self._begun, self._open_role = True, role
        out.append(blocks[0][1] if len(blocks) == 1 else b",".join([data for _, data in blocks]))
        if role == "user":
            self._last_input = position
        if self._map is not None:
            self._note(position, blocks, starts)

    def _note(self, position: int, blocks: list[Block], starts: bool) -> None:
        assert self._map is not None
        for number, _ in blocks:
            if starts:
                self._map.append([])
                starts = not self._dialect.merging
            self._map[-1].append((position, number))

    def _weigh(self, position: int, parts: Sequence[tuple[int, UserContent]]) -> None:
        for number, part in parts:
            if type(part) is Image or type(part) is Document:
                side = max(picture_size(part.data)) if type(part) is Image else 0
                size = len(part.data) * 4 // 3
                self._weights.append(Weight(position, number, size, side, type(part) is Image))

    # -------------------------------------------------------------- giving out

    def messages(self, mark: bytes = b"") -> list[bytes]:
        """The pieces between `[` and `]`.

        `mark` is put into the last block of the newest input and of the one before the last
        reply: what this request caches, and where the last one's cache ends.
        """
        loose = self._loose
        pieces = [*self._pages, *loose]
        if mark:
            first = len(self._pages) - self._base
            for position in {self._last_input, self._previous_input}:
                if position >= self._base:
                    pieces[first + position] = pieces[first + position][:-1] + mark + b"}"
        if self._begun:
            pieces += self._unfinished()
        return pieces

    def _unfinished(self) -> list[bytes]:
        """What ends the request: it is said again, or replaced, when the transcript goes on."""
        if not self._calls:
            return [self._dialect.closing(self._open_role)]
        kept = self._calls, self._answers, self._open_role, self._last_input
        out: list[bytes] = []
        self._close_round(out, self.length)
        out.append(self._dialect.closing(self._open_role))
        self._calls, self._answers, self._open_role, self._last_input = kept
        return out

    def too_much(self) -> dict[tuple[int, int], str]:
        return over_limits(self._weights, self.size, self._dialect.rules)


def encoded(
    dialect: Dialect, transcript: Transcript, quarantine: frozenset[tuple[int, int]]
) -> History:
    """The history of this transcript, brought up to date; kept with it for the next request."""
    known: History | None = transcript.scratch.get(dialect.key)
    is_older = known is not None and known.length > len(transcript)
    if known is not None and not is_older and known.quarantine == quarantine:
        history = known
    else:
        history = History(dialect, quarantine, known.limited if known is not None else None)
    history.advance(transcript)
    while surplus := history.too_much():
        history = History(dialect, quarantine, {**history.limited, **surplus})
        history.advance(transcript)
    limit = dialect.rules.max_body_bytes
    if limit is not None and history.size > limit:
        raise ContextTooLong(
            f"the conversation is {history.size >> 20} MB long, more than the {limit >> 20} MB "
            f"that {dialect.rules.origin} takes in one request.",
            provider=dialect.rules.origin,
        )
    if not is_older:
        transcript.scratch[dialect.key] = history
    return history


def place_of(
    dialect: Dialect,
    transcript: Transcript,
    quarantine: frozenset[tuple[int, int]],
    message: int,
    block: int,
) -> tuple[int, int] | None:
    """The item and part that became this block of this message. Walks: for errors only."""
    known: History | None = transcript.scratch.get(dialect.key)
    places: list[list[tuple[int, int]]] = []
    walk = History(dialect, quarantine, known.limited if known else None, places)
    walk.advance(transcript)
    if message < len(places) and block < len(places[message]):
        return places[message][block]
    return None


def json_text(value: str) -> bytes:
    """A JSON string, whatever is in it: a lone surrogate becomes a replacement character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        clean = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return msgspec.json.encode(clean)
