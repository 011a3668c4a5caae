"""The context of a tool whose plain function runs in a thread. Used by function.py."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import msgspec

from treadle.core.contracts.tool import ToolContext


def make_thread_context(context: ToolContext, cancelled: threading.Event) -> ToolContext:
    """A context for another thread: what it reports is handled by the event loop, in order."""
    loop = asyncio.get_running_loop()

    def on_loop(handle: Callable[..., None]) -> Callable[..., None]:
        def forward(*details: object) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(handle, *details)

        return forward

    return msgspec.structs.replace(
        context,
        report_progress=on_loop(context.report_progress),
        detach=on_loop(context.detach),
        relay_event=on_loop(context.relay_event),
        is_cancelled=cancelled.is_set,
    )
