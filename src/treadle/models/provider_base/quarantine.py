"""Finds the part of a request that a provider refuses, so that the rest can be sent.

`RefusalSearch` is used by provider_base/http_model.py after a refusal. A refused request is not
sent again unchanged, but for the last case below: the tool or the part that the error names is left
out, or else the part is found by bisection. The log keeps everything, the loop remembers what is
quarantined, and the user sees one line. A request that is too long is left to compaction.

    refused ─▶ the error is about the effort ─▶ lower it ─▶ send again
       ├─▶ the error names a tool ─▶ leave it out ─▶ send again
       ├─▶ the error names a part ─▶ leave it out ─▶ send again
       └─▶ leave out all suspects ─▶ still refused: search the tools (refused_tools.py), or raise
                          └─▶ accepted: bisect the suspects, down to one
                                 └─▶ text of the user: send all of it once more
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallDelta,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
    SettleUsage,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import BadRequest, ContextTooLong
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, UserItem
from treadle.core.transcript.usage import NO_USAGE, UNKNOWN_USAGE, Usage
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.provider_base.effort import find_accepted_effort, get_effort
from treadle.models.provider_base.refused_tools import ToolSearch

PartPosition = tuple[int, int]
EventBatches = AsyncIterator[Sequence[ModelEvent]]
OpenExchange = Callable[[ModelRequest], AbstractAsyncContextManager[EventBatches]]

LONG_TEXT_CHARS = 20_000
MAX_NAMED_PARTS = 4  # refusals in a row that are solved by the part that the error names
MAX_CULPRITS = 3  # refusals in a row that are solved by bisection
MAX_REFUSED_TOOLS = 16  # in one request
MAX_PROBE_CHARS = 2_000  # of the reply to a probe that are read until its usage comes

# The error names a setting of the request, so no part of the history is to blame.
_SETTING = compile_lazily(
    r"['`\"]?(tools|tool_choice|system|model|max_tokens|max_completion_tokens|temperature|top_p|"
    r"top_k|thinking|reasoning|output_config|response_format|text\.format|stop_sequences|stop|"
    r"metadata|stream|betas?)\b"
)


class RefusalSearch:
    """Finds what is refused with as few requests as possible.

    `take_refused_tools` are the tools that are left out; `take_events` has a line for each find.
    """

    def __init__(self, open_exchange: OpenExchange, request: ModelRequest, card: ModelCard) -> None:
        self._open_exchange = open_exchange
        self._card = card
        self.lowered_efforts: dict[str, str] = {}  # a refused effort -> the one that is used
        self._request = request
        self._first_refusal: BadRequest | None = None
        self._culprits: list[PartPosition] = []
        self._events: list[ModelEvent] = []
        self._named_parts: list[PartPosition] = []
        self._tried: set[frozenset[PartPosition]] = set()
        self._request_count = 0
        self._doubtful: tuple[PartPosition, bool] | None = None  # see `_bisect`
        self._tool_search = ToolSearch(self._is_accepted_without_tools)
        self._refused_tools: list[ToolSpec] = []
        self._taken_count = 0  # of the refused tools

    def take_refused_tools(self) -> list[ToolSpec]:
        """The tools that are left out since the last time."""
        taken, self._taken_count = (
            self._refused_tools[self._taken_count :],
            len(self._refused_tools),
        )
        return taken

    def take_events(self) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events

    async def next_request(self, refused: ModelRequest, refusal: BadRequest) -> ModelRequest:
        """The request to send instead; raises the refusal if there is none."""
        if self._first_refusal is None:
            self._first_refusal = refusal
        if self._lower_effort(refused, refusal) or self._leave_out_named_tool(refused, refusal):
            return self._request_without(self._culprits)
        self._tried.add(refused.quarantine)
        setting = _SETTING.match(refusal.param or refusal.provider_message)
        if setting is not None and setting[1] != "tools":
            raise refusal
        if setting is not None or self._tool_search.has_suspects:
            await self._leave_out_found_tools(refused, refusal)
            return self._request_without(self._culprits)
        part = _find_named_part(refusal, refused)
        if part is not None and len(self._named_parts) < MAX_NAMED_PARTS:
            self._named_parts.append(part)
            is_first = len(self._named_parts) == 1
            self._quarantine([part] if is_first else _find_similar_parts(part, refused), refusal)
        elif len(self._named_parts) < MAX_NAMED_PARTS + MAX_CULPRITS:
            self._named_parts.append((-1, -1))
            culprit = await self._bisect(refused, refusal)
            if culprit is None:
                return self._request_without(self._culprits)
            self._quarantine([culprit], refusal)
        else:
            raise refusal
        following = self._request_without(self._culprits)
        if following.quarantine in self._tried:
            raise refusal
        return following

    def _quarantine(self, parts: list[PartPosition], refusal: BadRequest) -> None:
        self._culprits += parts
        self._events += [PartQuarantined(*part, str(refusal)) for part in parts]

    def _lower_effort(self, refused: ModelRequest, refusal: BadRequest) -> bool:
        effort = get_effort(refused.options, self._card)
        accepted = find_accepted_effort(effort, refusal)
        if accepted is None or not self.lowered_efforts.keys().isdisjoint((effort, accepted)):
            return False
        self.lowered_efforts[effort] = accepted
        self._request = with_effort(self._request, accepted)
        self._tried.clear()  # a request with another effort is another one
        instead = f"{accepted!r} is used instead" if accepted else "it is asked for none"
        self._events.append(ModelNotified(f"the model refuses the effort {effort!r}: {instead}"))
        return True

    def _leave_out_named_tool(self, refused: ModelRequest, refusal: BadRequest) -> bool:
        """Leave out the tool that the error names, unless the caller asked for this tool."""
        named = [spec for spec in refused.tools if spec.name == refusal.tool]
        is_wanted = refused.options.tool_choice == refusal.tool
        if not named or is_wanted or len(self._refused_tools) >= MAX_REFUSED_TOOLS:
            return False
        self._leave_out_tools(named, refusal)
        return True

    async def _leave_out_found_tools(self, refused: ModelRequest, refusal: BadRequest) -> None:
        """Leave out the tools that a search finds; raise the refusal if no tool is to blame."""
        found = await self._tool_search.find(refused)
        if found:
            self._leave_out_tools(found, refusal)
        elif found is not None:
            raise refusal

    def _leave_out_tools(self, refused_tools: list[ToolSpec], refusal: BadRequest) -> None:
        self._request = without_tools(self._request, refused_tools, self._card)
        self._tried.clear()  # a request with other tools is another one
        self._refused_tools += refused_tools
        names = ", ".join(repr(spec.name) for spec in refused_tools)
        subject = f"the tool {names} is" if len(refused_tools) == 1 else f"the tools {names} are"
        how = "left out of the requests to this model"
        if all(may_be_sent_as_json(spec, self._card) for spec in refused_tools):
            how = "called with JSON by this model"
        line = f"{subject} {how}: {refusal}"
        self._events.append(ModelNotified(line))

    def _request_without(
        self, parts: Sequence[PartPosition], tools: Sequence[ToolSpec] = ()
    ) -> ModelRequest:
        """Another request, so it has another key: the same key would mean the same answer."""
        self._request_count += 1
        shorter = without_tools(self._request, tools, self._card)
        quarantine, key = self._request.quarantine.union(parts), self._request.idempotency_key
        content = repr((sorted(quarantine), [spec.name for spec in shorter.tools]))
        key = f"{key}/{self._request_count}-{zlib.crc32(content.encode()):08x}" if key else ""
        return msgspec.structs.replace(shorter, quarantine=quarantine, idempotency_key=key)

    async def _bisect(self, refused: ModelRequest, refusal: BadRequest) -> PartPosition | None:
        """One culprit: the last of the fewest first suspects without which it is accepted.

        The text of a user needs another refusal of the whole request. None: send it once more,
        because the refusals may have been passing ones; then `_doubtful` is that text, and whether
        it is the only suspect. Also None: some tools are left out, because the content is accepted.
        """
        assert self._first_refusal is not None
        if self._doubtful is not None:
            culprit, is_alone = self._doubtful
            self._doubtful = None
            if is_alone:
                return culprit
            raise self._first_refusal
        suspects = list(_list_suspects(refused))
        if not suspects or not await self._is_accepted_without(suspects):
            await self._leave_out_found_tools(refused, refusal)
            return None
        low, high = 0, len(suspects)  # refused without the first `low`, accepted without `high`
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_accepted_without(suspects[:middle]):
                high = middle
            else:
                low = middle
        culprit = suspects[high - 1]
        if not _is_text_of_user(self._request.transcript[culprit[0]], culprit[1]):
            return culprit
        others = [part for part in suspects if part != culprit]
        is_alone = not others or not await self._is_accepted_without(others)
        self._doubtful = (culprit, is_alone)
        return None

    async def _is_accepted_without(self, parts: list[PartPosition]) -> bool:
        probe = self._request_without([*self._culprits, *parts])
        if probe.quarantine in self._tried:
            return False
        is_accepted = await self._is_accepted(probe)
        if not is_accepted:
            self._tried.add(probe.quarantine)
        return is_accepted

    async def _is_accepted_without_tools(self, tools: Sequence[ToolSpec]) -> bool:
        return await self._is_accepted(self._request_without(self._culprits, tools))

    async def _is_accepted(self, probe: ModelRequest) -> bool:
        """Send the request as far as it is admitted; stop when its acceptance and its usage are
        known. The refusal is raised if it is not admitted."""
        settle: SettleUsage | None = None
        if probe.admit_probe is not None:
            settle = await probe.admit_probe(probe)
            if settle is None:
                assert self._first_refusal is not None
                raise self._first_refusal
        used = NO_USAGE
        try:
            async with self._open_exchange(probe) as batches:
                async for known in _read_usage(batches):
                    used = known
        except ContextTooLong:
            raise
        except BadRequest:
            return False
        finally:
            if settle is not None:
                settle(used)
        return True


async def _read_usage(batches: EventBatches) -> AsyncIterator[Usage]:
    """What the reply to a probe has used: unknown, and then as soon as it is known. The reply is
    paid for, so no more of it is read than some providers need to tell."""
    chars = 0
    async for events in batches:
        for event in events:
            if isinstance(event, ModelUsageUpdated) and event.usage.requests:
                yield event.usage
                return
            if isinstance(event, Reply):
                yield event.item.usage if event.item.usage.requests else UNKNOWN_USAGE
                return
            if isinstance(event, (ModelTextDelta, ModelThinkingDelta, ModelToolCallDelta)):
                chars += len(event.text)
        if events:
            yield UNKNOWN_USAGE
        if chars > MAX_PROBE_CHARS:
            return


def with_effort(request: ModelRequest, effort: str) -> ModelRequest:
    options = msgspec.structs.replace(request.options, thinking=effort)
    return msgspec.structs.replace(request, options=options)


def without_tools(
    request: ModelRequest, left_out: Sequence[ToolSpec], card: ModelCard
) -> ModelRequest:
    """The request without these tools; one with a grammar is kept without it."""
    if not left_out:
        return request
    tools: list[ToolSpec] = []
    for spec in request.tools:
        if spec in left_out and may_be_sent_as_json(spec, card):
            spec = msgspec.structs.replace(spec, grammar="")
        if spec not in left_out:
            tools.append(spec)
    return msgspec.structs.replace(request, tools=tuple(tools))


def may_be_sent_as_json(spec: ToolSpec, card: ModelCard) -> bool:
    """Whether it is sent with its grammar, which may be what is refused."""
    return bool(spec.grammar) and "free_text" in card.abilities


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


def _is_text_of_user(item: Item, number: int) -> bool:
    return isinstance(item, UserItem) and isinstance(item.content[number], Text)


def _list_suspects(request: ModelRequest) -> Iterator[PartPosition]:
    """The parts that could be refused, the likeliest first.

    New parts come before those that were accepted once; among both, images, documents, encrypted
    blocks, arguments of calls and very long texts come before short texts.
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
                if _is_call_without_arguments(part) or (position, number) in request.quarantine:
                    continue
                text = part.text if isinstance(part, Text) else part
                is_short = isinstance(text, str) and len(text) <= LONG_TEXT_CHARS
                if is_short is short_texts:
                    yield position, number


def _is_call_without_arguments(part: object) -> bool:
    """A call stays in the request; only its arguments can be left out."""
    return isinstance(part, ToolCall) and part.arguments == {}


def _list_parts(item: Item) -> tuple[object, ...]:
    """The parts of an item; a notice or a summary has one part, its text."""
    content: tuple[object, ...] = getattr(item, "content", ())
    return content or (getattr(item, "text", ""),)
