from __future__ import annotations

import asyncio

from treadle.lib.tasks import Deadlines


def test_each_future_is_marked_at_its_own_time_by_one_timer():
    async def wait() -> list[str]:
        loop, deadlines, order = asyncio.get_running_loop(), Deadlines(), list[str]()
        futures = {name: loop.create_future() for name in ("late", "never", "early")}
        for name, done in futures.items():
            done.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
        deadlines.add(futures["late"], 0.02)
        deadlines.add(futures["never"], 600)
        deadlines.add(futures["early"], 0.01)
        await futures["late"]
        await asyncio.sleep(0)
        assert not futures["never"].done()
        for done in futures.values():
            deadlines.remove(done)
        deadlines.close()
        return order

    assert asyncio.run(wait()) == ["early", "late"]


def test_a_call_that_ends_before_its_deadline_is_not_marked():
    async def wait() -> None:
        loop, deadlines = asyncio.get_running_loop(), Deadlines()
        ended, other = loop.create_future(), loop.create_future()
        deadlines.add(ended, 0.001)
        deadlines.remove(ended)
        deadlines.add(other, 0.01)
        await other
        assert not ended.done()
        deadlines.close()

    asyncio.run(wait())


def test_deadlines_hold_in_another_event_loop():
    deadlines = Deadlines()

    async def wait() -> None:
        done = asyncio.get_running_loop().create_future()
        deadlines.add(done, 600)
        deadlines.remove(done)
        soon = asyncio.get_running_loop().create_future()
        deadlines.add(soon, 0.001)
        await soon
        deadlines.remove(soon)
        unfinished = asyncio.get_running_loop().create_future()
        deadlines.add(unfinished, 600)
        deadlines.remove(unfinished)

    asyncio.run(wait())
    asyncio.run(wait())
    deadlines.close()
