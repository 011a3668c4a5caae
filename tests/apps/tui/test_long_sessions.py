"""Long sessions: with a reply of 200,000 characters and 2,000 calls, keys are as fast as before."""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from textual import events

from tests.apps.tui.harness import RunningApp, running_app, scripted
from tests.work import count_work
from treadle.apps.tui.widgets.viewport import MAX_CACHED_LINES
from treadle.core.events import TextDelta, ToolCallRequested, ToolFinished, TurnStarted
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.models.scripted import Pause

PARAGRAPH = (
    "Some **words** about `code`, as long as a sentence usually is in a reply like this.\n\n"
    "- one thing\n- another\n\n```python\ndef f(x):\n    return x\n```\n\n"
)
CHARS, CALLS, PIECE = 200_000, 2_000, 16


async def key_to_screen(on: RunningApp, count: int = 15) -> float:
    """The median of the calls from a key press to its character on the screen."""
    calls = []
    for _ in range(count):
        shown = asyncio.Event()
        with count_work() as work:
            on.app.post_message(events.Key("x", "x"))
            before = on.app.prompt.text
            while on.app.prompt.text == before:  # noqa: ASYNC110 - every round of the loop counts
                await asyncio.sleep(0)
            on.app.prompt.call_after_refresh(shown.set)
            await shown.wait()
        calls.append(work.calls)
    on.app.prompt.set_text("")
    return statistics.median(calls)


async def a_long_day(on: RunningApp) -> None:
    """Send the events as fast as a provider could."""
    conversation = on.app.conversation
    conversation.on_event(TurnStarted("s", "t", 0))
    for number in range(CALLS):
        call = ToolCall(f"c{number}", "bash", f'{{"command":"echo {number}"}}')
        conversation.on_event(ToolCallRequested("s", "t", number, call))
        conversation.on_event(ToolFinished("s", "t", number, call.id, "bash", "ok"))
        conversation.on_item(number, ToolResultItem(call.id, "bash", (Text("ok\n" * 40),)))
        if number % 50 == 0:
            await asyncio.sleep(0)
    text = (PARAGRAPH * (CHARS // len(PARAGRAPH) + 1))[:CHARS]
    for start in range(0, CHARS, PIECE):
        conversation.on_event(TextDelta("s", "t", start, text[start : start + PIECE]))
        if start % (PIECE * 50) == 0:
            await asyncio.sleep(0)


@contextmanager
def stopped_clock() -> Iterator[None]:
    """No timer, sleep or time limit of the running event loop ends in the block."""
    loop = asyncio.get_running_loop()
    now, went_on = loop.time(), loop.time
    loop.time = lambda: now  # type: ignore[method-assign]
    try:
        yield
    finally:
        loop.time = went_on  # type: ignore[method-assign]


def memory() -> float:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - not a real file
        return int(file.read().split()[1]) * 4_096 / 1e6


@pytest.mark.slow
async def test_keys_are_answered_at_the_end_as_at_the_start(monkeypatch):
    async with running_app(monkeypatch, scripted(["x"]), size=(120, 40)) as on:
        gc.collect()
        start, before = await key_to_screen(on), memory()
        await a_long_day(on)
        await on.until(lambda: not on.app._is_frame_due, "the last frame")
        end, grown = await key_to_screen(on), memory() - before
        assert len(on.app.conversation.view.blocks) > CALLS + 3_000
        assert end < 1.5 * start
        assert grown < 60, f"{grown:.0f} MB more"


async def test_only_what_is_seen_is_painted_and_little_of_it_is_kept(monkeypatch):
    async with running_app(monkeypatch, scripted(["x"])) as on:
        await a_long_day(on)
        await on.until(lambda: not on.app._is_frame_due, "the last frame")
        transcript = on.app.transcript
        frames, painted = on.app.frame_count, transcript.viewport.render_count
        assert painted < frames * 30 + 100  # a screen's worth a frame, not the history
        for _ in range(300):
            transcript.viewport.scroll_pages(-1)
        await on.pilot.pause()
        assert transcript.viewport.cached_lines <= MAX_CACHED_LINES + 100
        transcript.action_top()
        await on.sees("echo 0")
        assert transcript.search("echo 1234")
        await on.sees("echo 1234")


async def test_escape_interrupts_while_no_time_passes(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["word " * 50, pause]])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        with stopped_clock():
            on.app.post_message(events.Key("escape", None))
            while on.app.conversation.view.is_busy:  # noqa: ASYNC110 - a longer sleep has no end
                await asyncio.sleep(0)
        await on.idle()
