"""Finds the part of a request that a provider refuses, and leaves it out.

`QuarantiningModel(model)` wraps a model. A refused request is never sent again unchanged: the part
that the error names is quarantined, or else the part is found by bisection. The log keeps
everything, the loop remembers what is quarantined, and the user sees one line. A request that is
too long is left to compaction.

    refused ─▶ the error names a part ─▶ leave it out ─▶ send again
       └─▶ leave out all suspects ─▶ still refused: the content is not the cause, raise the error
                          └─▶ accepted: bisect the suspects, down to one
"""

from __future__ import annotations

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
from treadle.core.lazy_regex import compile_lazily
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item
from treadle.core.transcript.usage import Usage

PartPosition = tuple[int, int]

LONG_TEXT_CHARS = 20_000
MAX_NAMED_PARTS = 4  # refusals in a row that are solved by the part that the error names
MAX_CULPRITS = 3  # refusals in a row that are solved by bisection

# The error names a setting of the request, so no part of the history is to blame.
_SETTING = compile_lazily(
    r"['`\"]?(tools|tool_choice|system|model|max_tokens|max_completion_tokens|temperature|top_p|"
    r"top_k|thinking|reasoning|output_config|response_format|text\.format|stop_sequences|stop|"
    r"metadata|stream|betas?)\b"
)


class QuarantiningModel(WrappedModel):
    """The same model, but a refused request is sent again without the refused part."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        search = _CulpritSearch(self._model, request)
        current = request
        while True:
            has_streamed = False
            try:
                async with open_stream(self._model, current) as events:
                    async for event in events:
                        if type(event) is Reply:
                            event = search.add_search_usage(event)
                        has_streamed = has_streamed or type(event) is not ModelUsageUpdated
                        yield event
                return
            except ContextTooLong:
                raise
            except BadRequest as refusal:
                if has_streamed:  # events that were emitted cannot be taken back
                    raise
                current = await search.next_request(current, refusal)
                for part in search.take_new_culprits():
                    yield PartQuarantined(*part, search.reason)


class _CulpritSearch:
    """Finds the refused part with as few requests as possible."""

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
        new = self._culprits[self._reported_count :]
        self._reported_count = len(self._culprits)
        return new

    def add_search_usage(self, reply: Reply) -> Reply:
        """The reply with the usage of the search added."""
        if not self._search_usage.requests:
            return reply
        usage = reply.item.usage + self._search_usage
        return Reply(msgspec.structs.replace(reply.item, usage=usage))

    async def next_request(self, refused: ModelRequest, refusal: BadRequest) -> ModelRequest:
        """The request to send instead; raises the refusal if there is none."""
        if self._first_refusal is None:
            self._first_refusal = refusal
            self.reason = str(refusal)
        self._tried.add(refused.quarantine)
        if _SETTING.match(refusal.param or refusal.provider_message):
            raise refusal
        part = _find_named_part(refusal, refused)
        if part is not None and len(self._named_parts) < MAX_NAMED_PARTS:
            self._named_parts.append(part)
            is_first = len(self._named_parts) == 1
            self._culprits += [part] if is_first else _find_similar_parts(part, refused)
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
        """One culprit: the last of the fewest first suspects without which it is accepted."""
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
        """Send the request without these parts; stop at the first event of a reply."""
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
    """The part that the error names, if it exists and is not quarantined yet."""
    if refusal.position is None or not 0 <= refusal.position < len(request.transcript):
        return None
    part = (refusal.position, refusal.part or 0)
    return None if part in request.quarantine else part


def _find_similar_parts(part_position: PartPosition, request: ModelRequest) -> list[PartPosition]:
    """All parts of the same type: after two refusals, the others would be refused too."""
    parts = _list_parts(request.transcript[part_position[0]])
    kind = type(parts[part_position[1]]) if part_position[1] < len(parts) else type(None)
    if kind in (Text, ToolCall, type(None)):
        return [part_position]
    return [
        (position, number)
        for position, item in enumerate(request.transcript)
        for number, part in enumerate(_list_parts(item))
        if type(part) is kind and (position, number) not in request.quarantine
    ]


def _list_suspects(request: ModelRequest) -> Iterator[PartPosition]:
    """The parts that could be refused, the likeliest first.

    New parts come before those that were accepted once; among both, images, documents, encrypted
    blocks and very long texts come before short texts.
    """
    transcript = request.transcript
    first_new = len(transcript)
    while first_new > 0 and not isinstance(transcript[first_new - 1], AssistantItem):
        first_new -= 1
    first_new = max(0, first_new - 1)
    new = range(first_new, len(transcript))
    for positions, short_texts in ((new, False), (range(first_new), False), (new, True)):
        for position in reversed(positions):
            for number, part in enumerate(_list_parts(transcript[position])):
                if isinstance(part, ToolCall) or (position, number) in request.quarantine:
                    continue
                text = part.text if isinstance(part, Text) else part
                is_short = isinstance(text, str) and len(text) <= LONG_TEXT_CHARS
                if is_short is short_texts:
                    yield position, number


def _list_parts(item: Item) -> tuple[object, ...]:
    """The parts of an item; a notice or a summary has one part, its text."""
    content: tuple[object, ...] = getattr(item, "content", ())
    return content or (getattr(item, "text", ""),)
