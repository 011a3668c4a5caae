"""What a headless run prints: the answer on standard output, progress on standard error.

    Stdout     bytes out, without ever blocking the run; who reads may be slow or gone
    Report     the result as a value; `json` prints it, and it is the last line of `stream-json`
    Progress   a line for a person at each thing that happens

Observers and values; headless.py decides which of them a run has. Events as lines are stream_json.py's
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

from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.cli.console import print_error
from treadle.core import events
from treadle.core.events import Event, TurnResult
from treadle.core.sanitize import escape_invisible, escape_json, strip_escapes
from treadle.core.transcript.items import Item
from treadle.core.transcript.usage import Usage

FORMAT_VERSION = (
    1  # of the report and of the lines (observe/jsonlines), which is tested to be the same
)
CHUNK_BYTES = 4_096  # what a pipe that says "ready" takes without blocking
MAX_UNREAD_BYTES = 8 << 20  # unread output after which single deltas are left out


class Stdout:
    """Standard output. `gone` is why nothing more can be written, once that is so."""

    def __init__(self, on_error: Callable[[OSError], None], *, fd: int = 1) -> None:
        self._fd = fd
        self._on_error = on_error
        self._buffer = bytearray()
        self._is_scheduled = False
        self._drained: asyncio.Future[None] | None = None
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self.error: OSError | None = None

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._fd)

    @property
    def is_lagging(self) -> bool:
        return len(self._buffer) > MAX_UNREAD_BYTES

    def write(self, data: bytes) -> None:
        """Queue it; all that is written in one round of the loop goes out together."""
        if self.error is not None:
            return
        self._buffer += data
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def write_text(self, text: str) -> None:
        """An answer: byte for byte, unless a terminal would obey what stands in it."""
        self.write((strip_escapes(text) if self.is_terminal else text).encode() + b"\n")

    def write_json(self, line: str) -> None:
        """A line of JSON, whose value is the same wherever it is read."""
        self.write(escape_json(line).encode())

    async def drain(self) -> None:
        """Until everything is written, or never will be."""
        if self._is_scheduled:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._buffer:
                if not self._poll.poll(0):
                    loop.add_writer(self._fd, self._on_writable)
                    return
                written = os.write(self._fd, self._buffer[:CHUNK_BYTES])
                del self._buffer[:written]
        except OSError as error:
            self._buffer.clear()
            self.error = error
            self._on_error(error)
        self._is_scheduled = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _on_writable(self) -> None:
        asyncio.get_running_loop().remove_writer(self._fd)
        self._flush()


class RunReport(msgspec.Struct, frozen=True, tag="result", omit_defaults=False):
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


class StreamJsonHeader(msgspec.Struct, frozen=True, tag="began"):
    """The first line of stream-json."""

    version: int
    session_id: str
    model: str
    folder: str
    permission_mode: str
    tools: tuple[str, ...]
    notes: tuple[str, ...]


def redact_report(report: RunReport) -> RunReport:
    """The report without keys. The answer is what the model said: only our own are taken out."""
    return msgspec.structs.replace(
        report,
        text=redact(find_environment_secrets(), report.text),
        error=redact_for_display(report.error) if report.error else "",
        detail=redact_for_display(report.detail) if report.detail else "",
        denied=tuple(redact_for_display(summary) for summary in report.denied),
    )


class ProgressPrinter:
    """An observer that tells a person what happens, a line each, on standard error."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self._style = "2" if colours else ""

    def print_line(self, text: str) -> None:
        line = strip_escapes(redact_for_display(text)).replace("\n", " ").replace("\t", " ")
        print_error(escape_invisible(line), self._style)

    def on_event(self, event: Event) -> None:
        match event:
            case events.ToolStarted(summary=summary):
                self.print_line(f"· {summary}")
            case events.ToolFinished(is_error=True, name=name, result=result) if not (
                result.startswith("denied: ")
            ):
                self.print_line(f"  {name} failed: {result}")
            case events.ApprovalResolved(decision="deny", reason=reason):
                self.print_line(f"  denied: {reason}")
            case events.RetryScheduled(delay=delay, reason=reason):
                self.print_line(f"  again in {delay:.0f} s: {reason}")
            case events.ModelChanged(old=old, new=new, reason=reason):
                self.print_line(f"  {new} takes over from {old}: {reason}")
            case events.WarningRaised(text=text) | events.Notified(text=text):
                self.print_line(f"  {text}")
            case events.UsageUpdated(turn=turn) if self._verbose:
                self.print_line(f"  {format_usage(turn)}")
            case events.LoopContinued(transition=why) if self._verbose:
                self.print_line(f"  goes on: {why}")
            case _:
                pass

    def on_item(self, position: int, item: Item) -> None:
        if self._verbose and item.__class__.__name__ == "AssistantItem":
            text = getattr(item, "text", "").strip()
            if text:
                self.print_line(text.splitlines()[0][:200])


def format_usage(usage: Usage) -> str:
    """Tokens and money in a few words."""
    money = "" if not usage.cost else f", ${usage.cost:.4f}"
    return f"{usage.total_input:,} tokens in, {usage.output:,} out{money}"


def get_turn_detail(turn: TurnResult) -> str:
    """Why a turn ended, where the reason alone does not say it."""
    return str(turn.metadata.get("detail", ""))
