"""Output of a headless run: the answer on stdout, progress on stderr.

    Stdout            writes without blocking the run; the reader may be slow or gone
    RunReport         the result: printed by `json`, and the last line of `stream-json`
    ProgressPrinter   an observer that prints a line for each event
    WarningPrinter    an observer that prints the warnings only

Used by headless.py. Events as JSON lines are in stream_json.py.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.apps.assembly.redaction import find_environment_secrets, redact, redact_for_display
from treadle.apps.console.console import DIM, print_error
from treadle.core import events
from treadle.core.events import Event, TurnResult
from treadle.core.steps import PendingApproval
from treadle.core.transcript import AssistantItem, Item, Usage
from treadle.lib.text.sanitize import escape_invisible, escape_json, strip_escapes
from treadle.lib.text.text import format_cost

FORMAT_VERSION = 1  # of the report; a test compares it with that of observe/jsonlines
CHUNK_BYTES = 4_096  # a pipe that polls as writable takes so many without blocking
MAX_UNREAD_BYTES = 8 << 20  # above this, deltas are left out


class Stdout:
    """Standard output. `error` is why nothing more can be written, or None."""

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
        """Queue the data; writes of one iteration of the event loop are sent together."""
        if self.error is not None:
            return
        self._buffer += data
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def write_text(self, text: str, *, is_raw: bool = False) -> None:
        """Write an answer without escape sequences: what reads a pipe often is a terminal in the
        end. `is_raw`: unchanged, to a pipe."""
        is_unchanged = is_raw and not self.is_terminal
        self.write((text if is_unchanged else strip_escapes(text)).encode() + b"\n")

    def write_json(self, line: str) -> None:
        """Write a JSON line with all control characters escaped; its value does not change."""
        self.write(escape_json(line).encode())

    def flush(self) -> None:
        """Write now what the reader takes without blocking."""
        if self._buffer:
            self._flush()

    async def drain(self) -> None:
        """Return when everything is written, or writing failed."""
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


class RunReport(msgspec.Struct, frozen=True, kw_only=True, tag="result", omit_defaults=False):
    """How a run ended. `denied` are calls that needed approval, and those that a rule, the mode or
    a hook denied; `missing_rules` would have allowed those that needed approval. `output` matches
    the schema."""

    version: int = FORMAT_VERSION
    session_id: str = ""
    model: str = ""
    reason: str
    exit_code: int
    text: str = ""
    output: Any = None
    error: str = ""
    detail: str = ""
    rounds: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    denied: tuple[str, ...] = ()
    missing_rules: tuple[str, ...] = ()


class StreamJsonHeader(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    """The first line of stream-json."""

    version: int = FORMAT_VERSION
    session_id: str
    model: str
    folder: str
    permission_mode: str
    tools: tuple[str, ...]
    notes: tuple[str, ...]


def redact_report(report: RunReport) -> RunReport:
    """The report without keys. From the model's answer only secrets of this process are removed."""
    return msgspec.structs.replace(
        report,
        text=redact(find_environment_secrets(), report.text),
        error=redact_for_display(report.error) if report.error else "",
        detail=redact_for_display(report.detail) if report.detail else "",
        denied=tuple(redact_for_display(summary) for summary in report.denied),
        missing_rules=tuple(redact_for_display(rule) for rule in report.missing_rules),
    )


class WarningPrinter:
    """An observer that prints warnings on stderr, for runs that show no progress; a line for each
    retry, too, unless it `is_quiet`."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet

    def on_event(self, event: Event) -> None:
        if isinstance(event, events.WarningRaised):
            self._print(event.text)
        elif isinstance(event, events.RetryScheduled) and not self._is_quiet:
            self._print(f"treadle: {format_retry(event)}")

    def _print(self, text: str) -> None:
        print_error(escape_invisible(strip_escapes(redact_for_display(text))))

    def on_item(self, position: int, item: Item) -> None:
        pass


class ProgressPrinter:
    """An observer that prints a line per event on stderr."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._denied_call_ids: set[str] = set()

    def print_denial(self, approval: PendingApproval) -> None:
        """Name a call that needs an approval; the reason that the model gets is not printed."""
        self._denied_call_ids.add(approval.call.id)
        self.print_line(f"· {approval.summary}")
        self.print_line(f"  denied, it needs your approval: {approval.reason}")

    def print_line(self, text: str) -> None:
        line = strip_escapes(redact_for_display(text)).replace("\n", " ").replace("\t", " ")
        print_error(escape_invisible(line), DIM)

    def on_event(self, event: Event) -> None:
        match event:
            case events.ToolStarted(summary=summary):
                self.print_line(f"· {summary}")
            case events.ToolFinished(outcome="denied"):
                pass  # ApprovalResolved has been printed, or a rule denied the call
            case events.ToolFinished(is_error=True, name=name, result=result):
                self.print_line(f"  {name} failed: {result}")
            case events.ApprovalResolved(call_id=call_id, decision="deny", reason=reason):
                if call_id not in self._denied_call_ids:
                    self.print_line(f"  denied: {reason}")
            case events.RetryScheduled():
                self.print_line(f"  {format_retry(event)}")
            case events.ModelChanged(old=old, new=new, reason=reason):
                self.print_line(f"  switched from {old} to {new}: {reason}")
            case events.WarningRaised(text=text) | events.Notified(text=text):
                self.print_line(f"  {text}")
            case events.UsageUpdated(turn=turn) if self._verbose:
                self.print_line(f"  {format_usage(turn)}")
            case events.LoopContinued(transition=why) if self._verbose and why != "tool_use":
                self.print_line(f"  another request: {why.replace('_', ' ')}")
            case _:
                pass

    def on_item(self, position: int, item: Item) -> None:
        # The last reply has no calls: it is the answer, which stdout shows.
        if self._verbose and isinstance(item, AssistantItem) and item.calls and item.text.strip():
            self.print_line(item.text.strip().splitlines()[0][:200])


def format_retry(event: events.RetryScheduled) -> str:
    reason = " ".join(event.reason.split())
    return f"attempt {event.attempt} failed, the next one is in {event.delay:.0f} s: {reason}"


def format_usage(usage: Usage) -> str:
    """`1,200 tokens in, 80 out (30 thinking), $0.012`."""
    thinking = f" ({usage.reasoning:,} thinking)" if usage.reasoning else ""
    cost = f", {format_cost(usage.cost, usage.known_cost)}" if usage.known_cost else ""
    return f"{usage.total_input:,} tokens in, {usage.output:,} out{thinking}{cost}"


def get_turn_detail(turn: TurnResult) -> str:
    """Details of why a turn ended, or ""."""
    return str(turn.metadata.get("detail", ""))
