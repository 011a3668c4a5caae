"""Starts the agent for an editor: one connection, until the editor closes it or a signal comes.

The command is apps/cli/commands/acp.py, which reads the command line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Mapping

from treadle.apps.assembly import SessionOptions
from treadle.core.extras import require_extra

TERMINAL_HINT = (
    "treadle acp: an editor starts this command and speaks with it over stdin and stdout; "
    "docs/editors.md has the entry for yours. Ctrl+D ends it."
)
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 143}


def start(flags: Mapping[str, object], options: SessionOptions) -> int:
    """Serve one editor; returns the exit code."""
    require_extra("acp")
    if sys.stdin.isatty():
        print(TERMINAL_HINT, file=sys.stderr)
    # The SDK logs every error with a traceback. The editor gets them as answers.
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(_serve(flags, options))


async def _serve(flags: Mapping[str, object], options: SessionOptions) -> int:
    from acp import run_agent

    from treadle.apps.acp.agent import EditorAgent
    from treadle.apps.acp.transport import open_stdio

    transport = await open_stdio()
    agent = EditorAgent(flags, options)
    serving = asyncio.ensure_future(
        run_agent(agent, transport, use_unstable_protocol=True)  # fork, resume and close
    )
    received: list[int] = []

    def stop(code: int) -> None:
        received.append(code)
        serving.cancel()

    loop = asyncio.get_running_loop()
    for number, code in SIGNALS.items():
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, code)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await agent.aclose()
    return received[0] if received else 0
