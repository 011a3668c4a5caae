"""Encodes a transcript as request bytes: each item is encoded once, a request is a join.

    [{"role":"user","content":[B1 │ ]},{"role":"assistant","content":[B2,B3 │ ]},{"role": ...
     └── item 0 ──────────────────┘ └── item 1 ────────────────────────────┘

The bytes of an item are appended and never changed, so one request is the start of the next, and
a turn costs the same at any length. In the same pass, results are paired with their calls, ids are
made valid and roles are put in order. The state is kept in the transcript's cache. A
`MessageEncoder` encodes the blocks of one provider.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import ContextTooLong
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    ResultContent,
    Text,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.integrity import INTERRUPTED_RESULT
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.files.media_size import image_size
from treadle.lib.text.text import fix_surrogates, format_bytes
from treadle.models.provider_base.lenient import fix_json_surrogates
from treadle.models.provider_base.request_limits import (
    ENGINE_NOTICES,
    MediaSize,
    RequestLimits,
    filter_input,
    filter_reply,
    filter_result,
    make_provider_call_id,
    make_provider_tool_name,
    select_omissions,
)

MessageRole = Literal["user", "assistant", "system"]
# The parts of an item with their numbers, and the JSON of a part.
InputParts = Sequence[tuple[int, UserContent]]
ReplyParts = Sequence[tuple[int, AssistantContent]]
ResultParts = Sequence[tuple[int, ResultContent]]
EncodedBlock = tuple[int, bytes]

REFUSED_REASON = "the provider refused it"
MISSING_START_TEXT = "The beginning of this conversation is not available."
ITEMS_PER_SEGMENT = 64
MAX_MESSAGE_MARKS = 2  # of the four that a request may have; tools and system have the others


class MessageEncoder(Protocol):
    """The blocks of one provider. All methods are pure.

    `open_message` and `close_message` surround consecutive blocks of one role. By default every
    block is a message of its own: they are empty and `merges_roles` is False.
    """

    cache_key: Hashable  # of the encoded transcript: everything that the bytes depend on
    limits: RequestLimits
    merges_roles: bool = False
    accepts_reply_first: bool = False  # the first message may be the model's
    # Notices of the engine are messages of their own role, between the user's and a reply.
    has_system_notices: bool = False

    def open_message(self, role: MessageRole) -> bytes:
        return b""

    def close_message(self) -> bytes:
        return b""

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        """`by_engine`: a notice of the engine, which some providers have a role for."""
        ...

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]: ...

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        """The result of `call`, whose id and name are those in the request."""

    def encode_after_results(self, parts: ResultParts) -> list[EncodedBlock]:
        """The blocks after a round of results, such as images that a result cannot contain.

        `parts` are those of all results of the round.
        """
        return []


class EncodedTranscript:
    """The encoded items of a transcript, and the state that the next item needs."""

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
        self._segments: list[bytes] = []  # joined items that do not change
        self._item_bytes: list[bytes] = []  # one per item, from position `_first_loose` on
        self._first_loose = 0
        self._has_started = False
        self._open_role: MessageRole = "user"
        self._open_calls: dict[
            str, list[ToolCall]
        ] = {}  # without a result: by id, as they are sent
        self._used_ids: set[str] = set()
        self._results: list[tuple[int, ResultContent]] = []  # the parts of the open round
        self._held: list[tuple[int, list[EncodedBlock]]] = []  # see `_can_hold_notice`
        self._end: list[bytes] | None = None  # see `_encode_end`
        self._media: list[MediaSize] = []
        self._last_input = -1  # position of the last item with a block of the user role
        self._previous_input = -1  # the same, before the last reply
        self._input_positions: list[int] = []  # of the items that end with a block of the user ...
        self._input_ends: list[int] = []  # ... and where they end in the bytes of all items

    @property
    def limit_omissions(self) -> dict[tuple[int, int], str]:
        omissions = self._omissions.items()
        return {part: reason for part, reason in omissions if part not in self.quarantine}

    @property
    def has_calls(self) -> bool:
        return bool(self._used_ids)

    # -------------------------------------------------------------- input

    def encode_new_items(self, transcript: Transcript) -> None:
        for position in range(self.length, len(transcript)):
            data = b"".join(self._encode_item(position, transcript[position]))
            self._item_bytes.append(data)
            self.size += len(data)
            if self._last_input == position:
                self._input_positions.append(position)
                self._input_ends.append(self.size)
            self.length = position + 1
            self._end = None
        if self._previous_input - self._first_loose >= ITEMS_PER_SEGMENT:
            self._join_segment(self._previous_input - self._first_loose)

    def _join_segment(self, count: int) -> None:
        """Join items that no mark will change. Few large parts cost less to send than many."""
        if len(self._segments) >= ITEMS_PER_SEGMENT:
            self._segments = [b"".join(self._segments)]
        self._segments.append(b"".join(self._item_bytes[:count]))
        del self._item_bytes[:count]
        self._first_loose += count

    def _encode_item(self, position: int, item: Item) -> list[bytes]:
        out: list[bytes] = []
        encoder, limits = self._encoder, self._encoder.limits
        if isinstance(item, ToolResultItem):
            waiting = self._open_calls.get(item.call_id)
            if waiting:  # else there is no such call, or it has a result already
                parts = filter_result(item, position, limits, self._omissions)
                self._record_media(position, parts)
                blocks = encoder.encode_result(waiting.pop(0), parts, item.is_error)
                self._append_blocks(out, "user", position, blocks)
                self._results += parts
        elif isinstance(item, AssistantItem):
            last_input = self._last_input
            self._close_round(out, position)
            self._add_reply(out, position, item)
            # Blocks that closed the round cannot have a mark: the reply follows them.
            self._last_input = self._previous_input = last_input
        else:
            self._close_round(out, position)
            content = filter_input(item, position, limits, self._omissions)
            self._record_media(position, content)
            by_engine = type(item) is NoticeItem and item.kind in ENGINE_NOTICES
            blocks = encoder.encode_input(content, by_engine)
            if by_engine and blocks and self._can_hold_notice:
                self._held.append((position, blocks))
                return out
            if type(item) is not NoticeItem:
                self._add_held(out, "user", position)
            self._append_blocks(out, "user", position, blocks)
        return out

    @property
    def _can_hold_notice(self) -> bool:
        """A held notice is no part of its item's bytes: it ends each request, as a message of the
        role system, until a reply follows it or more of the user's, whose text it then is."""
        is_after_user = self._has_started and self._open_role == "user"
        return self._encoder.has_system_notices and is_after_user

    def _add_held(self, out: list[bytes], role: MessageRole, position: int) -> None:
        """Add the notices that are held; `position` is that of the item whose bytes they join."""
        held, self._held = self._held, []
        for notice_position, blocks in held:
            self._append_blocks(out, role, notice_position, blocks)
        if held and role == "user":
            self._last_input = position

    def _add_reply(self, out: list[bytes], position: int, item: AssistantItem) -> None:
        limits = self._encoder.limits
        parts = filter_reply(item, position, limits, self._omissions)
        for index, (number, part) in enumerate(parts):
            if type(part) is ToolCall:
                call_id = make_provider_call_id(part.id, self._used_ids, limits.max_id_length)
                name, raw = make_provider_tool_name(part.name), fix_json_surrogates(part.raw)
                call = part
                if call_id != part.id or name != part.name or raw is not part.raw:
                    call = ToolCall(call_id, name, raw)
                    parts[index] = (number, call)
                self._open_calls.setdefault(part.id, []).append(call)
            elif type(part) is Opaque:
                fixed = fix_json_surrogates(part.json)
                parts[index] = (number, msgspec.structs.replace(part, json=fixed))
        blocks = self._encoder.encode_reply(parts)
        if not blocks:
            return
        if not self._has_started and not self._encoder.accepts_reply_first:
            start = self._encoder.encode_input([(0, Text(MISSING_START_TEXT))])
            self._append_blocks(out, "user", position, start)
        self._add_held(out, "system", position)
        self._append_blocks(out, "assistant", position, blocks)

    def _close_round(self, out: list[bytes], position: int) -> None:
        """Add results for the open calls, and the blocks after the results."""
        if not self._open_calls:
            return
        lost = [(0, Text(INTERRUPTED_RESULT))]
        for call in chain.from_iterable(self._open_calls.values()):
            blocks = self._encoder.encode_result(call, lost, True)
            self._append_blocks(out, "user", position, blocks)
        self._open_calls = {}
        if self._results:
            blocks = self._encoder.encode_after_results(self._results)
            self._append_blocks(out, "user", position, blocks)
            self._results = []

    def _append_blocks(
        self, out: list[bytes], role: MessageRole, position: int, blocks: list[EncodedBlock]
    ) -> None:
        if not blocks:
            return
        encoder = self._encoder
        starts = True
        if not self._has_started:
            out.append(encoder.open_message(role))
        elif role != self._open_role:
            out += (encoder.close_message(), b",", encoder.open_message(role))
        else:
            out.append(b",")
            starts = not encoder.merges_roles
        self._has_started, self._open_role = True, role
        out.append(blocks[0][1] if len(blocks) == 1 else b",".join([data for _, data in blocks]))
        if role == "user":
            self._last_input = position
        if self._block_positions is not None:
            for number, _ in blocks:
                if starts:
                    self._block_positions.append([])
                    starts = not encoder.merges_roles
                self._block_positions[-1].append((position, number))

    def _record_media(self, position: int, parts: InputParts) -> None:
        for number, part in parts:
            if type(part) is Image or type(part) is Document:
                side = max(image_size(part.data)) if type(part) is Image else 0
                size = len(part.data) * 4 // 3
                self._media.append(MediaSize(position, number, size, side, type(part) is Image))

    # -------------------------------------------------------------- output

    def messages(self, cache_mark: bytes = b"", breakpoints: Sequence[int] = ()) -> list[bytes]:
        """The parts between `[` and `]`.

        `cache_mark` is put into the last block of the newest input and of the input before the
        last reply: the end of this request's cache, and of the previous request's cache. With
        `breakpoints`, positions of items, it is put there instead.
        """
        pieces = [*self._segments, *self._item_bytes]
        if cache_mark and breakpoints:
            self._mark_breakpoints(pieces, cache_mark, breakpoints)
        elif cache_mark:
            first = len(self._segments) - self._first_loose
            for position in {self._last_input, self._previous_input}:
                if position >= self._first_loose:
                    pieces[first + position] = pieces[first + position][:-1] + cache_mark + b"}"
        return pieces + self._encode_end()

    def _mark_breakpoints(self, pieces: list[bytes], mark: bytes, positions: Sequence[int]) -> None:
        """Put the mark after the last of these positions; a reply cannot have it, so it is put
        after the input before."""
        found = {bisect_right(self._input_positions, position) for position in positions} - {0}
        ends = [self._input_ends[count - 1] for count in sorted(found)[-MAX_MESSAGE_MARKS:]]
        start = 0
        for index, piece in enumerate(pieces):
            inside = [end - start for end in ends if start < end <= start + len(piece)]
            for end in reversed(inside):
                pieces[index] = pieces[index][: end - 1] + mark + pieces[index][end - 1 :]
            start += len(piece)

    def _encode_end(self) -> list[bytes]:
        """The end of the request; it is encoded again when the transcript has grown."""
        if self._end is None:
            self._end = self._close_messages() if self._has_started else []
        return self._end

    def _close_messages(self) -> list[bytes]:
        if not self._open_calls and not self._held:
            return [self._encoder.close_message()]
        state = self._open_calls, self._results, self._open_role, self._last_input, self._held
        out: list[bytes] = []
        self._close_round(out, self.length)
        self._add_held(out, "system", self.length)
        out.append(self._encoder.close_message())
        self._open_calls, self._results, self._open_role, self._last_input, self._held = state
        return out

    def list_blocks(self) -> list[list[tuple[int, int]]]:
        """The item and part of each block of each message, with those that are held."""
        assert self._block_positions is not None
        self._add_held([], "system", self.length)
        return self._block_positions

    def find_surplus(self) -> dict[tuple[int, int], str]:
        return select_omissions(self._media, self.total_size, self._encoder.limits)

    @property
    def total_size(self) -> int:
        """The bytes of all messages, with the end of the request."""
        return self.size + sum(map(len, self._encode_end()))


def encode_transcript(
    encoder: MessageEncoder, transcript: Transcript, quarantine: frozenset[tuple[int, int]]
) -> EncodedTranscript:
    """The encoded transcript, brought up to date; it is cached for the next request."""
    cached: EncodedTranscript | None = transcript.cache.get(encoder.cache_key)
    is_older = cached is not None and cached.length > len(transcript)
    if cached is not None and not is_older and cached.quarantine == quarantine:
        history = cached
    else:
        omissions = cached.limit_omissions if cached is not None else None
        history = EncodedTranscript(encoder, quarantine, omissions)
    history.encode_new_items(transcript)
    while surplus := history.find_surplus():
        history = EncodedTranscript(encoder, quarantine, {**history.limit_omissions, **surplus})
        history.encode_new_items(transcript)
    limit = encoder.limits.max_body_bytes
    if limit is not None and history.total_size > limit:
        raise ContextTooLong(
            f"the conversation has {format_bytes(history.total_size)}, more than the "
            f"{format_bytes(limit)} that {encoder.limits.origin} accepts in one request.",
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
    """The item and part that became this block of this message. Encodes all: only for errors."""
    cached: EncodedTranscript | None = transcript.cache.get(encoder.cache_key)
    omissions = cached.limit_omissions if cached else None
    history = EncodedTranscript(encoder, quarantine, omissions, [])
    history.encode_new_items(transcript)
    parts = history.list_blocks()
    if message < len(parts) and block < len(parts[message]):
        return parts[message][block]
    return None


def encode_json(value: object) -> bytes:
    """JSON of any value; a lone surrogate becomes a replacement character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json  # only for what UTF-8 cannot encode

        text = json.dumps(value, default=lambda raw: msgspec.json.decode(bytes(raw)))
        return fix_json_surrogates(text).encode()


def encode_json_string(value: str) -> bytes:
    """A JSON string; a lone surrogate becomes a replacement character."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(fix_surrogates(value))


def encode_call_arguments(call: ToolCall) -> bytes:
    """The arguments of a call as an object. Others cannot be sent; the result of the call explains
    why."""
    raw = call.raw.strip() if call.arguments is not None else ""
    return raw.encode("utf-8", "replace") or b"{}"
