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
    CallReady,
    Model,
    ModelCard,
    ModelEvent,
    ModelRequest,
    Reply,
    TextPiece,
)
from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    Probe,
    Resources,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ModelError, ToolError
from treadle.core.transcript.content import Arguments, Text
from treadle.core.transcript.entries import Entry, ItemAdded, Rewound, View, fold
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.sessions.comparing import Difference, first_difference

NO_LIMIT = 1 << 40


class Drift(msgspec.Struct, frozen=True):
    """A tool of today answers otherwise than the recorded one did."""

    call_id: str
    name: str
    arguments: str
    then: str
    now: str


class Recording:
    """One stretch of a session: from a view, through the entries that followed."""

    def __init__(self, start: View, entries: Sequence[Entry]) -> None:
        self.start = start
        self.stretches: list[list[Item]] = [[]]  # what came before each reply, and after the last
        self.views: list[Transcript] = []  # what each reply was an answer to
        self.replies: list[AssistantItem] = []
        self.results: dict[str, ToolResultItem] = {}
        self.names: set[str] = set()
        view = start
        rest: list[Entry] = []
        for entry in entries:
            item = entry.item if isinstance(entry, ItemAdded) else None
            if isinstance(item, AssistantItem):
                view, rest = fold(rest, view), []
                self.views.append(view.transcript)
                self.replies.append(item)
                self.names.update(call.name for call in item.calls)
                self.stretches.append([])
            elif item is not None:
                self.stretches[-1].append(item)
                if isinstance(item, ToolResultItem):
                    self.results[item.call_id] = item
            rest.append(entry)
        self.end = fold(rest, view).transcript
        self.model = RecordedModel(self)
        self.mutator = Aligning(self)
        self.drifts: list[Drift] = []

    @property
    def asked(self) -> int:
        """How many replies have been given so far."""
        return self.model.asked

    @property
    def is_over(self) -> bool:
        return self.asked >= len(self.replies)

    def openers(self) -> list[UserItem]:
        """What was said by a person before the next reply."""
        if self.asked >= len(self.stretches):
            return []
        return [item for item in self.stretches[self.asked] if isinstance(item, UserItem)]

    def source(self, live: ToolSource | None = None) -> RecordedSource:
        return RecordedSource(self, live)

    def difference(self, transcript: Sequence[Item]) -> Difference | None:
        """Where the run went another way; None if it came to the same transcript."""
        if self.mutator.difference is not None:
            return self.mutator.difference
        self.mutator.compare(transcript, self.asked)
        return self.mutator.difference


def recordings(entries: Sequence[Entry]) -> list[Recording]:
    """A session as stretches that can be run again: a rewind ends one and begins the next."""
    found: list[Recording] = []
    begun = 0
    for position, entry in enumerate(entries):
        if isinstance(entry, Rewound):
            found.append(Recording(fold(entries[:begun]), entries[begun:position]))
            begun = position + 1
    found.append(Recording(fold(entries[:begun]), entries[begun:]))
    return [recording for recording in found if recording.replies]


class RecordedModel:
    """Says what was said, in the same order. A Model."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.asked = 0

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
        if self.asked >= len(replies):
            raise ModelError("the recording ends here", provider=self.name)
        reply = replies[self.asked]
        self.asked += 1
        for part in reply.content:
            if type(part) is Text and part.text:
                yield TextPiece(part.text)
        for call in reply.calls:
            yield CallReady(call)
        yield Reply(reply)

    async def aclose(self) -> None:
        return None


class RecordedSource:
    """Every tool that was called. A ToolSource."""

    def __init__(self, recording: Recording, live: ToolSource | None) -> None:
        self._live = live
        today = {tool.spec.name: tool for tool in live.tools()} if live is not None else {}
        names = sorted(recording.names)
        self._tools = tuple(RecordedTool(name, recording, today.get(name)) for name in names)

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


class RecordedTool:
    """Answers as it did. With a tool of today it asks that one too, and notes what differs."""

    def __init__(self, name: str, recording: Recording, today: Tool | None) -> None:
        self._recording = recording
        self._today = today
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        # Pure: it has no effect, and needs no place in a ledger.
        self._spec = ToolSpec(name, "As recorded.", schema, "pure", max_result_chars=NO_LIMIT)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[{self._spec.name}]"

    def resources(self, arguments: Arguments) -> Resources:
        return Resources()

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        result = self._recording.results.get(context.call_id)
        if result is None:
            raise ToolError("the recording ends before this call was answered")
        if self._today is not None:
            await self._compare(self._today, arguments, context, result)
        return ToolOutput(result.content, result.display, result.is_error, result.full_output)

    async def _compare(
        self, today: Tool, arguments: Arguments, context: ToolContext, result: ToolResultItem
    ) -> None:
        now = await _answer(today, arguments, context)
        if now != result.text:
            raw = msgspec.json.encode(arguments).decode()
            self._recording.drifts.append(
                Drift(context.call_id, self._spec.name, raw, result.text, now)
            )

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        return Probe("unknown", "this is a recording")


async def _answer(tool: Tool, arguments: Arguments, context: ToolContext) -> str:
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


class Aligning:
    """Compares before each reply, and brings in what came from outside. A Mutator."""

    name = "replay"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._aligned = len(recording.start.transcript)
        self._jumped_to = -1
        self.difference: Difference | None = None

    async def mutate(self, scene: Scene) -> Transcript | None:
        asked = self._recording.asked
        if asked >= len(self._recording.views) or not self._agrees(scene.transcript, asked):
            return None
        recorded = self._recording.views[asked]
        self._aligned = len(recorded)
        return None if list(recorded) == list(scene.transcript) else recorded

    def jump(self) -> View:
        """The view before the next reply, for a driver that begins there: what made the model
        speak was not said by a person, and cannot be said again."""
        recorded = self._recording.views[self._recording.asked]
        self._jumped_to = self._recording.asked
        return View(transcript=recorded)

    def _agrees(self, transcript: Sequence[Item], asked: int) -> bool:
        if self.difference is None and self._jumped_to != asked:
            self.compare(transcript, asked)
        return self.difference is None

    def compare(self, transcript: Sequence[Item], asked: int) -> None:
        """What the loop added since the last reply, against what was added then."""
        replies = self._recording.replies[asked - 1 : asked] if asked else []
        then = _said([*replies, *self._recording.stretches[asked]])
        now = _said(list(transcript)[self._aligned :])
        if self._is_at_the_end(asked):
            now = now[: len(then)]  # the log may stop in the middle of a round
        difference = first_difference(then, now)
        if difference is not None:
            place = self._aligned + difference.position
            self.difference = msgspec.structs.replace(difference, position=place)

    def _is_at_the_end(self, asked: int) -> bool:
        return asked >= len(self._recording.replies)


def _said(items: Sequence[Item]) -> list[Item]:
    """What people, the model and the tools said; what the engine adds is brought in as it was."""
    return [item for item in items if isinstance(item, (UserItem, AssistantItem, ToolResultItem))]
