"""A session that cannot be bricked: what a provider refuses is found and left out.

`Healing(model)` is a Model around another. When a request is refused for what it is, the same
bytes are never sent again: the part that the error names is quarantined, or else the offender
is found by halving. The log keeps everything; the loop remembers what was quarantined, and the
person is told one line. A request that is too long is not its business: compaction is.

    refused ─▶ names a part? ─▶ leave it out ─▶ again
       └─▶ suspects: leave out all ─▶ still refused: it is not the content, the error stands
                          └─▶ accepted: halve, down to the one that matters
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelEvent,
    ModelRequest,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
)
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import BadRequest, ContextTooLong
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

PartPosition = tuple[int, int]

LONG_TEXT_CHARS = 20_000
MAX_NAMED_PARTS = (
    4  # parts that errors may name one after the other before their kind goes as a whole
)
MAX_CULPRITS = 3

# The refusal is about the request's settings: no part of the history is to blame.
_SETTINGS_REFUSED = re.compile(
    r"refused the request: ['`\"]?(tools|tool_choice|system|model|max_tokens|max_completion_tokens|"
    r"temperature|top_p|top_k|thinking|reasoning|output_config|response_format|text\.format|"
    r"stop_sequences|stop|metadata|stream|betas?)\b",
)


class QuarantiningModel(WrappedModel):
    """The same model, but a request that it refuses is mended and sent again."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        search = _CulpritSearch(self._model, request)
        current = request
        while True:
            has_spoken = False
            try:
                async with open_stream(self._model, current) as events:
                    async for event in events:
                        if type(event) is Reply:
                            event = search.add_search_usage(event)
                        has_spoken = has_spoken or type(event) is not ModelUsageUpdated
                        yield event
                return
            except ContextTooLong:
                raise
            except BadRequest as refusal:
                if has_spoken:  # what was told cannot be taken back here
                    raise
                current = await search.next_request(current, refusal)
                for place in search.take_new_culprits():
                    yield PartQuarantined(*place, search.reason)


class _CulpritSearch:
    """Looks for what is refused, over as few requests as it can."""

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._first_refusal: BadRequest | None = None
        self._culprits: list[PartPosition] = []
        self._reported_count = 0
        self._named_parts: list[PartPosition] = []
        self._search_usage = Usage()
        self._tried: set[frozenset[PartPosition]] = set()
        self.reason = ""

    def take_new_culprits(self) -> list[PartPosition]:
        fresh = self._culprits[self._reported_count :]
        self._reported_count = len(self._culprits)
        return fresh

    def add_search_usage(self, reply: Reply) -> Reply:
        """What the search itself used was paid for too."""
        if not self._search_usage.requests:
            return reply
        usage = reply.item.usage + self._search_usage
        return Reply(msgspec.structs.replace(reply.item, usage=usage))

    async def next_request(self, refused: ModelRequest, refusal: BadRequest) -> ModelRequest:
        """The request to send instead; raises the refusal when there is none."""
        if self._first_refusal is None:
            self._first_refusal = refusal
            self.reason = str(refusal)
        self._tried.add(refused.quarantine)
        if _SETTINGS_REFUSED.search(str(refusal)):
            raise refusal
        place = _find_named_part(refusal, refused)
        if place is not None and len(self._named_parts) < MAX_NAMED_PARTS:
            self._named_parts.append(place)
            self._culprits += (
                _find_similar_parts(place, refused) if len(self._named_parts) > 1 else [place]
            )
        elif len(self._named_parts) < MAX_NAMED_PARTS + MAX_CULPRITS:
            self._named_parts.append((-1, -1))
            self._culprits += await self._bisect(refused)
        else:
            raise refusal
        following = self._request_without(self._culprits)
        if following.quarantine in self._tried:
            raise refusal
        return following

    def _request_without(self, parts: list[PartPosition]) -> ModelRequest:
        quarantine = self._request.quarantine.union(parts)
        return msgspec.structs.replace(self._request, quarantine=quarantine)

    async def _bisect(self, refused: ModelRequest) -> list[PartPosition]:
        """One culprit: the last of the shortest run of suspects without which it is accepted."""
        suspects = list(_list_suspects(refused))
        assert self._first_refusal is not None
        if not suspects or not await self._is_accepted_without(suspects):
            raise self._first_refusal
        low, high = 0, len(suspects)  # refused without the first `low`, accepted without `high`
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_accepted_without(suspects[:middle]):
                high = middle
            else:
                low = middle
        return [suspects[high - 1]]

    async def _is_accepted_without(self, parts: list[PartPosition]) -> bool:
        """Ask, and hang up at the first sign of an answer."""
        probe = self._request_without([*self._culprits, *parts])
        if probe.quarantine in self._tried:
            return False
        try:
            async with open_stream(self._model, probe) as events:
                async for event in events:
                    if type(event) is ModelUsageUpdated:
                        self._search_usage += event.usage
                    break
        except ContextTooLong:
            raise
        except BadRequest:
            self._tried.add(probe.quarantine)
            return False
        return True


def _find_named_part(refusal: BadRequest, request: ModelRequest) -> PartPosition | None:
    """The part that the error names, if it exists, may go, and did not go before."""
    if refusal.position is None or not 0 <= refusal.position < len(request.transcript):
        return None
    place = (refusal.position, refusal.part or 0)
    return None if place in request.quarantine else place


def _find_similar_parts(part_position: PartPosition, request: ModelRequest) -> list[PartPosition]:
    """All parts like this one: where two were refused, the third will be."""
    kind = type(_get_part(request.transcript, part_position))
    if kind in (Text, ToolCall, type(None)):
        return [part_position]
    return [
        (position, number)
        for position, item in enumerate(request.transcript)
        for number, part in enumerate(_list_parts(item))
        if type(part) is kind and (position, number) not in request.quarantine
    ]


def _list_suspects(request: ModelRequest) -> Iterator[PartPosition]:
    """What could be refused, the likeliest first.

    What came after the last accepted request goes before what was accepted once; within both,
    pictures, documents, sealed blocks and very long texts go before plain words.
    """
    transcript = request.transcript
    border = len(transcript)
    while border > 0 and not isinstance(transcript[border - 1], AssistantItem):
        border -= 1
    border = max(0, border - 1)
    fresh = [*range(border, len(transcript))]
    for positions, with_words in ((fresh, False), (range(border), False), (fresh, True)):
        for position in reversed(positions):
            for number, part in enumerate(_list_parts(transcript[position])):
                is_word = isinstance(part, (Text, str)) and len(_part_text(part)) <= LONG_TEXT_CHARS
                if isinstance(part, ToolCall) or (position, number) in request.quarantine:
                    continue
                if is_word is with_words:
                    yield position, number


def _list_parts(item: Item) -> tuple[object, ...]:
    """The parts of an item; a notice or a summary is one part, its text."""
    content: tuple[object, ...] = getattr(item, "content", ())
    return content or (getattr(item, "text", ""),)


def _get_part(transcript: Transcript, part_position: PartPosition) -> object:
    content = _list_parts(transcript[part_position[0]])
    return content[part_position[1]] if part_position[1] < len(content) else None


def _part_text(part: object) -> str:
    if isinstance(part, (Image, Document)):
        return ""
    return part if isinstance(part, str) else getattr(part, "text", "")
