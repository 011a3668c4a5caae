"""Collects the requests of agents that wait at the same moment, submits them, waits for results.

    ask ──▶ group (collects) ──▶ records: was it submitted before? ──yes──▶ wait ──▶ results
                                                    └──no──▶ record, submit, record ──▶ wait

A group is one task, which ends with its last result, or when no caller waits for one any more: the
batch stays with the provider then, and the next caller finds it in the records. A lost connection
is waited out: only the provider ends a batch. Used by batched.py.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from copy import copy
from typing import TypeVar

import msgspec

from treadle.core.errors import (
    BadRequest,
    ModelError,
    Overloaded,
    RateLimited,
    StoreError,
    StreamBroken,
    Unreachable,
    error_message,
)
from treadle.lib.logger import logger
from treadle.lib.tasks import cancel_all
from treadle.lib.text.text import plural
from treadle.models.batches.batch_api import BatchAPI, BatchOutcome, BatchStatus
from treadle.models.batches.batch_store import BatchFolder, BatchRecord, BatchStore

COLLECT_SECONDS = 2.0
MAX_COLLECT = 10  # times as long, if requests keep coming
POLL_SECONDS = 60.0  # at most; it begins with a second
FIRST_POLL, POLL_GROWTH = 1.0, 1.5
NOT_FOUND = 404
WAITING = "waiting for its results"
PATIENCE = "the batch is not lost; trying again"
ITEM_BYTES = 200  # what a batch adds to a request
T = TypeVar("T")
News = str | BatchOutcome | StoreError
TRANSIENT = (RateLimited, Overloaded, Unreachable, StreamBroken)


class BatchQueue:
    """The batches of one process, for any number of models and agents.

    store            a BatchStore, or a folder for records (default: one in the user's state folder)
    collect_seconds  a batch is submitted when no request came for so long
    poll_seconds     between two looks at a batch, at most
    count_running    how many agents run: a batch is submitted at once when all of them wait
    """

    def __init__(
        self,
        store: BatchStore | str | None = None,
        *,
        collect_seconds: float = COLLECT_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        count_running: Callable[[], int] | None = None,
    ) -> None:
        self._store = BatchFolder(store) if store is None or isinstance(store, str) else store
        self._collect_seconds = collect_seconds
        self._poll_seconds = poll_seconds
        self._count_running = count_running
        self._open: dict[tuple[object, ...], _Group] = {}  # those that still collect
        self._waiting = 0
        self._delivered: set[str] = set()  # asked for again, they are to be answered anew

    async def ask(self, api: BatchAPI, name: str, body: bytes) -> AsyncGenerator[News, None]:
        """Lines for the user, then the outcome of the request with this name."""
        key = (asyncio.get_running_loop(), *api.group)
        group = self._open.get(key)
        if group is None or name in group.waiters:
            group = self._open[key] = _Group(api)
            group.task = asyncio.create_task(self._run(key, group))
        waiter = group.waiters[name] = _Waiter(body)
        group.size += len(body)
        group.news.set()
        self._waiting += 1
        self._submit_if_all_wait()
        try:
            while isinstance(news := await waiter.news.get(), str):
                yield news
            if waiter.has_outcome:
                self._delivered.add(name)
            yield news
        finally:
            self._waiting -= 1
            waiter.is_done = True
            if all(one.is_done for one in group.waiters.values()) and group.task is not None:
                self._close(key, group)
                await cancel_all([group.task])

    def _submit_if_all_wait(self) -> None:
        if self._count_running is not None and self._waiting >= self._count_running():
            for group in self._open.values():
                group.is_complete = True
                group.news.set()

    def _close(self, key: tuple[object, ...], group: _Group) -> None:
        if self._open.get(key) is group:
            del self._open[key]

    async def _run(self, key: tuple[object, ...], group: _Group) -> None:
        try:
            await self._collect(group)
            self._close(key, group)
            await self._answer(group)
        except (ModelError, StoreError) as error:
            group.fail(group.waiters, error)
        except Exception as error:  # noqa: BLE001 - those who wait must learn of it
            logger.exception("a batch failed")
            group.fail(group.waiters, ModelError(f"a batch failed: {error_message(error)}"))
        finally:
            self._close(key, group)

    async def _collect(self, group: _Group) -> None:
        """Until no request came for a while, all agents wait, or the batch is full."""
        last = time.monotonic() + MAX_COLLECT * self._collect_seconds
        while not group.is_complete and not group.is_full:
            group.news.clear()
            try:
                async with asyncio.timeout(min(self._collect_seconds, last - time.monotonic())):
                    await group.news.wait()
            except TimeoutError:
                return

    # --- a group that is complete ------------------------------------------------------------

    async def _answer(self, group: _Group) -> None:
        """Wait for the batches that were submitted before, and submit what is in none of them."""
        records = {
            name: record
            for record in await self._store.load()
            if record.target == group.api.target
            for name in record.items
            if name in group.waiters and name not in self._delivered
        }
        earlier = {record.id: record for record in records.values()}
        new = [name for name in group.waiters if name not in records]
        async with asyncio.TaskGroup() as tasks:
            for record in earlier.values():
                names = [name for name, one in records.items() if one.id == record.id]
                tasks.create_task(self._continue(group, record, names))
            for part in group.split(new):
                tasks.create_task(self._submit(group, part))

    async def _continue(self, group: _Group, record: BatchRecord, names: Sequence[str]) -> None:
        """The results of a batch of an earlier process; what failed in it is submitted again."""
        failed = names
        try:
            if not record.batch_id:
                record = await self._find(group, record)
            if record.batch_id:
                group.tell(names, f"the batch {record.batch_id} was submitted before: {WAITING}")
                failed = await self._fetch(group, record, names, is_earlier=True)
        except (ModelError, StoreError) as error:
            group.fail(names, error)
            return
        for part in group.split(failed):
            await self._submit(group, part)

    async def _submit(self, group: _Group, names: Sequence[str]) -> None:
        record = BatchRecord(uuid.uuid4().hex, group.api.target, tuple(names), time.time())
        try:
            await self._store.save(record)
            record = await self._send(group, record)
            count = plural(len(names), "request")
            group.tell(names, f"submitted the batch {record.batch_id} with {count}: {WAITING}")
            await self._fetch(group, record, names)
        except (ModelError, StoreError) as error:
            group.fail(names, error)

    async def _send(self, group: _Group, record: BatchRecord) -> BatchRecord:
        """The record with the id of its batch. If the connection was lost it looks whether the
        provider has the batch; an error means that it has none."""
        try:
            bodies = {name: group.waiters[name].body for name in record.items}
            return await self._save_id(record, await group.api.submit(record, bodies))
        except ModelError as error:
            is_refused = error.status is not None and error.status < 500
            if is_refused or isinstance(error, Unreachable):
                await self._store.delete(record.id)
                raise _explain_refusal(error) from error
            group.tell(record.items, f"{error}: {PATIENCE}")
            found = await self._find(group, record)
            if not found.batch_id:
                raise
            return found

    async def _find(self, group: _Group, record: BatchRecord) -> BatchRecord:
        """The record with the id of its batch, if the provider has it: a process died, or lost its
        connection, while it was submitting. Without, the record is deleted."""
        known = {one.batch_id for one in await self._store.load()}
        for batch_id in await self._patiently(group, lambda: group.api.find(record)):
            if batch_id not in known and await self._is_batch_of(group, batch_id, record):
                return await self._save_id(record, batch_id)
        await self._store.delete(record.id)
        return record

    async def _is_batch_of(self, group: _Group, batch_id: str, record: BatchRecord) -> bool:
        status = await self._wait(group, batch_id)

        async def read() -> bool:
            async with aclosing(group.api.read_results(status.results)) as results:
                async for name, _ in results:
                    return name in record.items
            return True  # it has no results: only the metadata of it say whose it is

        return await self._patiently(group, read)

    async def _save_id(self, record: BatchRecord, batch_id: str) -> BatchRecord:
        record = msgspec.structs.replace(record, batch_id=batch_id)
        await self._store.save(record)
        return record

    async def _fetch(
        self, group: _Group, record: BatchRecord, names: Iterable[str], is_earlier: bool = False
    ) -> list[str]:
        """Deliver the results of a batch once it has ended. The items that failed, if they are not
        to be delivered because an earlier process submitted them."""
        status = await self._wait(group, record.batch_id)
        left, failed = dict.fromkeys(names), list[str]()

        def deliver(name: str, outcome: BatchOutcome) -> None:
            del left[name]
            if is_earlier and isinstance(outcome, ModelError):
                failed.append(name)
            else:
                group.waiters[name].has_outcome = True
                group.waiters[name].news.put_nowait(outcome)

        async def read() -> None:
            async for name, outcome in group.api.read_results(status.results):
                if name in left:
                    deliver(name, outcome)

        await self._patiently(group, read)
        numbers = {name: number for number, name in enumerate(record.items)}
        for name in [*left]:
            missing = status.refused.get(numbers[name], status.missing)
            deliver(name, missing or group.api.missing(record.batch_id))
        return failed

    async def _wait(self, group: _Group, batch_id: str) -> BatchStatus:
        delay = min(FIRST_POLL, self._poll_seconds)
        while True:
            try:
                status = await self._patiently(group, lambda: group.api.check(batch_id))
            except ModelError as error:
                if error.status != NOT_FOUND:
                    raise
                return BatchStatus(True, missing=group.api.missing(batch_id))
            if status.has_ended:
                return status
            await asyncio.sleep(delay)
            delay = min(POLL_GROWTH * delay, self._poll_seconds)

    async def _patiently(self, group: _Group, do: Callable[[], Awaitable[T]]) -> T:
        """Do it until it succeeds: a lost connection changes nothing about a batch."""
        delay, is_told = min(FIRST_POLL, self._poll_seconds), False
        while True:
            try:
                return await do()
            except TRANSIENT as error:
                if not is_told:
                    is_told = True
                    group.tell(group.waiters, f"{error}: {PATIENCE}")
                await asyncio.sleep(max(delay, min(error.retry_after or 0.0, self._poll_seconds)))
                delay = min(POLL_GROWTH * delay, self._poll_seconds)


class _Waiter:
    """One request, and what those who asked are told."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.news: asyncio.Queue[News] = asyncio.Queue()
        self.has_outcome = False  # from a batch; other errors leave the request as it was
        self.is_done = False


class _Group:
    """Requests that can go into one batch, and the task that answers them."""

    def __init__(self, api: BatchAPI) -> None:
        self.api = api
        self.waiters: dict[str, _Waiter] = {}
        self.size = 0
        self.news = asyncio.Event()
        self.is_complete = False
        self.task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        return len(self.waiters) >= self.api.max_items or self.size >= self.api.max_bytes

    def split(self, names: Iterable[str]) -> list[list[str]]:
        """The requests whose callers still wait, in parts that are not too large."""
        parts: list[list[str]] = []
        room = 0
        for name in names:
            if self.waiters[name].is_done:
                continue
            size = len(self.waiters[name].body) + ITEM_BYTES
            if not parts or size > room or len(parts[-1]) >= self.api.max_items:
                parts.append([])
                room = self.api.max_bytes
            parts[-1].append(name)
            room -= size
        return parts

    def tell(self, names: Iterable[str], text: str) -> None:
        for name in names:
            self.waiters[name].news.put_nowait(text)

    def fail(self, names: Iterable[str], error: ModelError | StoreError) -> None:
        """Each gets an error of its own: a run adds to it what it has done."""
        for name in names:
            self.waiters[name].news.put_nowait(copy(error))


def _explain_refusal(error: ModelError) -> ModelError:
    """What the refusal of a whole batch is: nothing about a single request."""
    if error.status in (NOT_FOUND, 405):
        text = f"{error.provider} has no batch interface at this address: run without batches"
        return ModelError(text, provider=error.provider, status=error.status)
    if isinstance(error, BadRequest):
        text = f"the batch was refused: {error}"
        return ModelError(text, provider=error.provider, status=error.status)
    return error
