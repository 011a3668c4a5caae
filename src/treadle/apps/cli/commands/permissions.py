"""`treadle permissions`: what the rules are, what they say of a call, whether they keep a promise.

Reads settings and judges; runs nothing and changes nothing. Above: `main.py`. Below: `policy/`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import print_error, print_line
from treadle.core.sanitize import escape_invisible

if TYPE_CHECKING:
    from treadle.policy.evaluation.ruling import PolicyFinding

_OK, _FAILED, _USAGE_ERROR = exit_codes.SUCCESS, exit_codes.ERROR, exit_codes.USAGE_ERROR
_MARKS = {"allow": "+", "ask": "?", "deny": "-"}


def run(arguments: list[str]) -> int:
    """Answer one command; the result is the exit code."""
    from treadle.core.errors import ConfigError

    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "explain":
                return _explain(options)
            case "test":
                return _test(options)
            case "backtest":
                return _backtest(options)
            case _:
                return _list(options)
    except (ConfigError, OSError) as error:
        print_error(f"treadle permissions: {error}")
        return _USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="treadle permissions", description="Permission rules.")
    parser.add_argument("--folder", type=Path, default=Path(), help="the workspace (here)")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("list", help="every rule and where it comes from")
    explain = commands.add_parser("explain", help="the verdict on a command line, part by part")
    explain.add_argument("line", help="a command line, such as 'git status; rm x'")
    explain.add_argument("--tool", default="bash", help="another tool; LINE is its path or address")
    explain.add_argument("--json", action="store_true", help="print JSON")
    for name in ("allow", "ask", "deny"):
        explain.add_argument(f"--{name}", action="append", default=[], help="one more rule")
    test = commands.add_parser("test", help="judge a file of cases, one JSON line each")
    test.add_argument("cases", type=Path)
    back = commands.add_parser("backtest", help="what allow rules would have meant so far")
    back.add_argument("rules", nargs="+", metavar="RULE", help="such as 'Bash(npm test:*)'")
    back.add_argument("--all", action="store_true", help="the sessions of all folders")
    return parser


def _list(options: argparse.Namespace) -> int:
    from treadle.apps.assembly.rules import load_rules

    found, notes = load_rules(options.folder)
    rules = found()
    for name in ("deny", "ask", "allow"):
        for rule in getattr(rules, name):
            print_line(
                f"{name:5}  {escape_invisible(rule.text):40}  {escape_invisible(str(rule.origin))}"
            )
    if not (rules.allow or rules.ask or rules.deny):
        print("no rules: reading inside the workspace is allowed, all else is asked")
    for note in notes:
        print_error(f"note: {escape_invisible(note)}")
    return _OK


def _explain(options: argparse.Namespace) -> int:
    from treadle.apps.assembly.rules import load_rules
    from treadle.policy.evaluation.permission_evaluator import PermissionEvaluator
    from treadle.policy.evaluation.rule_suggestions import suggest_rules
    from treadle.policy.evaluation.ruling import PolicyCall
    from treadle.policy.policy import build_policy_context
    from treadle.policy.ruleset.rules import InvalidRule
    from treadle.policy.ruleset.rules_file import parse_rules

    rules = load_rules(options.folder)[0]()
    root = os.path.realpath(options.folder)
    given = {name: getattr(options, name) for name in ("allow", "ask", "deny")}
    try:
        extra = parse_rules(given, root=root, home=str(Path.home()), scope="this command")
    except InvalidRule as error:
        print_error(f"treadle permissions: {error}")
        return _USAGE_ERROR
    situation = build_policy_context(options.folder, rules + extra)
    key = {"bash": "command", "webfetch": "url", "web_fetch": "url"}.get(options.tool, "path")
    call = PolicyCall(options.tool, {key: options.line}, situation.root)
    ruling = PermissionEvaluator(situation).evaluate(call)
    proposed = suggest_rules(call, situation) if ruling.outcome == "ask" else ()
    if options.json:
        parts = [_finding_to_dict(f) for f in ruling.findings]
        answer = {"verdict": ruling.outcome, "reason": ruling.reason, "parts": parts,
                  "always_allow": list(proposed)}  # fmt: skip
        print(json.dumps(answer))
        return _OK
    print_line(f"{ruling.outcome}: {escape_invisible(ruling.reason)}")
    for finding in ruling.findings:
        for line in _format_tree(finding, 1):
            print_line(line)
    if proposed:
        print_line("always allow would save: " + ", ".join(map(escape_invisible, proposed)))
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
    from treadle.policy.evaluation.rule_cases import read_cases, run_cases

    code = _OK
    for outcome in run_cases(read_cases(options.cases)):
        line = {"id": outcome.id, "verdict": outcome.verdict, "reason": outcome.reason}
        if outcome.is_unexpected:
            line["expect"] = outcome.expect
            code = _FAILED
        print(json.dumps(line))
    return code


def _backtest(options: argparse.Namespace) -> int:
    from treadle.apps.services.permission_history import backtest_rules
    from treadle.policy.ruleset.rules import InvalidRule

    folder = Path(os.path.realpath(options.folder))
    try:
        tested = backtest_rules(options.rules, folder, all_folders=options.all)
    except InvalidRule as error:
        print_error(f"treadle permissions: {error}")
        return _USAGE_ERROR
    print_line(f"{', '.join(options.rules)} {tested.result}")
    for line in tested.result.examples:
        print_line(f"  + {escape_invisible(line)}")
    for line in tested.result.warnings:
        print_line(f"  - denied then: {escape_invisible(line)}")
    if tested.unanswered:
        print(f"{tested.unanswered} of the questions came up where nobody could be asked")
    if not tested.result.questions:
        print("nobody was asked anything yet", file=sys.stderr)
    return _FAILED if tested.result.denied_covered else _OK
