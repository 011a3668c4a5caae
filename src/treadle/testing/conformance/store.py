"""The promises of a Store (core/contracts/store.py), as tests.

Subclass `StoreConformance`, define how to open a store, and let pytest collect it:

    class TestMine(StoreConformance):
        async def open(self, session_id: str) -> Store: ...

`open` is called again with the same id to check the entries after a close or a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from treadle.core.contracts.store import Store
from treadle.core.transcript import AssistantItem, NoticeItem, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.content import Image, Text, ToolCall
from treadle.core.transcript.entries import (
    ApprovalDecision,
    Checkpoint,
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    HeadRecorded,
    Intent,
    ItemAdded,
    NoticeShown,
    Quarantined,
    Rewound,
    Suspended,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
    ViewRewritten,
    WakeCondition,
    fold_entries,
)
from treadle.core.transcript.usage import Usage

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
    ViewRewritten("compact", 0, 2, (SummaryItem("what was", 2), NoticeItem("note"))),
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


class StoreConformance:
    """The promises of the Store contract, one test each."""

    async def open(self, session_id: str) -> Store:
        raise NotImplementedError

    async def test_a_new_session_is_empty(self) -> None:
        store = await self.open("empty")
        assert store.session_id == "empty"
        assert store.is_empty
        assert list(await store.load()) == []
        await store.aclose()

    async def test_what_was_flushed_is_there_for_the_next_process(self) -> None:
        assert await self._write_and_reload("kept", EVERY_ENTRY_KIND) == list(EVERY_ENTRY_KIND)

    async def test_close_writes_what_was_not_flushed(self) -> None:
        store = await self.open("closed")
        store.append(user_entry("one"))
        assert not store.is_empty
        await store.aclose()
        again = await self.open("closed")
        assert not again.is_empty
        assert list(await again.load()) == [user_entry("one")]
        await again.aclose()

    async def test_entries_keep_their_order_over_many_openings(self) -> None:
        for number in range(5):
            store = await self.open("again")
            store.append(user_entry(f"{number} a"))
            await store.flush()
            store.append(user_entry(f"{number} b"))
            await store.aclose()
        store = await self.open("again")
        texts = [e.item.text for e in await store.load() if isinstance(e, ItemAdded)]
        assert texts == [f"{number} {part}" for number in range(5) for part in "ab"]
        await store.aclose()

    async def test_flushing_twice_writes_once(self) -> None:
        store = await self.open("twice")
        store.append(user_entry("one"))
        await store.flush()
        await store.flush()
        assert len(await store.load()) == 1
        await store.aclose()

    async def test_many_flushes_at_once_are_all_kept_in_order(self) -> None:
        store = await self.open("crowd")

        async def say(number: int) -> None:
            store.append(user_entry(str(number)))
            await store.flush()

        await asyncio.gather(*(say(number) for number in range(100)))
        assert list(await store.load()) == [user_entry(str(number)) for number in range(100)]
        await store.aclose()

    async def test_append_does_not_wait(self) -> None:
        store = await self.open("quick")
        # The promise: it is a plain function, and returns without the event loop running.
        for number in range(1000):
            store.append(user_entry(str(number)))
        await store.flush()
        assert len(await store.load()) == 1000
        await store.aclose()

    async def test_a_cancelled_flush_loses_nothing(self) -> None:
        store = await self.open("cancelled")
        for number in range(20):
            store.append(user_entry(str(number)))
            flush = asyncio.create_task(store.flush())
            await asyncio.sleep(0)
            flush.cancel()
            await asyncio.gather(flush, return_exceptions=True)
        await store.flush()
        assert list(await store.load()) == [user_entry(str(number)) for number in range(20)]
        await store.aclose()

    async def test_strange_text_comes_back_as_it_was(self) -> None:
        entries = [user_entry(text) for text in EDGE_CASE_TEXTS]
        assert await self._write_and_reload("strange", entries) == entries

    async def test_a_very_long_result_comes_back_as_it_was(self) -> None:
        long = ItemAdded(ToolResultItem("c", "bash", (Text("0123456789" * 1_000_000),)))
        assert await self._write_and_reload("long", [long]) == [long]

    async def test_sessions_do_not_mix(self) -> None:
        one, two = await self.open("one"), await self.open("two")
        one.append(user_entry("one"))
        two.append(user_entry("two"))
        await one.flush()
        await two.flush()
        assert list(await one.load()) == [user_entry("one")]
        assert list(await two.load()) == [user_entry("two")]
        await one.aclose()
        await two.aclose()

    async def test_the_log_folds_to_the_same_view(self) -> None:
        assert fold_entries(await self._write_and_reload("view", EVERY_ENTRY_KIND)) == fold_entries(
            EVERY_ENTRY_KIND
        )

    async def _write_and_reload(self, session_id: str, entries: Sequence[Entry]) -> list[Entry]:
        """Write these entries with one store and read them with another."""
        store = await self.open(session_id)
        for entry in entries:
            store.append(entry)
        await store.flush()
        await store.aclose()
        again = await self.open(session_id)
        loaded = list(await again.load())
        await again.aclose()
        return loaded
