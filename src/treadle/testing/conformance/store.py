"""The promises of a Store (core/contracts/store.py), as checks.

    await check_store(open_store)        open_store("id") opens the session of that id

It is called again with the same id, when the store before is closed: the entries have to be there.
Each check has ids of its own, and leaves its sessions (some 10 MB): open them in a folder of the
test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from treadle.core.contracts.store import Store
from treadle.core.errors import StoreError
from treadle.core.transcript import AssistantItem, NoticeItem, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.content import Image, Text, ToolCall
from treadle.core.transcript.entries import (
    ApprovalDecision,
    Checkpoint,
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    Forked,
    HeadRecorded,
    InputDropped,
    InputMoved,
    InputQueued,
    Intent,
    ItemAdded,
    NoticeShown,
    Quarantined,
    Rewound,
    Suspended,
    TurnBegan,
    TurnEnded,
    Uncompacted,
    UsageRecorded,
    ViewRewritten,
    WakeCondition,
)
from treadle.core.transcript.usage import Usage
from treadle.testing.conformance.promises import (
    Promise,
    assert_returns_at_once,
    build,
    keep_promises,
    opened,
)

CALL = ToolCall("call_1", "write", '{"path": "a", "data": "ä\u2028"}')
RESULT = ToolResultItem("call_1", "write", (Text("done"),), display="wrote a")

EVERY_ENTRY_KIND: tuple[Entry, ...] = (
    TurnBegan("turn-1"),
    ItemAdded(UserItem((Text("Hello"), Image("image/png", b"\x00\xff\x10")))),
    UsageRecorded("m", Usage(3, 4, cost=None)),
    ChildUsageRecorded("child", "m", Usage(5, 6, requests=1, cost=0.25)),
    HeadRecorded("m", 1, ("add",), 2, "high", True),
    ItemAdded(AssistantItem((Text("Let me see"), CALL), "tool_use", "m", Usage(3, 4))),
    ApprovalDecision("call_1", "allow", "why not", raw="{}", always=True),
    Intent("call_1", "write", "s/turn-1/call_1", "verifiable", {"before": None, "n": [1, 2.5]}),
    EarlyResult(RESULT),
    ItemAdded(RESULT),
    Quarantined(1, 0, "too wide"),
    NoticeShown("a line"),
    Forked("another session"),
    InputQueued(UserItem((Text("And then?"),))),
    InputQueued(UserItem((Text("And before that?"),))),
    InputMoved(1, 0),
    InputDropped(),
    InputDropped(),
    ViewRewritten("compact", 0, 2, (SummaryItem("what was", 2), NoticeItem("note"))),
    Uncompacted(),
    Checkpoint("turn-1", "tree"),
    Suspended("turn-1", "rate_limit", WakeCondition("time", at=12.5), "429"),
    TurnEnded("turn-1", "end_turn"),
    TurnBegan("turn-2"),
    Rewound("turn-2"),
)

EDGE_CASE_TEXTS = (
    "",
    "\ud800 half a pair, \udcff an undecodable byte",
    "\u2028\u2029\x85\r\n\x00\x1b[2J",
    "😀" * 1000,
    '{"n":1,"c":"00000000"}\n',
    "\\ud800 not an escape",
)


def user_entry(text: str) -> Entry:
    return ItemAdded(UserItem((Text(text),)))


OpenSession = Callable[[str], Store | Awaitable[Store]]
FailWrites = Callable[[bool], None]


async def check_store(open_store: OpenSession, *, fail_writes: FailWrites | None = None) -> None:
    """Raise an AssertionError that names the first broken promise.

    `fail_writes(True)` makes all writes fail, as on a full disk, until `fail_writes(False)`.
    """
    check_id = os.urandom(4).hex()

    def open_new(name: str) -> Store | Awaitable[Store]:
        return open_store(f"{name}-{check_id}")

    await keep_promises("store", STORE_PROMISES, open_new, fail_writes)


async def a_new_session_is_empty(open_store: OpenSession, fail_writes: FailWrites | None) -> None:
    async with opened(open_store, "empty") as store:
        found = store.session_id
        assert found.startswith("empty-"), f"the session id is {found!r}, not that of open_store"
        assert store.is_empty, "is_empty is False"
        assert list(await store.load()) == [], "it has entries"
        assert store.write_error is None, f"it has the error {store.write_error!r}"


async def what_was_flushed_is_there_after_a_new_opening(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    await _assert_kept(open_store, "kept", EVERY_ENTRY_KIND)


async def close_writes_what_was_not_flushed(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    async with opened(open_store, "closed") as store:
        store.append(user_entry("one"))
        assert not store.is_empty, "is_empty is True after an append"
    async with opened(open_store, "closed") as again:
        assert not again.is_empty, "is_empty is True after a new opening"
    await _assert_loaded(open_store, "closed", [user_entry("one")])


async def entries_keep_their_order_over_many_openings(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    for number in range(5):
        async with opened(open_store, "again") as store:
            store.append(user_entry(f"{number} a"))
            await store.flush()
            store.append(user_entry(f"{number} b"))
    texts = [f"{number} {part}" for number in range(5) for part in "ab"]
    await _assert_loaded(open_store, "again", [user_entry(text) for text in texts])


async def flushing_twice_writes_once(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    async with opened(open_store, "twice") as store:
        store.append(user_entry("one"))
        await store.flush()
        await store.flush()
        _assert_entries(await store.load(), [user_entry("one")])


async def many_flushes_at_once_are_all_kept_in_order(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    async with opened(open_store, "crowd") as store:

        async def say(number: int) -> None:
            store.append(user_entry(str(number)))
            await store.flush()

        await asyncio.gather(*(say(number) for number in range(100)))
        _assert_entries(await store.load(), [user_entry(str(number)) for number in range(100)])


async def append_does_not_wait(open_store: OpenSession, fail_writes: FailWrites | None) -> None:
    async with opened(open_store, "quick") as store:
        assert_returns_at_once(lambda: store.append(user_entry("quick")), "append()")
        for _ in range(995):  # the event loop does not run meanwhile
            store.append(user_entry("quick"))
        await store.flush()
        _assert_entries(await store.load(), [user_entry("quick")] * 1000)


async def a_cancelled_flush_loses_nothing(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    async with opened(open_store, "cancelled") as store:
        for number in range(20):
            store.append(user_entry(str(number)))
            flush = asyncio.ensure_future(store.flush())
            await asyncio.sleep(0)
            flush.cancel()
            await asyncio.gather(flush, return_exceptions=True)
        await store.flush()
        _assert_entries(await store.load(), [user_entry(str(number)) for number in range(20)])


async def any_text_comes_back_as_it_was(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    await _assert_kept(open_store, "texts", [user_entry(text) for text in EDGE_CASE_TEXTS])


async def a_very_long_result_comes_back_as_it_was(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    long = ItemAdded(ToolResultItem("c", "bash", (Text("0123456789" * 1_000_000),)))
    await _assert_kept(open_store, "long", [long])


async def sessions_do_not_mix(open_store: OpenSession, fail_writes: FailWrites | None) -> None:
    async with opened(open_store, "one") as one, opened(open_store, "two") as two:
        one.append(user_entry("one"))
        two.append(user_entry("two"))
        await one.flush()
        await two.flush()
        _assert_entries(await one.load(), [user_entry("one")])
        _assert_entries(await two.load(), [user_entry("two")])


async def an_entry_that_cannot_be_encoded_is_refused_as_a_whole(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    """A store that encodes nothing may take it: then it is there."""
    wrong = Intent("call_1", "write", "key", "verifiable", {"value": object()})
    kept = [user_entry("before"), user_entry("after")]
    async with opened(open_store, "refused") as store:
        store.append(kept[0])
        try:
            store.append(wrong)
            kept.insert(1, wrong)
        except StoreError:
            pass
        store.append(kept[-1])
        await store.flush()
        _assert_entries(await store.load(), kept)


async def a_failed_flush_can_be_repeated(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    if fail_writes is None:
        return
    entries = [user_entry(text) for text in ("one", "two", "three")]
    async with opened(open_store, "full") as store:
        store.append(entries[0])
        await store.flush()
        fail_writes(True)
        try:
            store.append(entries[1])
            for _ in range(2):
                await _assert_flush_fails(store)
        finally:
            fail_writes(False)
        store.append(entries[2])
        await store.flush()
        assert store.write_error is None, "write_error stays after a flush that succeeded"
        _assert_entries(await store.load(), entries)


async def a_close_that_fails_says_so_and_releases_the_session(
    open_store: OpenSession, fail_writes: FailWrites | None
) -> None:
    if fail_writes is None:
        return
    store = await build(open_store, "not closed")
    store.append(user_entry("one"))
    await store.flush()
    store.append(user_entry("two"))
    fail_writes(True)
    try:
        await store.aclose()
    except StoreError:
        pass
    else:
        raise AssertionError("aclose raised no StoreError, and the last entry is not written")
    finally:
        fail_writes(False)
    async with opened(open_store, "not closed") as again:
        _assert_entries(list(await again.load())[:1], [user_entry("one")])


async def can_be_closed_twice(open_store: OpenSession, fail_writes: FailWrites | None) -> None:
    store = await build(open_store, "closed twice")
    store.append(user_entry("one"))
    await store.aclose()
    await store.aclose()
    await _assert_loaded(open_store, "closed twice", [user_entry("one")])


STORE_PROMISES: tuple[Promise, ...] = (
    a_new_session_is_empty,
    what_was_flushed_is_there_after_a_new_opening,
    close_writes_what_was_not_flushed,
    entries_keep_their_order_over_many_openings,
    flushing_twice_writes_once,
    many_flushes_at_once_are_all_kept_in_order,
    append_does_not_wait,
    a_cancelled_flush_loses_nothing,
    any_text_comes_back_as_it_was,
    a_very_long_result_comes_back_as_it_was,
    sessions_do_not_mix,
    an_entry_that_cannot_be_encoded_is_refused_as_a_whole,
    a_failed_flush_can_be_repeated,
    a_close_that_fails_says_so_and_releases_the_session,
    can_be_closed_twice,
)


async def _assert_kept(open_store: OpenSession, session_id: str, entries: Sequence[Entry]) -> None:
    """Write these entries with one store and read them with another."""
    async with opened(open_store, session_id) as store:
        for entry in entries:
            store.append(entry)
        await store.flush()
    await _assert_loaded(open_store, session_id, entries)


async def _assert_loaded(
    open_store: OpenSession, session_id: str, entries: Sequence[Entry]
) -> None:
    async with opened(open_store, session_id) as store:
        _assert_entries(await store.load(), entries)


def _assert_entries(loaded: Sequence[Entry], expected: Sequence[Entry]) -> None:
    for position, (found, wanted) in enumerate(zip(loaded, expected, strict=False)):
        assert found == wanted, f"entry {position} is {found!r:.300}, not {wanted!r:.300}"
    assert len(loaded) == len(expected), f"{len(expected)} entries became {len(loaded)}"


async def _assert_flush_fails(store: Store) -> None:
    try:
        await store.flush()
    except StoreError:
        assert store.write_error is not None, "write_error does not say that the write failed"
        return
    raise AssertionError("flush() returns, and nothing can be written")
