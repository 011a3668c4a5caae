"""Plain functions run in threads, which are used again and end when nothing needs them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from treadle.lib import function_thread
from treadle.lib.function_thread import run_in_thread


async def test_a_free_thread_is_used_again_and_functions_at_once_have_their_own():
    first = await run_in_thread(threading.get_ident)
    assert await run_in_thread(threading.get_ident) == first
    meet = threading.Barrier(3)

    def wait_for_others() -> int:
        meet.wait(30)
        return threading.get_ident()

    calls = [run_in_thread(wait_for_others) for _ in range(3)]
    assert len({*await asyncio.gather(*calls), threading.get_ident()}) == 4


async def test_a_thread_ends_after_a_while_and_the_next_function_has_another(monkeypatch):
    monkeypatch.setattr(function_thread, "_idle", [])
    monkeypatch.setattr(function_thread, "IDLE_SECONDS", 0.001)
    used = await run_in_thread(threading.current_thread)
    await asyncio.to_thread(used.join, 30)
    assert not used.is_alive()
    assert function_thread._idle == []
    assert await run_in_thread(lambda: "run") == "run"


@pytest.mark.parametrize("short", [0.0, function_thread.SHORT_SECONDS, 30.0])
async def test_a_result_arrives_however_long_the_loop_waits_for_it_at_first(monkeypatch, short):
    monkeypatch.setattr(function_thread, "SHORT_SECONDS", short)
    assert [await run_in_thread(partial(abs, -number)) for number in range(100)] == [*range(100)]


async def test_a_cancelled_function_is_told_and_its_result_counts():
    began, told = threading.Event(), threading.Event()

    def work() -> str:
        began.set()
        return "stopped" if told.wait(30) else "not told"

    task = asyncio.create_task(run_in_thread(work, told.set))
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    assert await task == "stopped"


async def test_a_second_cancellation_leaves_the_function_running():
    began, release = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        release.wait(30)

    task = asyncio.create_task(run_in_thread(work))
    await asyncio.to_thread(began.wait, 30)
    try:
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        release.set()


async def test_nothing_of_a_function_that_failed_is_kept():
    class Held:
        pass

    def fail(held: Held) -> None:
        raise ValueError("no")

    held = Held()
    watched = weakref.ref(held)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="no"):
            await run_in_thread(partial(fail, held))
        del held
        # The thread drops the call when it takes the next one at the latest.
        await run_in_thread(lambda: None)
        assert watched() is None
    finally:
        gc.enable()


async def test_while_a_function_runs_the_loop_is_not_blocked_for_the_others(monkeypatch):
    monkeypatch.setattr(function_thread, "_long_running", threading.Lock())
    monkeypatch.setattr(function_thread, "SHORT_SECONDS", 0.0)
    release = threading.Event()
    calls = [asyncio.create_task(run_in_thread(partial(release.wait, 20)))]
    await asyncio.sleep(0)
    # A wait for one of these would last until the first function gives up.
    monkeypatch.setattr(function_thread, "SHORT_SECONDS", 30.0)
    calls += [asyncio.create_task(run_in_thread(partial(release.wait, 20))) for _ in range(9)]
    await asyncio.sleep(0)
    release.set()
    assert all(await asyncio.gather(*calls))
    assert not function_thread._long_running.locked()
