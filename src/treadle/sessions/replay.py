"""A session run again: who speaks and what the tools answer comes from the log.

    Recording   what the log holds of one stretch between rewinds: openers, replies, results
    .model      a Model that says what was said            .source  tools that answer as they did
    .mutator    brings in what came from outside the loop (compactions, notices), and compares

The loop itself is the one that is under test: it has to ask, call and answer in the same order,
and come to the same transcript. Nothing here reaches a network or has an effect; with live tools
each is called and its answer compared, and the recorded one is used to go on. Whoever stands
above puts this into an agent: agents and the loop are not known here.
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
from treadle.core.contracts.source import ToolSource
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
from treadle.core.transcript.entries import Entry, ItemAdded, Rewound, View, fold_entries
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.sessions.diff import Difference, find_first_difference

NO_LIMIT = 1 << 40


class ToolMismatch(msgspec.Struct, frozen=True):
    """A tool of today answers otherwise than the recorded one did."""

    call_id: str
    name: str
    arguments: str
    recorded: str
    actual: str


class Recording:
    """One stretch of a session: from a view, through the entries that followed."""

    def __init__(self, start: View, entries: Sequence[Entry]) -> None:
        self.start = start
        self.items_before_reply: list[list[Item]] = [
            []
        ]  # what came before each reply, and after the last
        self.views: list[Transcript] = []  # what each reply was an answer to
        self.replies: list[AssistantItem] = []
        self.results: dict[str, ToolResultItem] = {}
        self.tool_names: set[str] = set()
        view = start
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
        """What was said by a person before the next reply."""
        if self.reply_count >= len(self.items_before_reply):
            return []
        return [
            item for item in self.items_before_reply[self.reply_count] if isinstance(item, UserItem)
        ]

    def source(self, live_source: ToolSource | None = None) -> ReplaySource:
        return ReplaySource(self, live_source)

    def difference(self, transcript: Sequence[Item]) -> Difference | None:
        """Where the run went another way; None if it came to the same transcript."""
        if self.mutator.difference is not None:
            return self.mutator.difference
        self.mutator.compare(transcript, self.reply_count)
        return self.mutator.difference


def split_recordings(entries: Sequence[Entry]) -> list[Recording]:
    """A session as stretches that can be run again: a rewind ends one and begins the next."""
    found: list[Recording] = []
    begun = 0
    for position, entry in enumerate(entries):
        if isinstance(entry, Rewound):
            found.append(Recording(fold_entries(entries[:begun]), entries[begun:position]))
            begun = position + 1
    found.append(Recording(fold_entries(entries[:begun]), entries[begun:]))
    return [recording for recording in found if recording.replies]


class ReplayModel:
    """Says what was said, in the same order. A Model."""

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


class ReplaySource:
    """Every tool that was called. A ToolSource."""

    def __init__(self, recording: Recording, live_source: ToolSource | None) -> None:
        self._live = live_source
        today = (
            {tool.spec.name: tool for tool in live_source.tools()}
            if live_source is not None
            else {}
        )
        names = sorted(recording.tool_names)
        self._tools = tuple(ReplayTool(name, recording, today.get(name)) for name in names)

    @property
    def name(self) -> str:
        return "recorded"

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def instructions(self) -> str:
        return ""

    async def open(self) -> None:
        if self._live is not None:
            await self._live.open()

    async def aclose(self) -> None:
        if self._live is not None:
            await self._live.aclose()


class ReplayTool(BaseTool):
    """Answers as it did. With a tool of today it asks that one too, and notes what differs."""

    def __init__(self, name: str, recording: Recording, live_tool: Tool | None) -> None:
        self._recording = recording
        self._live_tool = live_tool
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        # Pure: it has no effect, and needs no place in a ledger.
        self._spec = ToolSpec(name, "As recorded.", schema, "pure", max_result_chars=NO_LIMIT)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        result = self._recording.results.get(context.call_id)
        if result is None:
            raise ToolError("the recording ends before this call was answered")
        if self._live_tool is not None:
            await self._compare(self._live_tool, arguments, context, result)
        return ToolOutput(result.content, result.display, result.is_error, result.full_output)

    async def _compare(
        self, live_tool: Tool, arguments: Arguments, context: ToolContext, result: ToolResultItem
    ) -> None:
        now = await _call_live_tool(live_tool, arguments, context)
        if now != result.text:
            raw = msgspec.json.encode(arguments).decode()
            self._recording.mismatches.append(
                ToolMismatch(context.call_id, self._spec.name, raw, result.text, now)
            )

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("unknown", "this is a recording")


async def _call_live_tool(tool: Tool, arguments: Arguments, context: ToolContext) -> str:
    """What a tool of today says, whatever it does instead of saying it."""
    try:
        problem = tool.check(arguments)
        if problem is not None:
            return f"error: {problem}"
        output = await tool.call(arguments, context)
    except Exception as error:  # noqa: BLE001 - whatever it throws is its answer
        return f"error: {error}"
    if isinstance(output.content, str):
        return output.content
    return "".join(part.text for part in output.content if isinstance(part, Text))


class ReplayMutator:
    """Compares before each reply, and brings in what came from outside. A Mutator."""

    name = "replay"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._compared_length = len(recording.start.transcript)
        self._skipped_to = -1
        self.difference: Difference | None = None

    async def mutate(self, context: MutationContext) -> Transcript | None:
        asked = self._recording.reply_count
        if asked >= len(self._recording.views) or not self._is_matching(context.transcript, asked):
            return None
        recorded = self._recording.views[asked]
        self._compared_length = len(recorded)
        return None if list(recorded) == list(context.transcript) else recorded

    def skip_to_next_reply(self) -> View:
        """The view before the next reply, for a driver that begins there: what made the model
        speak was not said by a person, and cannot be said again."""
        recorded = self._recording.views[self._recording.reply_count]
        self._skipped_to = self._recording.reply_count
        return View(transcript=recorded)

    def _is_matching(self, transcript: Sequence[Item], reply_index: int) -> bool:
        if self.difference is None and self._skipped_to != reply_index:
            self.compare(transcript, reply_index)
        return self.difference is None

    def compare(self, transcript: Sequence[Item], reply_index: int) -> None:
        """What the loop added since the last reply, against what was added then."""
        replies = self._recording.replies[reply_index - 1 : reply_index] if reply_index else []
        then = _conversation_items([*replies, *self._recording.items_before_reply[reply_index]])
        now = _conversation_items(list(transcript)[self._compared_length :])
        if self._is_last(reply_index):
            now = now[: len(then)]  # the log may stop in the middle of a round
        difference = find_first_difference(then, now)
        if difference is not None:
            place = self._compared_length + difference.position
            self.difference = msgspec.structs.replace(difference, position=place)

    def _is_last(self, reply_index: int) -> bool:
        return reply_index >= len(self._recording.replies)


def _conversation_items(items: Sequence[Item]) -> list[Item]:
    """What people, the model and the tools said; what the engine adds is brought in as it was."""
    return [item for item in items if isinstance(item, (UserItem, AssistantItem, ToolResultItem))]
