"""What happened in a session, as evidence for an audit.

    verify_session     follows the chain of hashes through the log
    collect_evidence   which calls had an effect, who allowed each and by which rule, what was asked
                       for, and the cost; with those of child agents

Reads only. A signature of the evidence, made by ssh-keygen, covers the log: it has the hash of the
last entry. Used by `treadle sessions verify` and `evidence`; pages/evidence.py is the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import StoreError
from treadle.core.transcript.entries import (
    ApprovalDecision,
    EarlyResult,
    Entry,
    Forked,
    Intent,
    ItemAdded,
    TurnBegan,
    UsageRecorded,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage
from treadle.lib.files.blobs import Blobs
from treadle.lib.files.file_system import LocalFiles
from treadle.lib.text.text import plural
from treadle.sessions.children import list_children
from treadle.sessions.export import read_redacted
from treadle.sessions.log.hash_chain import ChainLink, ChainReport, verify_chain
from treadle.sessions.log.reader import JournalReader, find_session_dir
from treadle.sessions.log.records import Record

FORMAT_VERSION = 1


def _read_links(reader: JournalReader) -> Iterator[ChainLink]:
    """The entries of the session alone, as they are in its files."""
    blobs = Blobs(reader.session_dir / "blobs", LocalFiles())
    for record in reader.own_records():
        raw = record.raw.rstrip(b"\n")
        body = b"{" + raw[raw.index(b'"kind":"') :]
        content = blobs.get(record.blob) if record.blob else None
        is_lost = bool(record.blob) and content is None
        yield ChainLink(record.seq, record.time, body, content, is_lost)


def verify_session(session_dir: Path) -> ChainReport:
    """Of the session alone. What is damaged is a problem, and a parent that it does not follow."""
    reader = JournalReader(session_dir)
    parent = reader.header.parent if reader.header is not None else None
    report = verify_chain(_read_links(reader), parent.head.encode() if parent is not None else b"")
    problem = report.problem or (str(reader.damage[0]) if reader.damage else "")
    if not problem and parent is not None and parent.head:
        heads = verify_session(find_session_dir(session_dir, parent.session)).heads
        if parent.head not in heads.values():
            problem = f"it is a fork of {parent.session}, which was changed or cut since"
    return msgspec.structs.replace(report, problem=problem)


class AuditedCall(msgspec.Struct, frozen=True):
    """A call that had an effect, or that was decided on. `entry` and `time` are those of the
    decision or of the effect, whichever came first; `rule` is why it was allowed without asking."""

    entry: int
    time: float
    turn: int
    call_id: str
    tool: str
    arguments: str
    effect: str = ""
    decision: str = ""
    decided_by: str = ""
    reason: str = ""
    rule: str = ""
    outcome: str = ""


class ModelCost(msgspec.Struct, frozen=True):
    model: str
    purpose: str
    calls: int
    usage: Usage


class Evidence(msgspec.Struct, frozen=True):
    """`chain` is "intact", "unsigned" or "broken"; `head` is the last hash of its log."""

    format: int
    session: str
    folder: str
    created: float
    entries: int
    unsigned: int
    head: str
    chain: str
    problem: str
    messages: tuple[str, ...]
    calls: tuple[AuditedCall, ...]
    costs: tuple[ModelCost, ...]
    children: tuple[Evidence, ...] = ()

    @property
    def cost(self) -> float | None:
        """USD with the children; None if a price is not known."""
        costs = [one.usage.cost for one in self.costs] + [one.cost for one in self.children]
        known = [one for one in costs if one is not None]
        return sum(known) if len(known) == len(costs) else None


def collect_evidence(session_dir: Path) -> Evidence:
    """Of the session and its child agents, without the secrets of this process."""
    report, header = verify_session(session_dir), JournalReader(session_dir).header
    reader = _EvidenceReader()
    for record, entry in read_redacted(session_dir):
        reader.add(record, entry)
    return Evidence(
        FORMAT_VERSION,
        session_dir.name,
        header.folder if header is not None else "",
        header.created if header is not None else 0.0,
        report.entries,
        report.unsigned,
        report.head,
        report.state,
        report.problem,
        tuple(reader.messages),
        tuple(one for one in reader.calls.values() if one.effect or one.decision),
        tuple(reader.costs.values()),
        tuple(collect_evidence(child) for child in list_children(session_dir)),
    )


def read_evidence(file: Path) -> Evidence:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Evidence)
    except msgspec.DecodeError as error:
        raise StoreError(f"{file} is no evidence as JSON: {error}") from error


class _EvidenceReader:
    def __init__(self) -> None:
        self.calls: dict[str, AuditedCall] = {}
        self.costs: dict[tuple[str, str], ModelCost] = {}
        self.messages: list[str] = []
        self._turn = 0

    def add(self, record: Record, entry: Entry) -> None:
        match entry:
            case Forked():
                self.costs.clear()  # what is before it was paid by the parent
            case TurnBegan(continues=False):
                self._turn += 1
            case ItemAdded(item=UserItem() as message):
                self.messages.append(message.first_text)
            case ItemAdded(item=AssistantItem() as reply):
                for call in reply.calls:
                    new = AuditedCall(0, 0.0, self._turn, call.id, call.name, call.raw)
                    self.calls[call.id] = new
            case ApprovalDecision():
                reason, raw = entry.reason, entry.raw
                what = {
                    "decision": entry.decision,
                    "reason": reason,
                    "decided_by": entry.decided_by,
                }
                self._change(record, entry.call_id, **what, **({"arguments": raw} if raw else {}))
            case Intent():
                what = {"effect": entry.effect, "tool": entry.tool, "rule": entry.allowed_by}
                raw = entry.raw
                self._change(record, entry.call_id, **what, **({"arguments": raw} if raw else {}))
            case ItemAdded(item=ToolResultItem() as result) | EarlyResult(result=result):
                if result.call_id in self.calls:
                    outcome = "error" if result.is_error else "done"
                    outcome = outcome if result.outcome == "finished" else result.outcome
                    self._change(record, result.call_id, outcome=outcome)
            case UsageRecorded():
                key = (entry.model, entry.purpose)
                old = self.costs.get(key, ModelCost(*key, 0, Usage(cost=0.0)))
                self.costs[key] = ModelCost(*key, old.calls + 1, old.usage + entry.usage)
            case _:
                pass

    def _change(self, record: Record, call_id: str, **changes: str) -> None:
        call = self.calls.get(call_id)
        if call is None:
            call = AuditedCall(0, 0.0, self._turn, call_id, "", "")
        if not call.entry and "outcome" not in changes:
            call = msgspec.structs.replace(call, entry=record.seq, time=record.time)
        self.calls[call_id] = msgspec.structs.replace(call, **changes)


def describe_chain(name: str, report: ChainReport) -> str:
    """One line for the user."""
    count = plural(report.entries, "entry", "entries")
    if report.problem:
        return f"{name}: broken: {report.problem}; {count} before it fit"
    if report.state == "unsigned":
        return f"{name}: unsigned: an earlier version wrote all {count}"
    early = f"; {report.unsigned} of them unsigned" if report.unsigned else ""
    return f"{name}: intact: {count}, head {report.head}{early}"
