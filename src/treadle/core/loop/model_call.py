"""One model call: request, stream, retry, and one whole reply.

A failed attempt leaves only an event: its text is discarded, and one paid reply is one assistant
item. When the next attempt may cost more than was reserved, the gates have to be asked again
(RetryWithBudget). Used by model_gateway.py; what to do about an error is in retry.py.
"""

from __future__ import annotations

import asyncio
from binascii import crc32
from collections import Counter
from typing import Literal

import msgspec

from treadle.core import events
from treadle.core.contracts.model import (
    AdmitProbe,
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
    add_cost,
)
from treadle.core.errors import (
    CacheUnsupported,
    ModelError,
    StreamBroken,
    error_message,
    error_text,
)
from treadle.core.loop.calls.call_repair import AnnouncedCalls, CallRepairer
from treadle.core.loop.calls.eager import EagerCalls
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.parts import DriverParts
from treadle.core.retry import RaiseError, RetryAfter, UseFallback, choose_recovery
from treadle.core.transcript.content import Text
from treadle.core.transcript.entry_json import decode_json, make_decoder, to_json
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.usage import NO_USAGE, UNKNOWN_USAGE, Usage
from treadle.lib.contained import as_exception
from treadle.lib.tasks import cancel_all

PartKind = Literal["", "text", "thinking"]
CHOSEN_REASON = "chosen for the next request"


class RetryWithBudget(msgspec.Struct, frozen=True):
    """Try again after asking the gates: the failed attempt was paid for, or the fallback has
    another price and window."""

    reason: Literal["retry", "fallback"]


class ModelCaller:
    """Calls the current model; a fallback that took over stays for later calls."""

    def __init__(
        self, parts: DriverParts, model: Model, emitter: Emitter, eager: EagerCalls | None = None
    ) -> None:
        """`eager`: the replies are those of turns, and their calls will run."""
        self.model = model
        self._chosen_model: Model | None = None  # for the next request
        self._choice_made: asyncio.Event | None = None  # while a retry waits
        self.last_model_name = model.name  # of the last attempt
        self._emitter = emitter
        self._clock, self._retry = parts.config.clock, parts.config.retry
        self._session = parts.session
        self._eager = eager
        self._repairer = CallRepairer(parts.toolbox) if eager is not None else None
        self._interruption = parts.interruption if eager is not None else Interruption()
        self._keys = RequestKeys()
        self.admit_probe: AdmitProbe | None = None  # see ModelRequest; set by the gateway
        self._streamed_text: list[str] = []  # the text of the running attempt
        self._has_streamed = False  # whether observers saw something of the running attempt
        self._open_part: PartKind = ""
        self._attempt_usage = NO_USAGE  # of the running attempt, as far as known
        self._lost_usage = NO_USAGE  # of attempts without a reply
        self._quarantine: frozenset[tuple[int, int]] = frozenset()
        self._attempts = 0
        self._failures: Counter[type[ModelError]] = Counter()
        self._told_budget: set[str] = set()  # models of which the user knows that they take none

    @property
    def next_model(self) -> Model:
        return self._chosen_model or self.model

    def choose_model(self, model: Model) -> None:
        """Use this model from the next request on; a retry is one."""
        if not isinstance(getattr(model, "card", None), ModelCard):
            raise TypeError(
                f"{model!r} is not a model: treadle.models.model(name) makes one of a name"
            )
        self._chosen_model = model
        if self._choice_made is not None:
            self._choice_made.set()

    def switch_to_chosen_model(self) -> None:
        """Called between two requests: a reply is never made by two models."""
        model, self._chosen_model = self._chosen_model, None
        if model is not None and model is not self.model:
            names = self.model.name, model.name
            self._emitter.emit(events.ModelChanged, *names, CHOSEN_REASON, True)
            self.model = model
            self._forget_failures()

    async def call(self, request: ModelRequest) -> AssistantItem | RetryWithBudget:
        """The whole reply, its call ids unique in this session. Raises ModelError.

        Failures are counted until there is a reply or an error: a notice that a gate or the user
        adds between two attempts makes another request, but not more attempts.
        """
        self._quarantine = request.quarantine
        try:
            while True:
                try:
                    reply = await self._attempt(self._begin_attempt(request))
                except ModelError as error:
                    self._discard_partial()
                    again = await self._recover(error)
                    self._lost_usage = self.take_lost_usage()
                    is_other = again.reason == "fallback" or self._has_choice
                    if is_other or self._lost_usage is not NO_USAGE:
                        return again
                else:
                    self._forget_failures()
                    return reply
        except BaseException:
            self._forget_failures()
            raise

    def _begin_attempt(self, request: ModelRequest) -> ModelRequest:
        """The request of the next attempt: parts that an earlier one found refused are left out."""
        self._attempts += 1
        self.last_model_name = self.model.name
        self._streamed_text.clear()
        self._open_part, self._has_streamed = "", False
        self._emitter.emit(events.RequestStarted, self.last_model_name, self._attempts)
        if request.cache.required:
            self._check_cache()
        if request.options.task_budget is not None:
            self._tell_unused_budget()
        key = self._keys.make_key(request, self._quarantine, self.last_model_name)
        return msgspec.structs.replace(
            request,
            quarantine=self._quarantine,
            idempotency_key=key,
            admit_probe=self.admit_probe,
        )

    def _forget_failures(self) -> None:
        self._attempts = 0
        self._failures.clear()

    async def _recover(self, error: ModelError) -> RetryWithBudget:
        """Wait for a retry, or switch to the fallback; raise what neither can help. A model that
        the host has chosen meanwhile makes the next attempt, at once."""
        if self._has_choice:
            return RetryWithBudget("retry")
        answer = choose_recovery(
            error,
            self._failures,
            jitter=self._clock.random(),
            has_fallback=self.model.fallback is not None,
            retry=self._retry,
        )
        self._failures[type(error)] += 1
        match answer:
            case RetryAfter(delay=delay):
                self._emitter.emit(events.RetryScheduled, self._attempts, delay, str(error))
                await self._wait_for_retry(delay)
                return RetryWithBudget("retry")
            case UseFallback():
                self._switch_to_fallback(error)
                self._failures.clear()
                return RetryWithBudget("fallback")
            case RaiseError(max_wait=limit):
                error.max_wait, error.attempts = limit, self._attempts
                raise error

    @property
    def _has_choice(self) -> bool:
        return self._chosen_model is not None and self._chosen_model is not self.model

    async def _wait_for_retry(self, delay: float) -> None:
        """Wait before a retry; a model that the host chooses ends the wait."""
        if self._chosen_model is not None:
            return
        loop, self._choice_made = asyncio.get_running_loop(), asyncio.Event()
        sleep = loop.create_task(self._clock.sleep(delay))
        choice = loop.create_task(self._choice_made.wait())
        try:
            await asyncio.wait([sleep, choice], return_when=asyncio.FIRST_COMPLETED)
            if sleep.done():
                sleep.result()
        finally:
            self._choice_made = None
            await cancel_all([sleep, choice])

    def take_partial_reply(self) -> AssistantItem | None:
        """The text that was streamed before an interruption, without calls."""
        text = "".join(self._streamed_text)
        self._streamed_text.clear()
        if not text.strip():
            return None
        if self._open_part == "text":
            self._begin_part("text", "")
        return AssistantItem((Text(text),), "aborted", self.model.name, self._attempt_usage)

    def take_lost_usage(self) -> Usage:
        """The usage of failed attempts since the last time."""
        used, attempt = self._lost_usage, self._attempt_usage
        if attempt is not NO_USAGE:
            used = used + attempt
            self._attempt_usage = NO_USAGE
        self._lost_usage = NO_USAGE
        return used

    async def _attempt(self, request: ModelRequest) -> AssistantItem:
        emit, streamed, interruption = self._emitter.emit, self._streamed_text, self._interruption
        ready = AnnouncedCalls(self._session.has_call_id, self._repairer)
        reply: AssistantItem | None = None
        part: PartKind = ""  # the open one
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        stream = self.model.stream(request)
        try:
            async for event in stream:
                kind = type(event)
                if kind is ModelTextDelta:
                    if part != "text":
                        part = self._begin_part(part, "text")
                    streamed.append(event.text)  # type: ignore[union-attr]
                    emit(events.TextDelta, event.text, event.by)  # type: ignore[union-attr]
                elif kind is ModelThinkingDelta:
                    if part != "thinking":
                        part = self._begin_part(part, "thinking")
                    emit(events.ThinkingDelta, event.text)  # type: ignore[union-attr]
                elif kind is Reply:
                    item = _check_reply(event.item, self.model.name)  # type: ignore[union-attr]
                    reply = _with_cost(item, self.model.card)
                    break
                else:
                    if part and kind is ModelToolCallBegan:
                        part = self._begin_part(part, "")
                    self._handle_event(event, ready)
                if interruption.reason is not None and interruption.is_requested():
                    raise asyncio.CancelledError
        except asyncio.CancelledError as error:
            is_cancelled = task is None or task.cancelling() > cancellations
            if is_cancelled or interruption.is_requested():
                raise
            problem = f"{self.model.name} was cancelled from inside"
            raise StreamBroken(problem, provider=self.model.name) from error
        except SystemExit as error:
            raise as_exception(error) from error
        finally:
            if reply is not None:
                self._attempt_usage = reply.usage  # lost if we are cancelled now
            elif self._has_streamed and self._attempt_usage is NO_USAGE:
                self._attempt_usage = UNKNOWN_USAGE
            close = getattr(stream, "aclose", None)
            try:
                if close is not None:
                    await close()
            except Exception as error:  # noqa: BLE001 - the reply counts, or the error before
                problem = f"{self.model.name} could not close its stream: {error_text(error)}"
                emit(events.WarningRaised, problem)
        if reply is None:
            raise StreamBroken(
                f"{self.model.name} ended its stream without a reply", provider=self.model.name
            )
        if part:
            self._begin_part(part, "")
        streamed.clear()
        self._attempt_usage = NO_USAGE  # the reply has the final usage
        return ready.complete(reply)

    def _check_cache(self) -> None:
        if "cache" not in self.model.card.abilities:
            raise CacheUnsupported(
                f"{self.model.name} has no prompt cache, and the request requires one. Choose "
                "another model, or do not require the cache.",
                provider=self.model.name,
            )

    def _tell_unused_budget(self) -> None:
        name = self.model.name
        if "task_budget" not in self.model.card.abilities and name not in self._told_budget:
            self._told_budget.add(name)
            line = (
                f"{name} takes no task_budget: the option is ignored. max_turns and budgets hold."
            )
            self._emitter.emit(events.Notified, line)

    def _begin_part(self, last: PartKind, kind: PartKind) -> PartKind:
        """End the open part and begin another one; "" stands for none."""
        if last:
            self._emitter.emit(events.PartCommitted, last)
        self._open_part = kind
        if kind:
            self._has_streamed = True
            self._emitter.emit(events.PartBegan, kind)
        return kind

    def _handle_event(self, event: ModelEvent, announced: AnnouncedCalls) -> None:
        kind, emit = type(event), self._emitter.emit
        if kind is ModelToolCallDelta:
            emit(events.ToolCallDelta, event.id, event.text)  # type: ignore[union-attr]
        elif kind is ModelToolCallBegan:
            self._has_streamed = True
            emit(events.ToolCallBegan, event.id, event.name)  # type: ignore[union-attr]
        elif kind is ModelToolCallRequested:
            self._has_streamed = True
            for call in announced.add(event.call):  # type: ignore[union-attr]
                emit(events.ToolCallRequested, call)
                if self._eager is not None:
                    self._eager.schedule(call)
        elif isinstance(event, ModelUsageUpdated):
            self._attempt_usage = add_cost(event.usage, self.model.card)
        elif isinstance(event, PartQuarantined):
            self._quarantine |= {(event.position, event.part)}
            if self._eager is not None:
                self._session.quarantine_part(event)
        elif isinstance(event, ModelNotified):
            emit(events.Notified, event.text)

    def _discard_partial(self) -> None:
        if self._has_streamed:
            self._has_streamed = False
            self._emitter.emit(events.ReplyDiscarded, sum(map(len, self._streamed_text)))
            self._streamed_text.clear()

    def _switch_to_fallback(self, error: ModelError) -> None:
        fallback = self.model.fallback
        assert fallback is not None, "recovery chose a fallback that is not there"
        self._emitter.emit(events.ModelChanged, self.model.name, fallback.name, str(error))
        self.model = fallback


def _check_reply(item: object, model: str) -> AssistantItem:
    """ModelError for a reply with which the log could not be read again: a fault of the model's
    class."""
    try:
        if isinstance(item, AssistantItem):
            logged = decode_json(to_json(item), make_decoder(AssistantItem))
            return item if logged == item else logged
        problem = f"it is a {type(item).__name__}, not an AssistantItem"
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        problem = error_message(error)
    raise ModelError(f"the reply of {model} cannot be stored: {problem}", provider=model)


def _with_cost(reply: AssistantItem, card: ModelCard) -> AssistantItem:
    usage = add_cost(reply.usage, card)
    return reply if usage is reply.usage else msgspec.structs.replace(reply, usage=usage)


class RequestKeys:
    """Makes idempotency keys: one key, one body.

    Two requests with the same key have the same content, and a request that is sent again, also
    after a crash, has its key again. The history is not read: its position stands for it. What is
    the same from request to request is read once, when it changes.
    """

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()
        self._checksum = ""

    def make_key(
        self, request: ModelRequest, quarantine: frozenset[tuple[int, int]], model: str
    ) -> str:
        """`request.idempotency_key` tells which reply of which session it asks for."""
        content = (
            request.system,
            request.tools,
            request.options,
            request.cache,
            request.metadata,
            quarantine,
            model,
        )
        if content != self._last:  # cheap while they are the same objects
            self._last = content
            tools = [(tool.name, tool.description, tool.schema) for tool in request.tools]
            checksum = crc32(ascii((*content[2:5], tools, sorted(quarantine))).encode())
            checksum = crc32(ascii((request.system, model)).encode(), checksum)
            self._checksum = f"{checksum:08x}"
        return f"{request.idempotency_key}/{self._checksum}"
