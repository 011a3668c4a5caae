import asyncio

from tests.patience import until
from treadle.lib.http.timeouts import TimeoutKind, Timeouts, TimeoutTimer, TimeoutTracker

LIMITS = Timeouts(first_byte=10, first_content=100, idle=20, total=1000)


def run(meter: TimeoutTracker, start: float, end: float) -> tuple[str, float] | None:
    """Tick as a loop would, to the verdict."""
    due = meter.schedule_check(start)
    while due <= end:
        which = meter.find_expired(due)
        if which is not None:
            return which, due
        due = meter.schedule_check(due)
    return None


def test_headers_that_never_come_are_a_first_byte_timeout():
    assert run(TimeoutTracker(LIMITS, 0), 0, 50) == ("first_byte", 10)


def test_silence_after_the_headers_is_an_idle_timeout():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(1)
    assert run(meter, 1, 50) == ("idle", 21)


def test_fault_52_pings_keep_a_thinking_model_alive_until_the_first_content_limit():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(0)
    for second in range(0, 95, 5):
        meter.on_bytes(second)
        assert run(meter, second, second + 5) is None
    meter.on_bytes(95)
    assert run(meter, 95, 200) == ("first_content", 100)


def test_fault_51_after_the_first_content_pings_prove_nothing():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(0)
    meter.on_content(30)
    for second in range(30, 50, 5):
        meter.on_bytes(second)
        assert run(meter, second, second + 4) is None
    meter.on_bytes(49)
    assert run(meter, 49, 200) == ("idle", 50)


def test_fault_50_content_for_ever_meets_the_total_limit():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(0)
    for second in range(0, 1000, 10):
        meter.on_content(second)
        assert run(meter, second, second + 9) is None
    meter.on_content(999)
    assert run(meter, 999, 2000) == ("total", 1000)


def test_fault_86_time_in_which_the_process_was_stopped_is_not_the_providers():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(0)
    meter.on_content(0)
    due = meter.schedule_check(0)
    assert meter.find_expired(due + 3600) is None
    assert run(meter, due + 3600, due + 3700) == ("idle", 3620)


def test_bytes_that_wait_unread_are_the_readers_delay():
    meter = TimeoutTracker(LIMITS, 0)
    meter.on_headers(0)
    meter.on_content(0)
    meter.on_reader_behind(19)
    assert run(meter, 19, 100) == ("idle", 39)


def test_without_limits_nothing_expires():
    none = Timeouts(first_byte=None, first_content=None, idle=None, total=None)
    assert run(TimeoutTracker(none, 0), 0, 1000) is None


async def test_the_check_of_one_exchange_serves_the_next_one() -> None:
    loop, expired = asyncio.get_running_loop(), list[TimeoutKind]()
    timer = TimeoutTimer(lambda: False, expired.append)
    timer.start(loop, TimeoutTracker(Timeouts(), loop.time()))
    timer.stop()
    first = timer._handle
    timer.start(loop, TimeoutTracker(Timeouts(), loop.time()))
    assert timer._handle is first
    timer.stop()
    timer.start(loop, TimeoutTracker(Timeouts(first_byte=0.01), loop.time()))  # an earlier one
    await until(lambda: expired == ["first_byte"])
    timer.start(loop, TimeoutTracker(Timeouts(), loop.time()))
    timer.close()
    assert timer._handle is None


async def test_a_check_that_comes_after_its_exchange_does_nothing() -> None:
    loop, expired = asyncio.get_running_loop(), list[TimeoutKind]()
    timer = TimeoutTimer(lambda: False, expired.append)
    timer.start(loop, TimeoutTracker(Timeouts(first_byte=0.01), loop.time()))
    timer.stop()
    await until(lambda: timer._handle is None)
    assert expired == []
