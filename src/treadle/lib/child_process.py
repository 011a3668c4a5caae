"""A child process that leaves nothing behind, also when its reader is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from typing import Any


@contextlib.asynccontextmanager
async def start_child(*argv: str, **options: Any) -> AsyncIterator[Process]:
    """`options` as of asyncio.create_subprocess_exec. When the block is left the program has ended,
    killed if need be (with its process group, if it has its own), and its pipes are closed.
    asyncio itself leaves them open while a program that the child started holds them.
    """
    process = await asyncio.create_subprocess_exec(*argv, **options)
    try:
        yield process
    finally:
        if process.returncode is None and options.get("start_new_session"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # The transport, which has no public name, closes the pipes and kills what still runs.
        process._transport.close()  # type: ignore[attr-defined]
        await process.wait()
