"""What a headless run prints: the answer on standard output, progress on standard error.

    Stdout     bytes out, without ever blocking the run; who reads may be slow or gone
    Report     the result as a value; `json` prints it, and it is the last line of `stream-json`
    Progress   a line for a person at each thing that happens

Observers and values; headless.py decides which of them a run has. Events as lines are lines.py's
business.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.apps.cli.printing import warn
from treadle.apps.wiring.discretion import own_secrets, shown, without
from treadle.core import events as told
from treadle.core.events import Event, TurnResult
from treadle.core.terminal import escaped_json, harmless, visible
from treadle.core.transcript.items import Item
from treadle.core.transcript.usage import Usage

VERSION = 1  # of the report and of the lines (observe/jsonlines), which is tested to be the same
PIECE = 4_096  # what a pipe that says "ready" takes without blocking
LAG_BYTES = 8 << 20  # unread output after which single deltas are left out


class Stdout:
    """Standard output. `gone` is why nothing more can be written, once that is so."""

    def __init__(self, on_gone: Callable[[OSError], None], *, fd: int = 1) -> None:
        self._fd = fd
        self._on_gone = on_gone
        self._waiting = bytearray()
        self._is_scheduled = False
        self._emptied: asyncio.Future[None] | None = None
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.gone: OSError | None = None

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._fd)

    @property
    def lags(self) -> bool:
        return len(self._waiting) > LAG_BYTES

    def write(self, data: bytes) -> None:
        """Queue it; all that is written in one round of the loop goes out together."""
        if self.gone is not None:
            return
        self._waiting += data
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._push)

    def write_text(self, text: str) -> None:
        """An answer: byte for byte, unless a terminal would obey what stands in it."""
        self.write((harmless(text) if self.is_terminal else text).encode() + b"\n")

    def write_json(self, line: str) -> None:
        """A line of JSON, whose value is the same wherever it is read."""
        self.write(escaped_json(line).encode())

    async def drain(self) -> None:
        """Until everything is written, or never will be."""
        if self._is_scheduled:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied

    def _push(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                if not self._poll.poll(0):
                    loop.add_writer(self._fd, self._resume)
                    return
                written = os.write(self._fd, self._waiting[:PIECE])
                del self._waiting[:written]
        except OSError as error:
            self._waiting.clear()
            self.gone = error
            self._on_gone(error)
        self._is_scheduled = False
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _resume(self) -> None:
        asyncio.get_running_loop().remove_writer(self._fd)
        self._push()


class Report(msgspec.Struct, frozen=True, tag="result", omit_defaults=False):
    """How a run ended. `denied` are calls that needed a person; `output` fits the schema given."""

    version: int
    session_id: str
    model: str
    reason: str
    exit_code: int
    text: str
    output: Any = None
    error: str = ""
    detail: str = ""
    rounds: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    denied: tuple[str, ...] = ()


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The first line of stream-json."""

    version: int
    session_id: str
    model: str
    folder: str
    permission_mode: str
    tools: tuple[str, ...]
    notes: tuple[str, ...]


def discreet(report: Report) -> Report:
    """The report without keys. The answer is what the model said: only our own are taken out."""
    return msgspec.structs.replace(
        report,
        text=without(own_secrets(), report.text),
        error=shown(report.error) if report.error else "",
        detail=shown(report.detail) if report.detail else "",
        denied=tuple(shown(summary) for summary in report.denied),
    )


class Progress:
    """An observer that tells a person what happens, a line each, on standard error."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._style = "2" if colours else ""

    def say(self, text: str) -> None:
        line = harmless(shown(text)).replace("\n", " ").replace("\t", " ")
        warn(visible(line), self._style)

    def on_event(self, event: Event) -> None:
        match event:
            case told.ToolStarted(summary=summary):
                self.say(f"· {summary}")
            case told.ToolFinished(is_error=True, name=name, result=result) if not (
                result.startswith("denied: ")
            ):
                self.say(f"  {name} failed: {result}")
            case told.ApprovalResolved(decision="deny", reason=reason):
                self.say(f"  denied: {reason}")
            case told.RetryScheduled(delay=delay, reason=reason):
                self.say(f"  again in {delay:.0f} s: {reason}")
            case told.ModelChanged(old=old, new=new, reason=reason):
                self.say(f"  {new} takes over from {old}: {reason}")
            case told.Warning(text=text) | told.Notified(text=text):
                self.say(f"  {text}")
            case told.UsageUpdated(turn=turn) if self._verbose:
                self.say(f"  {used(turn)}")
            case told.LoopContinued(transition=why) if self._verbose:
                self.say(f"  goes on: {why}")
            case _:
                pass

    def on_item(self, position: int, item: Item) -> None:
        if self._verbose and item.__class__.__name__ == "AssistantItem":
            text = getattr(item, "text", "").strip()
            if text:
                self.say(text.splitlines()[0][:200])


def used(usage: Usage) -> str:
    """Tokens and money in a few words."""
    money = "" if not usage.cost else f", ${usage.cost:.4f}"
    return f"{usage.total_input:,} tokens in, {usage.output:,} out{money}"


def detail_of(turn: TurnResult) -> str:
    """Why a turn ended, where the reason alone does not say it."""
    return str(turn.metadata.get("detail", ""))
