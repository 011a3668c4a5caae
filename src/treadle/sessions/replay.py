"""Runs a session again with the replies and tool results of its log.

    Recording   one part of a log between rewinds: user messages, replies, results
    .model      a Model that gives the recorded replies
    .source     tools that give the recorded results
    .mutator    adds recorded items from outside the loop (compactions, notices), and compares

The loop is under test: it must make the same calls in the same order and come to the same
transcript. There is no network access and no effect. Live tools, if given, are called and their
results compared; the recorded result is used to continue. The caller builds an agent from these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.source import BaseSource, ToolSource
from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ModelError, ToolError
from treadle.core.transcript.content import Arguments, Text
from treadle.core.transcript.entries import Entry, ItemAdded, Rewound
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.lib.sequences import common_prefix_length

NO_LIMIT = 1 << 40


class ToolMismatch(msgspec.Struct, frozen=True):
    """The result of a live tool differs from the recorded one."""

    call_id: str
    name: str
    arguments: str
    recorded: str
    actual: str


class Recording:
    """One part of a session: a view, and the entries that followed it."""

    def __init__(self, start: SessionState, entries: Sequence[Entry]) -> None:
        self.start = start
        # The items before each reply; the last list holds those after the last reply.
        self.items_before_reply: list[list[Item]] = [[]]
        self.views: list[Transcript] = []  # the view that each reply answers
        self.replies: list[AssistantItem] = []
        self.results: dict[str, ToolResultItem] = {}
        self.tool_names: set[str] = set()
        # On a list of its own: the run that is compared begins with that of `start`.
        view = msgspec.structs.replace(start, transcript=Transcript(start.transcript))
        rest: list[Entry] = []
        for entry in entries:
            item = entry.item if isinstance(entry, ItemAdded) else None
            if isinstance(item, AssistantItem):
                view, rest = fold_entries(rest, view), []
                self.views.append(view.transcript)
                self.replies.append(item)
                self.tool_names.update(call.name for call in item.calls)
                self.items_before_reply.append([])
            elif item is not None:
                self.items_before_reply[-1].append(item)
                if isinstance(item, ToolResultItem):
                    self.results[item.call_id] = item
            rest.append(entry)
        self.end = fold_entries(rest, view).transcript
        self.model = ReplayModel(self)
        self.mutator = ReplayMutator(self)
        self.mismatches: list[ToolMismatch] = []

    @property
    def reply_count(self) -> int:
        """How many replies have been given so far."""
        return self.model.reply_count

    @property
    def is_finished(self) -> bool:
        return self.reply_count >= len(self.replies)

    def next_user_items(self) -> list[UserItem]:
        """The user messages before the next reply."""
        if self.reply_count >= len(self.items_before_reply):
            return []
        items = self.items_before_reply[self.reply_count]
        return [item for item in items if isinstance(item, UserItem)]

    def source(self, live_source: ToolSource | None = None) -> ReplaySource:
        return ReplaySource(self, live_source)

    def difference(self, transcript: Sequence[Item]) -> Difference | None:
        """The first difference of the run; None if it came to the same transcript."""
        if self.mutator.difference is not None:
            return self.mutator.difference
        self.mutator.compare(transcript, self.reply_count)
        return self.mutator.difference


def split_recordings(entries: Sequence[Entry]) -> list[Recording]:
    """The parts of a session that can be run again: a rewind ends one and begins the next."""
    recordings: list[Recording] = []
    start = 0
    for position, entry in enumerate(entries):
        if isinstance(entry, Rewound):
            recordings.append(Recording(fold_entries(entries[:start]), entries[start:position]))
            start = position + 1
    recordings.append(Recording(fold_entries(entries[:start]), entries[start:]))
    return [recording for recording in recordings if recording.replies]


class ReplayModel:
    """A Model that gives the recorded replies in order."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.reply_count = 0

    @property
    def name(self) -> str:
        return "recorded"

    @property
    def card(self) -> ModelCard:
        return ModelCard(self.name, window=NO_LIMIT, max_output=NO_LIMIT)

    @property
    def fallback(self) -> Model | None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        replies = self._recording.replies
        if self.reply_count >= len(replies):
            raise ModelError("the recording ends here", provider=self.name)
        reply = replies[self.reply_count]
        self.reply_count += 1
        for part in reply.content:
            if type(part) is Text and part.text:
                yield ModelTextDelta(part.text)
        for call in reply.calls:
            yield ModelToolCallRequested(call)
        yield Reply(reply)

    async def aclose(self) -> None:
        return None


class ReplaySource(BaseSource):
    """A ToolSource with every tool that was called."""

    name = "recorded"

    def __init__(self, recording: Recording, live_source: ToolSource | None) -> None:
        self._live = live_source
        live = {tool.spec.name: tool for tool in live_source.tools()} if live_source else {}
        names = sorted(recording.tool_names)
        self._tools = tuple(ReplayTool(name, recording, live.get(name)) for name in names)

    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def open(self) -> None:
        if self._live is not None:
            await self._live.open()

    async def aclose(self) -> None:
        if self._live is not None:
            await self._live.aclose()


class ReplayTool(BaseTool):
    """Gives the recorded result. A live tool, if given, is called too, and differences recorded."""

    def __init__(self, name: str, recording: Recording, live_tool: Tool | None) -> None:
        self._recording = recording
        self._live_tool = live_tool
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        # Pure: it has no effect, so no intent is recorded.
        self._spec = ToolSpec(name, "As recorded.", schema, "pure", max_result_chars=NO_LIMIT)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        result = self._recording.results.get(context.call_id)
        if result is None:
            raise ToolError("the recording has no result for this call")
        if self._live_tool is not None:
            now = await _call_live_tool(self._live_tool, arguments, context)
            if result.is_truncated:
                now = now[: len(result.text)]
            if now != result.text:
                raw = msgspec.json.encode(arguments).decode()
                found = ToolMismatch(context.call_id, self._spec.name, raw, result.text, now)
                self._recording.mismatches.append(found)
        shown = result.display, result.is_error, result.full_output, result.data
        return ToolOutput(result.content, *shown)

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("unknown", "a replayed call has no effect to check")


async def _call_live_tool(tool: Tool, arguments: Arguments, context: ToolContext) -> str:
    """The result of a live tool as text; an exception gives its error text."""
    try:
        problem = tool.check(arguments)
        if problem is not None:
            return f"error: {problem}"
        output = await tool.call(arguments, context)
    except Exception as error:  # noqa: BLE001 - any exception is the tool's result
        return f"error: {error}"
    return output.text


class ReplayMutator:
    """A Mutator that compares before each reply, and adds recorded items from outside the loop."""

    name = "replay"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._compared_length = len(recording.start.transcript)
        self._skipped_to = -1
        self.difference: Difference | None = None

    async def mutate(self, context: MutationContext) -> Transcript | None:
        index = self._recording.reply_count
        if index >= len(self._recording.views) or not self._is_matching(context.transcript, index):
            return None
        recorded = self._recording.views[index]
        self._compared_length = len(recorded)
        # On a list of its own: the recorded one has the ids of later calls, too.
        return None if list(recorded) == list(context.transcript) else Transcript(recorded)

    def skip_to_next_reply(self) -> SessionState:
        """The view before the next reply, for a driver that starts there: no user message, which
        could be submitted again, caused this reply."""
        recorded = self._recording.views[self._recording.reply_count]
        self._skipped_to = self._recording.reply_count
        return SessionState(transcript=Transcript(recorded))

    def _is_matching(self, transcript: Sequence[Item], reply_index: int) -> bool:
        if self.difference is None and self._skipped_to != reply_index:
            self.compare(transcript, reply_index)
        return self.difference is None

    def compare(self, transcript: Sequence[Item], reply_index: int) -> None:
        """Compare the items that the loop added since the last reply with the recorded ones."""
        replies = self._recording.replies[reply_index - 1 : reply_index] if reply_index else []
        recorded = _conversation_items([*replies, *self._recording.items_before_reply[reply_index]])
        actual = _conversation_items(list(transcript)[self._compared_length :])
        is_end = reply_index >= len(self._recording.replies)
        if is_end or not any(isinstance(item, UserItem) for item in actual):
            # Messages without a reply, or that came while the loop continued by itself.
            recorded, actual = _without_messages(recorded), _without_messages(actual)
        if is_end:
            actual = actual[: len(recorded)]  # the log may stop in the middle of a round
        unreadable = {c.id for reply in replies for c in reply.calls if c.arguments is None}
        difference = find_first_difference(
            _without_refusals(recorded, unreadable), _without_refusals(actual, unreadable)
        )
        if difference is not None:
            position = self._compared_length + difference.position
            self.difference = msgspec.structs.replace(difference, position=position)


def _without_refusals(items: Sequence[Item], unreadable: set[str]) -> list[Item]:
    """With empty results of calls that no tool has run: another version refuses them in other
    words."""
    return [
        msgspec.structs.replace(item, content=())
        if isinstance(item, ToolResultItem) and item.is_error and item.call_id in unreadable
        else item
        for item in items
    ]


def _without_messages(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if not isinstance(item, UserItem)]


def _conversation_items(items: Sequence[Item]) -> list[Item]:
    """Without notices and summaries of the engine, which are added as recorded."""
    return [item for item in items if isinstance(item, (UserItem, AssistantItem, ToolResultItem))]


# --- two histories -------------------------------------------------------------------------


class Difference(msgspec.Struct, frozen=True):
    """The first difference of two histories; None means that a history has ended."""

    position: int
    left: Item | None
    right: Item | None


def find_first_difference(left: Sequence[Item], right: Sequence[Item]) -> Difference | None:
    """The first item that differs. Messages, calls and results count; usage, reply ids, model names
    and data for programs do not."""
    position = common_prefix_length(left, right, is_same)
    if position == len(left) == len(right):
        return None
    pair = (items[position] if position < len(items) else None for items in (left, right))
    return Difference(position, *pair)


def is_same(one: Item, two: Item) -> bool:
    return _comparable_value(one) == _comparable_value(two)


def _comparable_value(item: Item) -> object:
    if isinstance(item, AssistantItem):
        return msgspec.structs.replace(item, usage=Usage(), response_id="", model="")
    if isinstance(item, ToolResultItem):
        return (item.call_id, item.name, item.content, item.is_error)
    if isinstance(item, NoticeItem):
        return (item.text, item.kind, item.next_move)
    return item
