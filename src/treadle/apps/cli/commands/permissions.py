"""`treadle permissions`: lists, explains, tests and back-tests permission rules.

Changes nothing, and runs nothing but the check whether there is a sandbox here: a verdict is that
of a run in this folder. Uses permissions/ and apps/console/permission_history.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, print_error, print_line, report_errors
from treadle.apps.settings.claude_settings import PERMISSION_MODES
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import SETTINGS_BY_NAME, Settings
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.apps.assembly.hook_runners import HookJudgment
    from treadle.apps.console.permission_history import JudgeReport
    from treadle.permissions.findings import PolicyFinding
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.workspace.options import WorkspaceOptions

_OK, _FAILED = exit_codes.SUCCESS, exit_codes.ERROR
_MARKS = {"allow": "+", "ask": "?", "deny": "-"}


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    return report_errors("treadle permissions", lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from treadle.permissions.ruleset.rules import InvalidRule

    try:
        code: int = options.do(options)
        return code
    except InvalidRule as error:
        raise UsageError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="treadle permissions", description="Permission rules.")
    parser.add_argument("--folder", type=Path, default=Path(), help="workspace (default: .)")
    parser.set_defaults(do=_list)
    commands = parser.add_subparsers(metavar="COMMAND")
    commands.add_parser("list", help="list all rules and their sources")
    explain = commands.add_parser("explain", help="explain the verdict on a command, part by part")
    explain.set_defaults(do=_explain)
    explain.add_argument("line", help="a command, such as 'git status; rm x'")
    explain.add_argument("--tool", default="bash", help="another tool; LINE is its path or URL")
    explain.add_argument("--json", action="store_true", help="print JSON")
    for name in ("allow", "ask", "deny"):
        explain.add_argument(f"--{name}", action="append", default=[], help="add a rule")
    _add_run_options(explain, mode="from the settings")
    test = commands.add_parser("test", help="test the rules with a file of cases (JSON lines)")
    test.set_defaults(do=_test)
    test.add_argument("cases", type=Path, nargs="?")
    test.add_argument(
        "--judge", nargs="?", const="", metavar="MODEL",
        help="instead of cases, show what the judge of auto mode says about your past decisions",
    )  # fmt: skip
    test.add_argument("--limit", type=int, default=50, help="how many of them (default: 50)")
    _add_run_options(test, mode="ask")
    backtest = commands.add_parser("backtest", help="test allow rules against past approvals")
    backtest.set_defaults(do=_backtest)
    backtest.add_argument("rules", nargs="+", metavar="RULE", help="such as 'Bash(npm test:*)'")
    backtest.add_argument("--all", action="store_true", help="sessions of all folders")
    return parser


def _add_run_options(parser: argparse.ArgumentParser, *, mode: str) -> None:
    """The options of a run that change verdicts."""
    sandbox = SETTINGS_BY_NAME["sandbox"]
    parser.add_argument(
        "--sandbox", choices=sandbox.choices,
        help="auto: as in a run here; required: in the sandbox; off: without it "
        "(default: from the settings)",
    )  # fmt: skip
    modes = SETTINGS_BY_NAME["permission_mode"]
    parser.add_argument(
        "--permission-mode", choices=modes.choices, help=f"(default: {mode})",
        type=lambda name: PERMISSION_MODES.get(name, name),
    )  # fmt: skip


def _load_settings(options: argparse.Namespace) -> Settings:
    flags = {"sandbox": options.sandbox, "permission_mode": options.permission_mode}
    given = {name: value for name, value in flags.items() if value is not None}
    return load_settings(options.folder, given, is_trusted=lambda: is_trusted(options.folder))


def _has_sandbox(settings: Settings, folder: Path, rules: RuleSet) -> bool:
    """Whether a run in this folder would run commands in the sandbox."""
    import asyncio

    from treadle.apps.settings.folder_rules import make_file_denials
    from treadle.workspace.options import WorkspaceOptions

    if settings.sandbox != "auto":
        return settings.sandbox == "required"  # where it is missing, a run does not start
    added = tuple(map(Path, _list_added_folders(settings, folder)))
    denials = make_file_denials(rules)
    return asyncio.run(_check_sandbox(folder, WorkspaceOptions(extra_roots=added, denials=denials)))


def _list_added_folders(settings: Settings, folder: Path) -> tuple[str, ...]:
    return tuple(str(Path(folder, added).expanduser()) for added in settings.add_dir)


async def _check_sandbox(folder: Path, options: WorkspaceOptions) -> bool:
    from treadle.workspace.local import LocalWorkspace

    workspace = await LocalWorkspace.open(folder, options)
    try:
        return workspace.sandboxed
    finally:
        await workspace.aclose()


def _list(options: argparse.Namespace) -> int:
    from treadle.apps.settings.folder_rules import load_rules
    from treadle.apps.settings.managed_policy import SCOPE, read_policy

    get_rules, notes, warnings = load_rules(options.folder)
    rules, policy = get_rules(), read_policy()
    for name, value, origin in policy.list_limits():
        print_line(f"limit  {escape_invisible(f'{name}: {value}'):40}  {SCOPE}: {origin}")
    for name in ("deny", "ask", "allow"):
        for rule in getattr(rules, name):
            text, origin = escape_invisible(rule.text), escape_invisible(str(rule.origin))
            print_line(f"{name:5}  {text:40}  {origin}")
    if not (rules.allow or rules.ask or rules.deny):
        print("no rules: reading in the workspace is allowed, everything else needs approval")
    for note in (*notes, *warnings, *policy.notes):
        print_error(f"note: {escape_invisible(note)}")
    return _OK


def _explain(options: argparse.Namespace) -> int:
    import msgspec

    from treadle.apps.assembly.sessions import may_take_checkpoints
    from treadle.apps.console.permission_history import describe_coverage
    from treadle.apps.settings.folder_rules import load_rules
    from treadle.apps.settings.managed_policy import read_policy
    from treadle.permissions.findings import PolicyCall
    from treadle.permissions.policy import RulePolicy, build_policy_context
    from treadle.permissions.ruleset.rules_file import parse_rules
    from treadle.permissions.suggestions import suggest_rules
    from treadle.permissions.verdict import PermissionEvaluator
    from treadle.tools.builtin import describe_access

    rules = load_rules(options.folder)[0]()
    root = os.path.realpath(options.folder)
    flags = {name: getattr(options, name) for name in ("allow", "ask", "deny")}
    extra = parse_rules(flags, root=root, home=str(Path.home()), scope="this command")
    settings = _load_settings(options)
    added = _list_added_folders(settings, options.folder)
    rules = (rules + extra).add_roots([*map(os.path.realpath, added)])
    is_command = options.tool == "bash"
    is_sandboxed = is_command and _has_sandbox(settings, options.folder, rules)
    context = msgspec.structs.replace(
        build_policy_context(options.folder, rules, added),
        has_checkpoints=may_take_checkpoints(Path(root)),
        tools_skip_denied=True,
        sandbox_hides_denied=is_sandboxed,
        accepts_rules=not read_policy().managed_rules_only,
    )
    key = {"bash": "command", "webfetch": "url", "web_fetch": "url"}.get(options.tool, "path")
    access = describe_access(options.tool, {key: options.line}, context.root)
    call = PolicyCall(options.tool, access, is_sandboxed=is_sandboxed)
    mode = settings.permission_mode
    ruling = RulePolicy(context, mode=mode, sandboxed=is_sandboxed).evaluate(call)
    is_asked = ruling.outcome == "ask"
    proposed = suggest_rules(call, PermissionEvaluator(context)) if is_asked else ()
    if options.json:
        parts = [_finding_to_dict(f) for f in ruling.findings]
        answer = {"verdict": ruling.outcome, "reason": ruling.reason, "parts": parts,
                  "always_allow": list(proposed), "mode": mode,
                  "sandboxed": is_sandboxed}  # fmt: skip
        print(json.dumps(answer))
        return _OK
    print_line(f"{ruling.outcome}: {escape_invisible(ruling.reason)}")
    for finding in ruling.findings:
        for line in _format_tree(finding, 1):
            print_line(line)
    if proposed:
        saved = ", ".join(map(escape_invisible, proposed))
        coverage = describe_coverage(proposed, Path(root))
        covered = f" (would have covered {coverage})" if coverage else ""
        print_line(f'"always allow" would save: {saved}{covered}')
    where = ("in the sandbox" if is_sandboxed else "without a sandbox") if is_command else ""
    print_line(f"(mode {mode}{', ' + where if where else ''})")
    return _OK


def _format_tree(finding: PolicyFinding, depth: int) -> Iterator[str]:
    subject, reason = escape_invisible(finding.subject), escape_invisible(finding.reason)
    yield f"{'  ' * depth}{_MARKS[finding.outcome]} {subject}   {finding.outcome}: {reason}"
    for inner in finding.inner:
        yield from _format_tree(inner, depth + 1)


def _finding_to_dict(finding: PolicyFinding) -> dict[str, object]:
    return {
        "part": finding.subject,
        "verdict": finding.outcome,
        "reason": finding.reason,
        "rule": finding.rule,
        "inner": [_finding_to_dict(inner) for inner in finding.inner],
    }


def _test(options: argparse.Namespace) -> int:
    from treadle.permissions.rule_cases import read_cases, run_cases
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.tools.builtin import describe_access

    code = _OK
    settings = _load_settings(options)
    if options.judge is not None:
        return _test_judge(options, settings)
    if options.cases is None:
        raise UsageError("test needs a file of cases, or --judge")
    try:
        cases = read_cases(options.cases)
    except OSError as error:
        raise UsageError(f"{options.cases}: {error.strerror}") from error
    is_sandboxed = _has_sandbox(settings, options.folder, RuleSet())
    mode: PermissionMode = options.permission_mode or "ask"
    for outcome in run_cases(cases, describe_access, mode, is_sandboxed=is_sandboxed):
        line = {"id": outcome.id, "verdict": outcome.verdict, "reason": outcome.reason}
        if outcome.is_unexpected:
            line["expect"] = outcome.expect
            code = _FAILED
        print(json.dumps(line))
    return code


def _test_judge(options: argparse.Namespace, settings: Settings) -> int:
    import asyncio

    import msgspec

    from treadle.apps.assembly.judge import describe_call, judge_call, make_judge_model
    from treadle.apps.assembly.model_choice import choose_model_now, create_small_model
    from treadle.apps.console.permission_history import PastPermissionRequest, backtest_judge
    from treadle.budgets import CostBudget

    settings = msgspec.structs.replace(settings, judge=options.judge or settings.judge or "small")
    small = create_small_model(settings)
    is_small = settings.judge == "small" and small is None
    model = choose_model_now(settings)[0] if is_small else make_judge_model(settings, small)
    is_limited = settings.origin("max_cost") != "default" or model.card.input_price is not None
    limit = settings.max_cost if is_limited else None
    gates = [CostBudget(limit)] if limit is not None else []

    async def judge(past: PastPermissionRequest) -> HookJudgment:
        text = describe_call(past.words, past.call.tool, past.arguments)
        return await judge_call(model, text, gates=gates)

    folder = Path(os.path.realpath(options.folder))

    async def run() -> JudgeReport:
        try:
            return await backtest_judge(judge, folder, options.limit)
        finally:
            await model.aclose()

    report = asyncio.run(run())
    for past, ok, reason in report.verdicts:
        if not ok:
            line = escape_invisible(f"{past.decision}: {past.call.tool} {past.arguments}")
            print_line(f"  ? {line[:160]}: {escape_invisible(reason)}")
    print_line(str(report) if report.verdicts else "no past decisions")
    return _OK


def _backtest(options: argparse.Namespace) -> int:
    from treadle.apps.console.permission_history import backtest_rules

    folder = Path(os.path.realpath(options.folder))
    report = backtest_rules(options.rules, folder, all_folders=options.all)
    print_line(f"{', '.join(options.rules)} {report.result}")
    for line in report.result.examples:
        print_line(f"  + {escape_invisible(line)}")
    for line in report.result.warnings:
        print_line(f"  - was denied: {escape_invisible(line)}")
    if report.unanswered:
        print(f"{plural(report.unanswered, 'request')} came from a run without a user to ask")
    if not report.result.questions:
        print("no past approval requests", file=sys.stderr)
    return _FAILED if report.result.denied_covered else _OK
