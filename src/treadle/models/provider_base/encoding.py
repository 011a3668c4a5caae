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
from treadle.core.transcript.integrity import INTERRUPTED_RESULT
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.core.transcript.size_estimate import image_size
from treadle.core.transcript.transcript import Transcript
from treadle.models.provider_base.request_limits import (
    MediaSize,
    RequestLimits,
    filter_input,
    filter_reply,
    filter_result,
    make_provider_call_id,
    select_omissions,
)

MessageRole = Literal["user", "assistant"]
EncodedBlock = tuple[int, bytes]  # the number of the part in its item, and one JSON value

REFUSED_REASON = "the provider refused it"
MISSING_START_TEXT = "The beginning of this conversation is not available."
ITEMS_PER_SEGMENT = 64  # items that are joined at once


class MessageEncoder(Protocol):
    """How one provider writes things down. All methods are pure.

    `opening` and `closing` are what stands around consecutive blocks of one role; a dialect
    whose every block is a message of its own leaves them empty and is not `merging`.
    """

    cache_key: Hashable  # under which the encoded history is kept: all that the bytes depend on
    limits: RequestLimits
    merges_roles: bool

    def open_message(self, role: MessageRole) -> bytes: ...

    def close_message(self, role: MessageRole) -> bytes: ...

    def encode_input(self, parts: Sequence[tuple[int, UserContent]]) -> list[EncodedBlock]: ...

    def encode_reply(
        self, parts: Sequence[tuple[int, AssistantContent]], item: AssistantItem
    ) -> list[EncodedBlock]: ...

    def encode_result(
        self,
        call_id: str,
        name: str,
        parts: Sequence[tuple[int, ResultContent]],
        is_error: bool,
    ) -> list[EncodedBlock]: ...

    def encode_after_results(
        self, items: Sequence[tuple[int, ToolResultItem]]
    ) -> list[EncodedBlock]:
        """What must follow a round of answers, such as pictures that they cannot hold."""


class EncodedTranscript:
    """The encoded beginning of a transcript, and what the next item needs to know of it."""

    __slots__ = (
        "_block_positions",
        "_encoder",
        "_first_loose",
        "_has_started",
        "_item_bytes",
        "_last_input",
        "_media",
        "_omissions",
        "_open_calls",
        "_open_role",
        "_previous_input",
        "_results",
        "_segments",
        "_used_ids",
        "length",
        "quarantine",
        "size",
    )  # fmt: skip

    def __init__(
        self,
        encoder: MessageEncoder,
        quarantine: frozenset[tuple[int, int]] = frozenset(),
        limit_omissions: dict[tuple[int, int], str] | None = None,
        block_positions: list[list[tuple[int, int]]] | None = None,
    ) -> None:
        self._encoder = encoder
        self.quarantine = quarantine
        self._omissions = {**(limit_omissions or {}), **dict.fromkeys(quarantine, REFUSED_REASON)}
        self._block_positions = block_positions
        self.length = 0
        self.size = 0
        self._segments: list[bytes] = []  # closed stretches, joined
        self._item_bytes: list[bytes] = []  # one an item, from position `_base` on
        self._first_loose = 0
        self._has_started = False
        self._open_role: MessageRole = "user"
        self._open_calls: dict[
            str, list[tuple[str, str]]
        ] = {}  # open: id -> (id on the wire, name)
        self._used_ids: set[str] = set()
        self._results: list[tuple[int, ToolResultItem]] = []
        self._media: list[MediaSize] = []
        self._last_input = -1  # position of the newest item whose last block a user role sends
        self._previous_input = -1  # the same, before the newest reply

    @property
    def limit_omissions(self) -> dict[tuple[int, int], str]:
        return {at: why for at, why in self._omissions.items() if at not in self.quarantine}

    @property
    def has_calls(self) -> bool:
        return bool(self._used_ids)

    # -------------------------------------------------------------- growing

    def encode_new_items(self, transcript: Transcript) -> None:
        for position in range(self.length, len(transcript)):
            data = b"".join(self._encode_item(position, transcript[position]))
            self._item_bytes.append(data)
            self.size += len(data)
            self.length = position + 1
        if self._previous_input - self._first_loose >= ITEMS_PER_SEGMENT:
            self._join_segment(self._previous_input - self._first_loose)

    def _join_segment(self, count: int) -> None:
        """Join what no mark will touch again. Few large pieces cost less to send than many."""
        if len(self._segments) >= ITEMS_PER_SEGMENT:
            self._segments = [b"".join(self._segments)]
        self._segments.append(b"".join(self._item_bytes[:count]))
        del self._item_bytes[:count]
        self._first_loose += count

    def _encode_item(self, position: int, item: Item) -> list[bytes]:
        out: list[bytes] = []
        dialect, rules = self._encoder, self._encoder.limits
        if isinstance(item, ToolResultItem):
            waiting = self._open_calls.get(item.call_id)
            if waiting:  # otherwise nobody asked, or it was answered already
                call_id, name = waiting.pop(0)
                parts = filter_result(item, position, rules, self._omissions)
                self._record_media(position, parts)
                blocks = dialect.encode_result(call_id, name, parts, item.is_error)
                self._append_blocks(out, "user", position, blocks)
                self._results.append((position, item))
        elif isinstance(item, AssistantItem):
            last_input = self._last_input
            self._close_round(out, position)
            self._add_reply(out, position, item)
            # Input that was made up on the way cannot bear a mark: the reply stands behind it.
            self._last_input = self._previous_input = last_input
        else:
            self._close_round(out, position)
            said = filter_input(item, position, rules, self._omissions)
            self._record_media(position, said)
            self._append_blocks(out, "user", position, dialect.encode_input(said))
        return out

    def _add_reply(self, out: list[bytes], position: int, item: AssistantItem) -> None:
        rules = self._encoder.limits
        parts = filter_reply(item, position, rules, self._omissions)
        for index, (number, part) in enumerate(parts):
            if type(part) is ToolCall:
                call_id = make_provider_call_id(part.id, self._used_ids, rules.max_id_length)
                self._open_calls.setdefault(part.id, []).append((call_id, part.name))
                if call_id != part.id:
                    parts[index] = (number, ToolCall(call_id, part.name, part.raw))
        blocks = self._encoder.encode_reply(parts, item)
        if not blocks:
            return
        if not self._has_started:
            self._append_blocks(
                out, "user", position, self._encoder.encode_input([(0, Text(MISSING_START_TEXT))])
            )
        self._append_blocks(out, "assistant", position, blocks)

    def _close_round(self, out: list[bytes], position: int) -> None:
        """Answer what was left open, and say what the answers could not hold."""
        if not self._open_calls:
            return
        for waiting in self._open_calls.values():
            for call_id, name in waiting:
                lost = [(0, Text(INTERRUPTED_RESULT))]
                blocks = self._encoder.encode_result(call_id, name, lost, True)
                self._append_blocks(out, "user", position, blocks)
        self._open_calls = {}
        if self._results:
            self._append_blocks(
                out, "user", position, self._encoder.encode_after_results(self._results)
            )
            self._results = []

    def _append_blocks(
        self, out: list[bytes], role: MessageRole, position: int, blocks: list[EncodedBlock]
    ) -> None:
        if not blocks:
            return
        dialect = self._encoder
        starts = True
        if not self._has_started:
            out.append(dialect.open_message(role))
        elif role != self._open_role:
            out += (dialect.close_message(self._open_role), b",", dialect.open_message(role))
        else:
            out.append(b",")
            starts = not dialect.merges_roles
        self._has_started, self._open_role = True, role
        out.append(blocks[0][1] if len(blocks) == 1 else b",".join([data for _, data in blocks]))
        if role == "user":
            self._last_input = position
        if self._block_positions is not None:
            self._record_positions(position, blocks, starts)

    def _record_positions(
        self, position: int, blocks: list[EncodedBlock], is_new_message: bool
    ) -> None:
        assert self._block_positions is not None
        for number, _ in blocks:
            if is_new_message:
                self._block_positions.append([])
                is_new_message = not self._encoder.merges_roles
            self._block_positions[-1].append((position, number))

    def _record_media(self, position: int, parts: Sequence[tuple[int, UserContent]]) -> None:
        for number, part in parts:
            if type(part) is Image or type(part) is Document:
                side = max(image_size(part.data)) if type(part) is Image else 0
                size = len(part.data) * 4 // 3
                self._media.append(MediaSize(position, number, size, side, type(part) is Image))

    # -------------------------------------------------------------- giving out

    def messages(self, cache_mark: bytes = b"") -> list[bytes]:
        """The pieces between `[` and `]`.

        `mark` is put into the last block of the newest input and of the one before the last
        reply: what this request caches, and where the last one's cache ends.
        """
        loose = self._item_bytes
        pieces = [*self._segments, *loose]
        if cache_mark:
            first = len(self._segments) - self._first_loose
            for position in {self._last_input, self._previous_input}:
                if position >= self._first_loose:
                    pieces[first + position] = pieces[first + position][:-1] + cache_mark + b"}"
        if self._has_started:
            pieces += self._encode_end()
        return pieces

    def _encode_end(self) -> list[bytes]:
        """What ends the request: it is said again, or replaced, when the transcript goes on."""
        if not self._open_calls:
            return [self._encoder.close_message(self._open_role)]
        kept = self._open_calls, self._results, self._open_role, self._last_input
        out: list[bytes] = []
        self._close_round(out, self.length)
        out.append(self._encoder.close_message(self._open_role))
        self._open_calls, self._results, self._open_role, self._last_input = kept
        return out

    def find_surplus(self) -> dict[tuple[int, int], str]:
        return select_omissions(self._media, self.size, self._encoder.limits)


def encode_transcript(
    encoder: MessageEncoder, transcript: Transcript, quarantine: frozenset[tuple[int, int]]
) -> EncodedTranscript:
    """The history of this transcript, brought up to date; kept with it for the next request."""
    known: EncodedTranscript | None = transcript.cache.get(encoder.cache_key)
    is_older = known is not None and known.length > len(transcript)
    if known is not None and not is_older and known.quarantine == quarantine:
        history = known
    else:
        history = EncodedTranscript(
            encoder, quarantine, known.limit_omissions if known is not None else None
        )
    history.encode_new_items(transcript)
    while surplus := history.find_surplus():
        history = EncodedTranscript(encoder, quarantine, {**history.limit_omissions, **surplus})
        history.encode_new_items(transcript)
    limit = encoder.limits.max_body_bytes
    if limit is not None and history.size > limit:
        raise ContextTooLong(
            f"the conversation is {history.size >> 20} MB long, more than the {limit >> 20} MB "
            f"that {encoder.limits.origin} takes in one request.",
            provider=encoder.limits.origin,
        )
    if not is_older:
        transcript.cache[encoder.cache_key] = history
    return history


def locate_block(
    encoder: MessageEncoder,
    transcript: Transcript,
    quarantine: frozenset[tuple[int, int]],
    message: int,
    block: int,
) -> tuple[int, int] | None:
    """The item and part that became this block of this message. Walks: for errors only."""
    known: EncodedTranscript | None = transcript.cache.get(encoder.cache_key)
    places: list[list[tuple[int, int]]] = []
    walk = EncodedTranscript(encoder, quarantine, known.limit_omissions if known else None, places)
    walk.encode_new_items(transcript)
    if message < len(places) and block < len(places[message]):
        return places[message][block]
    return None


def encode_json_string(value: str) -> bytes:
    """A JSON string, whatever is in it: a lone surrogate becomes a replacement character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        clean = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return msgspec.json.encode(clean)
