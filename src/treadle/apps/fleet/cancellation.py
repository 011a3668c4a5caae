"""Ends tasks, also if one of them loses a cancellation.

In Python 3.11 `asyncio.wait_for` drops a cancellation that arrives together with its result. The
connection pool of PostgreSQL waits so: a task that is cancelled once may go on for ever.
Used by worker.py and limits.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

AGAIN_SECONDS = 1.0


async def cancel_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, again if need be, until each has ended."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_SECONDS)
