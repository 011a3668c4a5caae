"""Past calls and decisions, read from the sessions, for back-testing rules and for their last use.

Uses treadle.sessions. Used by `treadle permissions backtest` and the page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from treadle.apps.settings.folder_rules import load_rules
from treadle.core.transcript import AssistantItem, ToolCall, UserItem
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import ApprovalDecision, ItemAdded
from treadle.lib.text.text import plural
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.policy import build_policy_context
from treadle.permissions.ruleset.rules import Rule, RuleSet
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator
from treadle.sessions.library import Library
from treadle.sessions.log.journal import read_records
from treadle.tools.builtin import describe_access
from treadle.tools.late_tools import unwrap_call

if TYPE_CHECKING:
    from treadle.apps.assembly.hook_runners import HookJudgment
    from treadle.sessions.log.records import Record

# How version 0.1 began the reason of a denial when no user could be asked.
OLD_HEADLESS_REASON = "This needs a person's approval, and nobody can be asked in this run"


class BacktestReport(msgspec.Struct, frozen=True):
    """The effect that rules would have had; `unanswered` requests reached no user."""

    result: BacktestResult
    unanswered: int


class JudgeReport(msgspec.Struct, frozen=True):
    """Past calls with what a judge said about each: no objection, and the reason of one."""

    verdicts: tuple[tuple[PastPermissionRequest, bool, str], ...]

    def __str__(self) -> str:
        parts: list[str] = []
        for decision in ("denied", "approved"):
            found = [ok for one, ok, _ in self.verdicts if one.decision == decision]
            calls = plural(len(found), "call")
            parts.append(f"{found.count(False)} of {calls} that you {decision}")
        return f"the judge objects to {parts[0]} and to {parts[1]}"


class PastPermissionRequest(msgspec.Struct, frozen=True):
    """A call that the rules did not decide, and the decision about it."""

    call: PolicyCall
    decision: PastDecision
    is_unanswered: bool
    arguments: Arguments = {}
    words: tuple[str, ...] = ()  # what the user had written by then


def backtest_rules(rules: Sequence[str], folder: Path, *, all_folders: bool) -> BacktestReport:
    """Test allow rules against the past requests of this folder, or of all folders.

    Each folder is tested with the rules that are in force there.
    """
    _parse_rules(rules, folder)  # an invalid rule raises, even without past requests
    total, unanswered = BacktestResult(), 0
    by_folder = _group_by_folder(None if all_folders else folder)
    for past_folder, sessions in by_folder.items():
        requests = list(chain(*(read_permission_requests(one, past_folder) for one in sessions)))
        unanswered += sum(request.is_unanswered for request in requests)
        if requests:
            past = ((request.call, request.decision) for request in requests)
            context = build_policy_context(past_folder, load_rules(past_folder)[0]())
            total = _merge(total, run_backtest(_parse_rules(rules, past_folder), past, context))
    return BacktestReport(total, unanswered)


def describe_coverage(rules: Sequence[str], folder: Path) -> str:
    """What rules to be saved would have covered; "" if there are no past requests."""
    result = backtest_rules(rules, folder, all_folders=False).result
    if not result.questions:
        return ""
    denied = "none that you denied"
    if result.denied_covered:
        denied = f"and {result.denied_covered} that you denied"
    return f"{result.covered} of {plural(result.questions, 'past call')}, {denied}"


async def backtest_judge(
    judge: Callable[[PastPermissionRequest], Awaitable[HookJudgment]],
    folder: Path,
    limit: int,
) -> JudgeReport:
    """What a judge says about the latest calls of this folder that the user decided on."""
    sessions = _group_by_folder(folder).get(folder, [])
    requests = chain(*(read_permission_requests(one, folder) for one in sessions))
    answered = [request for request in requests if not request.is_unanswered][-limit:]
    verdicts = [(request, await judge(request)) for request in answered]
    return JudgeReport(tuple((one, said.ok, said.reason) for one, said in verdicts))


class RuleUse(msgspec.Struct, frozen=True):
    """How often a rule was about a call, and the last time: when, and in which session."""

    count: int
    time: float
    session: str


def find_rule_uses(rules: RuleSet, folder: Path, seconds: float) -> dict[str, RuleUse]:
    """The past calls of the folder that these rules are about, by the text of the rule. The newest
    sessions are read first; those that do not fit into the time are left out."""
    deadline = time.monotonic() + seconds
    evaluator = PermissionEvaluator(build_policy_context(folder, rules))
    uses: dict[str, RuleUse] = {}
    for session_dir in _group_by_folder(folder).get(folder, []):
        for record, entry in read_records(session_dir, kinds=("item",)):
            if time.monotonic() > deadline:
                return uses
            if not (isinstance(entry, ItemAdded) and isinstance(entry.item, AssistantItem)):
                continue
            for call in entry.item.calls:
                for rule in _list_rules_about(call, evaluator, folder):
                    known = uses.get(rule, RuleUse(0, 0.0, ""))
                    last = max((known.time, known.session), (record.time, session_dir.name))
                    uses[rule] = RuleUse(known.count + 1, *last)
    return uses


def _list_rules_about(call: ToolCall, evaluator: PermissionEvaluator, folder: Path) -> set[str]:
    """The rules that decide on a call or a part of it."""
    tool, arguments = unwrap_call(call.name, call.arguments or {})
    access = describe_access(tool, arguments, str(folder))
    waiting, rules = list(evaluator.evaluate(PolicyCall(tool, access)).findings), set[str]()
    while waiting:
        finding = waiting.pop()
        rules.add(finding.rule)
        waiting += finding.inner
    return rules - {""}


def read_permission_requests(session_dir: Path, folder: Path) -> Iterator[PastPermissionRequest]:
    """The approval requests of a session, in order."""
    from treadle.core.transcript.entry_json import decode_entry
    from treadle.sessions.log.reader import JournalReader

    calls: dict[str, ToolCall] = {}
    words: list[str] = []
    for line, _ in JournalReader(session_dir).records():
        if not _is_relevant(line):
            continue
        try:
            entry = decode_entry(line.raw)
        except msgspec.DecodeError:
            continue  # written by a newer version
        match entry:
            case ItemAdded(item=UserItem() as message):
                words.append(message.text)
            case ItemAdded(item=AssistantItem() as reply):
                calls.update({call.id: call for call in reply.calls})
            case ApprovalDecision(call_id=call_id) if call_id in calls:
                yield _make_request(calls[call_id], entry, folder, words)
            case _:
                pass


def _is_relevant(line: Record) -> bool:
    if line.kind != "item":
        return line.kind == "ruling"
    return b'"type":"tool_call"' in line.raw or b'"item":{"type":"user"' in line.raw


def _make_request(
    call: ToolCall, entry: ApprovalDecision, folder: Path, words: Sequence[str]
) -> PastPermissionRequest:
    is_denied = entry.decision == "deny"
    is_unanswered = is_denied and _is_headless(entry)  # the user did not deny it
    past: PastDecision = "denied" if is_denied and not is_unanswered else "approved"
    tool, arguments = unwrap_call(call.name, call.arguments or {})
    access = describe_access(tool, arguments, str(folder))
    past_call = PolicyCall(tool, access)
    return PastPermissionRequest(past_call, past, is_unanswered, arguments, tuple(words))


def _is_headless(decision: ApprovalDecision) -> bool:
    if decision.decided_by:
        return decision.decided_by == "headless"
    return decision.reason.startswith(OLD_HEADLESS_REASON)  # reader of logs of version 0.1


def _group_by_folder(only_folder: Path | None) -> dict[Path, list[Path]]:
    library = Library()
    sessions: dict[Path, list[Path]] = {}
    for summary in library.list_summaries(folder=only_folder):
        sessions.setdefault(Path(summary.folder), []).append(library.root / summary.key)
    return sessions


def _parse_rules(rules: Sequence[str], folder: Path) -> tuple[Rule, ...]:
    root = os.path.realpath(folder)
    home = str(Path.home())
    return parse_rules({"allow": list(rules)}, root=root, home=home, scope="this command").allow


def _merge(left: BacktestResult, right: BacktestResult) -> BacktestResult:
    return BacktestResult(
        left.questions + right.questions,
        left.covered + right.covered,
        left.denied + right.denied,
        left.denied_covered + right.denied_covered,
        (*left.examples, *right.examples),
        (*left.warnings, *right.warnings),
    )


PastDecision = Literal["allowed", "approved", "denied"]  # by a rule, by the user, by either
_MAX_EXAMPLES = 5


class BacktestResult(msgspec.Struct, frozen=True):
    """Counts and examples."""

    questions: int = 0  # calls about which the user was asked
    covered: int = 0  # approved calls that the rules would have allowed
    denied: int = 0  # calls that the user denied
    denied_covered: int = 0  # denied calls that the rules would have allowed
    examples: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # the denied calls that they would have allowed

    def __str__(self) -> str:
        denied = "no denied call"
        if self.denied_covered:
            denied = f"{self.denied_covered} of {self.denied} denied calls"
        return f"would have covered {self.covered} of {self.questions} questions and {denied}"


def run_backtest(
    rules: Iterable[Rule], past: Iterable[tuple[PolicyCall, PastDecision]], context: PolicyContext
) -> BacktestResult:
    """Evaluate past questions again with these allow rules added to those in force."""
    before = PermissionEvaluator(context)
    after = before.with_rules([*rules])
    decisions: list[PastDecision] = []
    covered: dict[PastDecision, list[str]] = {"approved": [], "denied": []}
    for call, decision in past:
        if decision == "allowed":
            continue
        decisions.append(decision)
        if before.evaluate(call).outcome != "allow" and after.evaluate(call).outcome == "allow":
            covered[decision].append(_format_call(call))
    return BacktestResult(
        questions=len(decisions),
        covered=len(covered["approved"]),
        denied=decisions.count("denied"),
        denied_covered=len(covered["denied"]),
        examples=tuple(dict.fromkeys(covered["approved"]))[:_MAX_EXAMPLES],
        warnings=tuple(dict.fromkeys(covered["denied"]))[:_MAX_EXAMPLES],
    )


def _format_call(call: PolicyCall) -> str:
    access = call.access
    touched = access.command or access.url or ", ".join(file.path for file in access.files)
    return f"{call.tool}: {touched}"[:100]
