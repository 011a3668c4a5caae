"""What the suites share: they run promises in order, and name the one that is broken.

A promise is an async function whose name is the sentence. It raises AssertionError, and whatever
else it raises breaks the promise, too.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from treadle.lib.tasks import forget_result

T = TypeVar("T")
Promise = Callable[..., Awaitable[None]]

SLOW_CALL = 0.05  # seconds; what has to return at once takes microseconds
END_LIMIT = 60.0  # seconds until cancelled work has to be over


async def keep_promises(contract: str, promises: Sequence[Promise], *subject: object) -> None:
    """Check each promise in order; an AssertionError names the first that is broken."""
    if not __debug__:
        raise RuntimeError("the conformance suites use assert: run them without `python -O`")
    for promise in promises:
        name = f"{contract}: {to_sentence(promise)}"
        try:
            await promise(*subject)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}" if str(error) else name) from error
        except Exception as error:
            problem = f"{name}: {type(error).__name__} is raised: {error}"
            raise AssertionError(problem) from error


def to_sentence(promise: Promise) -> str:
    return getattr(promise, "__name__", repr(promise)).replace("_", " ")


async def build(make: Callable[..., T | Awaitable[T]], *arguments: object) -> T:
    """What `make` returns, awaited if it has to be."""
    given = type(make).__name__
    assert callable(make), f"a {given} is given; give a function that makes a new one each time"
    made = make(*arguments)
    return await made if inspect.isawaitable(made) else made


@asynccontextmanager
async def opened(make: Callable[..., T | Awaitable[T]], *arguments: object) -> AsyncIterator[T]:
    """A new implementation, closed at the end of the block."""
    subject = await build(make, *arguments)
    try:
        yield subject
    finally:
        await subject.aclose()  # type: ignore[attr-defined]


def assert_returns_at_once(call: Callable[[], object], what: str) -> None:
    """The fastest of some calls is short: one that is slow by chance does not count."""
    seconds = min(_measure(call, what) for _ in range(5))
    assert seconds < SLOW_CALL, f"{what} takes {seconds:.2f} seconds"


def _measure(call: Callable[[], object], what: str) -> float:
    began = time.perf_counter()
    returned = call()
    seconds = time.perf_counter() - began
    if isinstance(returned, Coroutine):
        returned.close()
        raise AssertionError(f"{what} is an async function; the loop calls it without await")
    return seconds


async def assert_cancels(work: Coroutine[Any, Any, object], what: str) -> None:
    """A cancellation soon after the start ends the work, and leaves nothing running."""
    with track_tasks() as tasks:
        task = asyncio.ensure_future(work)
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=END_LIMIT)
        ended = task.done()
        if not ended:
            task.add_done_callback(forget_result)
    assert ended, f"{what} does not end when it is cancelled"
    if not task.cancelled():
        task.exception()  # ending with an error, or before the cancellation, is allowed
    await assert_nothing_runs(tasks, what)


async def assert_nothing_runs(tasks: Sequence[asyncio.Task[Any]], what: str) -> None:
    for _ in range(10):  # a cancelled task needs a few rounds of the event loop
        await asyncio.sleep(0)
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    assert not left, f"{what} leaves {len(left)} tasks running"


@contextmanager
def track_tasks() -> Iterator[list[asyncio.Task[Any]]]:
    """The tasks that the current one starts, and those that they start."""
    loop = asyncio.get_running_loop()
    started: list[asyncio.Task[Any]] = []
    parents = {asyncio.current_task()}
    before = loop.get_task_factory()

    def make(
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **more: Any,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
        if asyncio.current_task() in parents:
            parents.add(task)
            started.append(task)
        return task

    loop.set_task_factory(make)
    try:
        yield started
    finally:
        loop.set_task_factory(before)
