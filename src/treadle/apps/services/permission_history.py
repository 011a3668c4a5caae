"""What was asked in the past, read off the sessions: the calls, and what somebody said to them.

For back-testing rules (policy/backtest); the sessions themselves are treadle.sessions' business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.rules import UNATTENDED_DENIAL_PREFIX, load_rules
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import ApprovalDecision, ItemAdded
from treadle.core.transcript.items import AssistantItem
from treadle.policy.evaluation.backtest import BacktestResult, PastDecision, run_backtest
from treadle.policy.evaluation.ruling import PolicyCall
from treadle.policy.policy import build_policy_context
from treadle.policy.ruleset.rules import Rule
from treadle.policy.ruleset.rules_file import parse_rules
from treadle.sessions.library import Library
from treadle.tools.late_tools import unwrap_call

if TYPE_CHECKING:
    from treadle.sessions.log.records import Record


class BacktestReport(msgspec.Struct, frozen=True):
    """What the rules would have meant; `unanswered` were questions that nobody could be asked."""

    result: BacktestResult
    unanswered: int


class PastPermissionRequest(msgspec.Struct, frozen=True):
    """A call that the rules did not decide, and what came of it."""

    call: PolicyCall
    decision: PastDecision
    is_unanswered: bool


def backtest_rules(
    rules: Sequence[str], folder: Path, *, all_folders: bool, library: Library | None = None
) -> BacktestReport:
    """These allow rules against the past of this folder, or of all, each with its own rules."""
    library = library or Library()
    whole, unanswered = BacktestResult(), 0
    for place, sessions in _group_by_folder(library, None if all_folders else folder):
        questions = [
            question for one in sessions for question in read_permission_requests(one, place)
        ]
        unanswered += sum(question.is_unanswered for question in questions)
        if questions:
            past = ((question.call, question.decision) for question in questions)
            in_force = load_rules(place)[0]()
            whole = _merge(
                whole,
                run_backtest(
                    _parse_rules(rules, place), past, build_policy_context(place, in_force)
                ),
            )
    _parse_rules(rules, folder)  # a wrong rule is told also where there is no past
    return BacktestReport(whole, unanswered)


def read_permission_requests(session_dir: Path, folder: Path) -> Iterator[PastPermissionRequest]:
    """Every question of a session, in order."""
    from treadle.sessions.log.reader import JournalReader
    from treadle.sessions.log.records import decode_entry

    calls: dict[str, ToolCall] = {}
    for line, _ in JournalReader(session_dir).records():
        if not _is_relevant(line):
            continue
        try:
            entry = decode_entry(line.raw)
        except msgspec.DecodeError:
            continue  # a kind of a newer version
        match entry:
            case ItemAdded(item=AssistantItem() as reply):
                calls.update({call.id: call for call in reply.calls})
            case ApprovalDecision(call_id=call_id) if call_id in calls:
                yield _make_request(calls[call_id], entry, folder)
            case _:
                pass


def _is_relevant(line: Record) -> bool:
    return line.kind == "ruling" or (line.kind == "item" and b'"type":"tool_call"' in line.raw)


def _make_request(call: ToolCall, ruling: ApprovalDecision, folder: Path) -> PastPermissionRequest:
    # What nobody could answer was not refused by anybody.
    is_unanswered = ruling.decision == "deny" and ruling.reason.startswith(UNATTENDED_DENIAL_PREFIX)
    said: PastDecision = "denied" if ruling.decision == "deny" and not is_unanswered else "approved"
    tool, arguments = unwrap_call(call.name, call.arguments or {})
    return PastPermissionRequest(PolicyCall(tool, arguments, str(folder)), said, is_unanswered)


def _group_by_folder(
    library: Library, only_folder: Path | None
) -> Iterator[tuple[Path, list[Path]]]:
    found: dict[str, list[Path]] = {}
    for summary in library.list_summaries(folder=only_folder):
        found.setdefault(summary.folder, []).append(library.root / summary.key)
    for folder, sessions in found.items():
        yield Path(folder), sessions


def _parse_rules(rules: Sequence[str], folder: Path) -> tuple[Rule, ...]:
    root = os.path.realpath(folder)
    home = str(Path.home())
    return parse_rules({"allow": list(rules)}, root=root, home=home, scope="this command").allow


def _merge(one: BacktestResult, two: BacktestResult) -> BacktestResult:
    return BacktestResult(
        one.questions + two.questions,
        one.covered + two.covered,
        one.denied + two.denied,
        one.denied_covered + two.denied_covered,
        (*one.examples, *two.examples),
        (*one.warnings, *two.warnings),
    )
