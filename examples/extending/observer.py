"""An observer of your own: how long each tool took, and how often it failed."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from treadle import Agent, ToolFinished, ToolStarted, tool
from treadle.contracts import BaseObserver
from treadle.events import Event
from treadle.models import Say, Scripted


class ToolTimes(BaseObserver):
    def __init__(self) -> None:
        self._started: dict[tuple[str, str], float] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.errors: defaultdict[str, int] = defaultdict(int)

    def on_event(self, event: Event) -> None:  # returns at once: slow work goes into a queue
        match event:
            case ToolStarted(session_id=session, call_id=call_id):
                self._started[session, call_id] = time.monotonic()
            case ToolFinished(session_id=session, call_id=call_id, name=name):
                began = self._started.pop((session, call_id), None)
                if began is not None:  # None: it began before we were added
                    self.seconds[name] += time.monotonic() - began
                self.errors[name] += event.is_error


@tool(effect="pure")
async def look(place: str) -> str:
    """Look at a place."""
    if place == "behind":
        raise ValueError("nothing to see")
    return "a wall"


async def main() -> None:
    times = ToolTimes()
    calls = [("look", {"place": "ahead"}), ("look", {"place": "behind"})]
    model = Scripted([Say(calls=calls), "A wall."])
    await Agent(model, [look], observers=[times]).run("Look around")
    print(sorted(times.seconds), dict(times.errors))


if __name__ == "__main__":
    asyncio.run(main())
