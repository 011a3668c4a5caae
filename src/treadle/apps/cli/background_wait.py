"""`treadle -p` and background tasks: which it waits for before it ends, and for how long.

The model was told that a notice will give the result of a background task. So a run waits for its
child agents and its long calls of MCP servers, and the model gets another turn with their reports.
Commands may run for ever (a server, a watcher): they end with the run. Used by headless.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.task_manager import TaskInfo
from treadle.core.events import Event, TaskFinished, TurnResult
from treadle.core.loop.driver import Driver

RunTurn = Callable[[], Awaitable[tuple[TurnResult, object]]]


class BackgroundWait(BaseObserver):
    """The wait for the background tasks of one driver, `seconds` in all. `is_over`: it was not
    enough. `on_wait` gets a line for the user."""

    def __init__(self, driver: Driver, seconds: float, on_wait: Callable[[str], None]) -> None:
        self._driver = driver
        self._seconds_left = seconds
        self._on_wait = on_wait
        self._task_ended = asyncio.Event()
        self._interrupted = asyncio.Event()
        self.is_over = False

    def on_event(self, event: Event) -> None:
        if type(event) is TaskFinished and event.session_id == self._driver.session_id:
            self._task_ended.set()

    def interrupt(self) -> None:
        self._interrupted.set()

    async def finish(
        self, turn: TurnResult, output: object, run_turn: RunTurn
    ) -> tuple[TurnResult, object]:
        """Run a turn with each report, until no task is left to wait for; the last turn."""
        self._driver.watch(self)
        try:
            while turn.reason == "end_turn" and self._has_work():
                await self._wait_for_report()
                if self._interrupted.is_set():
                    return msgspec.structs.replace(turn, reason="aborted"), output
                if self._driver.continue_with_reports():
                    turn, output = await run_turn()
        except TimeoutError:
            self.is_over = True
        finally:
            self._driver.unwatch(self)
        return turn, output

    def _has_work(self) -> bool:
        return bool(self._list_awaited()) or self._task_ended.is_set()

    def _list_awaited(self) -> list[TaskInfo]:
        running = list_running(self._driver)
        return [task for task in running if get_tool_kind(task.name) != "execute"]

    async def _wait_for_report(self) -> None:
        awaited = self._list_awaited()
        if awaited and not self._task_ended.is_set():
            self._on_wait(f"waiting for {', '.join(task.summary for task in awaited)}")
        loop = asyncio.get_running_loop()
        begin = loop.time()
        waits = [loop.create_task(one.wait()) for one in (self._task_ended, self._interrupted)]
        try:
            async with asyncio.timeout(max(self._seconds_left, 0)):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._seconds_left -= loop.time() - begin
            for wait in waits:
                wait.cancel()
        self._task_ended.clear()


def list_running(driver: Driver) -> list[TaskInfo]:
    return [task for task in driver.tasks.list() if task.state == "running"]
