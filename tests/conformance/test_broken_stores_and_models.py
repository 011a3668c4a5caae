"""Each promise of a store and of a model: an implementation that breaks it is found and named."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from tests.conformance.broken import assert_all_are_broken, assert_names_the_promise
from treadle.contracts import (
    AssistantItem,
    Entry,
    ModelCard,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelTextDelta,
    ModelToolCallRequested,
    Reply,
    Store,
    StoreError,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
)
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ItemAdded
from treadle.models import Say, Scripted
from treadle.testing import ConformanceRequests, MemoryStore, check_model, check_store
from treadle.testing.conformance import model as model_promises
from treadle.testing.conformance import store as store_promises
from treadle.testing.conformance.promises import Promise
from treadle.testing.conformance.store import user_entry

# --- stores --------------------------------------------------------------------------------


class NotEmpty(MemoryStore):
    async def load(self) -> Sequence[Entry]:
        return await super().load() or [user_entry("Welcome!")]


class Forgetful(MemoryStore):
    async def aclose(self) -> None:
        self.durable.clear()


class LazyClose(MemoryStore):
    async def aclose(self) -> None:
        return None


class NewestFirst(MemoryStore):
    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self._is_first = True

    async def flush(self) -> None:
        if self._is_first and self.durable:
            self.durable[:0] = self.queued
            self.queued.clear()
        self._is_first = False
        await super().flush()


class WritesTwice(MemoryStore):
    last: Sequence[Entry] = ()

    async def flush(self) -> None:
        batch = list(self.queued) or list(self.last)
        self.queued, self.last = batch, list(batch)
        await super().flush()

    async def aclose(self) -> None:
        await super().flush()


class ClearsTooMuch(MemoryStore):
    async def flush(self) -> None:
        batch = list(self.queued)
        await asyncio.sleep(0)
        self.durable += batch
        self.queued.clear()


class Slow(MemoryStore):
    def append(self, entry: Entry) -> None:
        if self.session_id.startswith("quick") and len(self.queued) < 5:
            time.sleep(0.06)
        super().append(entry)


class LosesCancelled(MemoryStore):
    async def flush(self) -> None:
        batch = list(self.queued)
        self.queued.clear()
        await asyncio.sleep(0)
        self.durable += batch


class PlainText(MemoryStore):
    def append(self, entry: Entry) -> None:
        if isinstance(entry, ItemAdded):
            text = entry.item.text.encode(errors="replace").decode()
            if text != entry.item.text:
                entry = user_entry(text)
        super().append(entry)


class Shortens(MemoryStore):
    def append(self, entry: Entry) -> None:
        if isinstance(entry, ItemAdded) and isinstance(entry.item, ToolResultItem):
            short = (Text(entry.item.text[:100_000]),)
            entry = ItemAdded(msgspec.structs.replace(entry.item, content=short))
        super().append(entry)


class Mixing(MemoryStore):
    """The sessions `one` and `two` share their entries."""


class TypeErrors(MemoryStore):
    def append(self, entry: Entry) -> None:
        if not isinstance(entry, ItemAdded):
            msgspec.json.encode(entry)
        super().append(entry)


class DropsOnError(MemoryStore):
    async def flush(self) -> None:
        if self.failure is not None:
            batch, self.queued = self.queued, [user_entry("lost")]
            try:
                await super().flush()
            finally:
                self.queued = batch[1:]
        await super().flush()

    @property
    def write_error(self) -> StoreError | None:
        return self.failure


class ClosesSilently(MemoryStore):
    async def aclose(self) -> None:
        with contextlib.suppress(StoreError):
            await super().aclose()


class ClosesOnce(MemoryStore):
    async def aclose(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        await super().aclose()


BROKEN_STORES: dict[Promise, type[MemoryStore]] = {
    store_promises.a_new_session_is_empty: NotEmpty,
    store_promises.what_was_flushed_is_there_after_a_new_opening: Forgetful,
    store_promises.close_writes_what_was_not_flushed: LazyClose,
    store_promises.entries_keep_their_order_over_many_openings: NewestFirst,
    store_promises.flushing_twice_writes_once: WritesTwice,
    store_promises.many_flushes_at_once_are_all_kept_in_order: ClearsTooMuch,
    store_promises.append_does_not_wait: Slow,
    store_promises.a_cancelled_flush_loses_nothing: LosesCancelled,
    store_promises.any_text_comes_back_as_it_was: PlainText,
    store_promises.a_very_long_result_comes_back_as_it_was: Shortens,
    store_promises.sessions_do_not_mix: Mixing,
    store_promises.an_entry_that_cannot_be_encoded_is_refused_as_a_whole: TypeErrors,
    store_promises.a_failed_flush_can_be_repeated: DropsOnError,
    store_promises.a_close_that_fails_says_so_and_releases_the_session: ClosesSilently,
    store_promises.can_be_closed_twice: ClosesOnce,
}


def test_every_promise_of_a_store_has_a_store_that_breaks_it() -> None:
    assert_all_are_broken(BROKEN_STORES, store_promises.STORE_PROMISES)


@pytest.mark.parametrize(("promise", "broken"), BROKEN_STORES.items())
async def test_a_broken_store_is_found(promise: Promise, broken: type[MemoryStore]) -> None:
    kept: dict[str, list[Entry]] = {}
    opened: list[MemoryStore] = []

    def open_store(session_id: str) -> Store:
        opened.append(broken(session_id))
        shared = session_id.replace("two", "one") if broken is Mixing else session_id
        opened[-1].durable = kept.setdefault(shared, [])
        return opened[-1]

    def fail_writes(fails: bool) -> None:
        opened[-1].failure = StoreError("the disk is full") if fails else None

    with assert_names_the_promise("store", promise):
        await check_store(open_store, fail_writes=fail_writes)


# --- models --------------------------------------------------------------------------------

FAILING = ModelRequest(Transcript([to_user_item("fail")]))


def answer(request: ModelRequest) -> Say:
    limit = request.options.max_tokens
    if request.options.tool_choice == "any":
        return Say(calls=[("add", {"a": 2, "b": 3})])
    return Say("Hello to you.", stop="max_tokens" if limit else None)


class Good(Scripted):
    def __init__(self) -> None:
        super().__init__(answer, name="test/model")


class WrongCard(Good):
    def __init__(self) -> None:
        super().__init__()
        self.card = ModelCard("other/model")


class NoReply(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            if not isinstance(event, Reply):
                yield event


class WrongDeltas(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            yield ModelTextDelta("x") if isinstance(event, ModelTextDelta) else event


class SilentCalls(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            if not isinstance(event, ModelToolCallRequested):
                yield event


class SameIds(Scripted):
    def __init__(self) -> None:
        def repeat(request: ModelRequest) -> Say:
            if request.tools and not any(
                isinstance(item, AssistantItem) and item.model == "other/model"
                for item in request.transcript
            ):
                return Say(calls=[ToolCall("call_1", "add", "{}")])
            return answer(request)

        super().__init__(repeat, name="test/model")


class NeverCut(Scripted):
    def __init__(self) -> None:
        def say(request: ModelRequest) -> Say:
            return msgspec.structs.replace(answer(request), stop=None)

        super().__init__(say, name="test/model")


class OwnHistoryOnly(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for item in request.transcript:
            if isinstance(item, AssistantItem) and any(
                isinstance(part, Thinking) for part in item.content
            ):
                raise ValueError("unknown thinking")
        async for event in super().stream(request):
            yield event


class ChangesHistory(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        request.transcript._shared.items[0] = to_user_item(str(time.monotonic_ns()))
        async for event in super().stream(request):
            yield event


class NoUsage(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        async for event in super().stream(request):
            if isinstance(event, Reply):
                event = Reply(msgspec.structs.replace(event.item, usage=Usage()))
            yield event


class OneBuffer(Good):
    def __init__(self) -> None:
        super().__init__()
        self.open_count = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.open_count += 1
        try:
            await asyncio.sleep(0)
            async for event in super().stream(request):
                if isinstance(event, ModelTextDelta) and self.open_count > 1:
                    event = ModelTextDelta("of another stream")
                yield event
        finally:
            self.open_count -= 1


class LeavesTasks(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.work = asyncio.create_task(asyncio.sleep(1_000))
        async for event in super().stream(request):
            yield event


class OtherErrors(Good):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if request is FAILING:
            raise OSError("no connection")
        async for event in super().stream(request):
            yield event


class OneClose(Scripted):
    def __init__(self) -> None:
        def say(request: ModelRequest) -> Say:
            if request is FAILING:
                raise ModelError("it fails")
            return answer(request)

        super().__init__(say, name="test/model")

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        await super().aclose()


BROKEN_MODELS: dict[Promise, Callable[[], Scripted]] = {
    model_promises.has_a_name_and_a_card: WrongCard,
    model_promises.ends_with_exactly_one_reply: NoReply,
    model_promises.deltas_add_up_to_the_reply: WrongDeltas,
    model_promises.announces_every_call_once: SilentCalls,
    model_promises.continues_after_a_tool_round: SameIds,
    model_promises.reports_max_tokens: NeverCut,
    model_promises.accepts_any_valid_history: OwnHistoryOnly,
    model_promises.does_not_change_the_transcript: ChangesHistory,
    model_promises.reports_usage: NoUsage,
    model_promises.serves_many_streams_at_once: OneBuffer,
    model_promises.can_be_closed_and_cancelled: LeavesTasks,
    model_promises.fails_with_a_model_error: OtherErrors,
    model_promises.can_be_closed_twice: OneClose,
}


def test_every_promise_of_a_model_has_a_model_that_breaks_it() -> None:
    assert_all_are_broken(BROKEN_MODELS, model_promises.MODEL_PROMISES)


@pytest.mark.parametrize(("promise", "broken"), BROKEN_MODELS.items())
async def test_a_broken_model_is_found(promise: Promise, broken: Callable[[], Scripted]) -> None:
    text = ModelRequest(Transcript([to_user_item("Say hello.")]))
    with assert_names_the_promise("model", promise):
        await check_model(broken, ConformanceRequests(text=text, failing=FAILING))
