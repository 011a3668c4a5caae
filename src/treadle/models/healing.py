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
    PartQuarantined,
    Reply,
    UsageSeen,
)
from treadle.core.contracts.wrapping import WrappedModel, streaming
from treadle.core.errors import BadRequest, ContextTooLong
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

Place = tuple[int, int]

LONG_TEXT = 20_000
MAX_NAMED = 4  # parts that errors may name one after the other before their kind goes as a whole
MAX_CULPRITS = 3

# The refusal is about the request's settings: no part of the history is to blame.
_NOT_CONTENT = re.compile(
    r"refused the request: ['`\"]?(tools|tool_choice|system|model|max_tokens|max_completion_tokens|"
    r"temperature|top_p|top_k|thinking|reasoning|output_config|response_format|text\.format|"
    r"stop_sequences|stop|metadata|stream|betas?)\b",
)


class Healing(WrappedModel):
    """The same model, but a request that it refuses is mended and sent again."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        search = _Search(self._model, request)
        current = request
        while True:
            has_spoken = False
            try:
                async with streaming(self._model, current) as events:
                    async for event in events:
                        if type(event) is Reply:
                            event = search.with_usage(event)
                        has_spoken = has_spoken or type(event) is not UsageSeen
                        yield event
                return
            except ContextTooLong:
                raise
            except BadRequest as refusal:
                if has_spoken:  # what was told cannot be taken back here
                    raise
                current = await search.next(current, refusal)
                for place in search.newly_found():
                    yield PartQuarantined(*place, search.reason)


class _Search:
    """Looks for what is refused, over as few requests as it can."""

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._first: BadRequest | None = None
        self._found: list[Place] = []
        self._told = 0
        self._named: list[Place] = []
        self._spent = Usage()
        self._tried: set[frozenset[Place]] = set()
        self.reason = ""

    def newly_found(self) -> list[Place]:
        fresh = self._found[self._told :]
        self._told = len(self._found)
        return fresh

    def with_usage(self, reply: Reply) -> Reply:
        """What the search itself used was paid for too."""
        if not self._spent.requests:
            return reply
        usage = reply.item.usage + self._spent
        return Reply(msgspec.structs.replace(reply.item, usage=usage))

    async def next(self, refused: ModelRequest, refusal: BadRequest) -> ModelRequest:
        """The request to send instead; raises the refusal when there is none."""
        if self._first is None:
            self._first = refusal
            self.reason = str(refusal)
        self._tried.add(refused.quarantine)
        if _NOT_CONTENT.search(str(refusal)):
            raise refusal
        place = _place_of(refusal, refused)
        if place is not None and len(self._named) < MAX_NAMED:
            self._named.append(place)
            self._found += _with_its_kind(place, refused) if len(self._named) > 1 else [place]
        elif len(self._named) < MAX_NAMED + MAX_CULPRITS:
            self._named.append((-1, -1))
            self._found += await self._halve(refused)
        else:
            raise refusal
        following = self._without(self._found)
        if following.quarantine in self._tried:
            raise refusal
        return following

    def _without(self, places: list[Place]) -> ModelRequest:
        quarantine = self._request.quarantine.union(places)
        return msgspec.structs.replace(self._request, quarantine=quarantine)

    async def _halve(self, refused: ModelRequest) -> list[Place]:
        """One culprit: the last of the shortest run of suspects without which it is accepted."""
        suspects = list(_suspects(refused))
        assert self._first is not None
        if not suspects or not await self._accepts(suspects):
            raise self._first
        low, high = 0, len(suspects)  # refused without the first `low`, accepted without `high`
        while high - low > 1:
            middle = (low + high) // 2
            if await self._accepts(suspects[:middle]):
                high = middle
            else:
                low = middle
        return [suspects[high - 1]]

    async def _accepts(self, left_out: list[Place]) -> bool:
        """Ask, and hang up at the first sign of an answer."""
        probe = self._without([*self._found, *left_out])
        if probe.quarantine in self._tried:
            return False
        try:
            async with streaming(self._model, probe) as events:
                async for event in events:
                    if type(event) is UsageSeen:
                        self._spent += event.usage
                    break
        except ContextTooLong:
            raise
        except BadRequest:
            self._tried.add(probe.quarantine)
            return False
        return True


def _place_of(refusal: BadRequest, request: ModelRequest) -> Place | None:
    """The part that the error names, if it exists, may go, and did not go before."""
    if refusal.position is None or not 0 <= refusal.position < len(request.transcript):
        return None
    place = (refusal.position, refusal.part or 0)
    return None if place in request.quarantine else place


def _with_its_kind(place: Place, request: ModelRequest) -> list[Place]:
    """All parts like this one: where two were refused, the third will be."""
    kind = type(_part(request.transcript, place))
    if kind in (Text, ToolCall, type(None)):
        return [place]
    return [
        (position, number)
        for position, item in enumerate(request.transcript)
        for number, part in enumerate(_content(item))
        if type(part) is kind and (position, number) not in request.quarantine
    ]


def _suspects(request: ModelRequest) -> Iterator[Place]:
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
            for number, part in enumerate(_content(transcript[position])):
                is_word = isinstance(part, (Text, str)) and len(_words(part)) <= LONG_TEXT
                if isinstance(part, ToolCall) or (position, number) in request.quarantine:
                    continue
                if is_word is with_words:
                    yield position, number


def _content(item: Item) -> tuple[object, ...]:
    """The parts of an item; a notice or a summary is one part, its text."""
    content: tuple[object, ...] = getattr(item, "content", ())
    return content or (getattr(item, "text", ""),)


def _part(transcript: Transcript, place: Place) -> object:
    content = _content(transcript[place[0]])
    return content[place[1]] if place[1] < len(content) else None


def _words(part: object) -> str:
    if isinstance(part, (Image, Document)):
        return ""
    return part if isinstance(part, str) else getattr(part, "text", "")
