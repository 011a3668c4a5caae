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

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say, warn
from treadle.core.terminal import visible

if TYPE_CHECKING:
    from treadle.policy.verdict import Finding

_OK, _DIFFERS, _USAGE = exits.DONE, exits.ERROR, exits.USAGE
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
        warn(f"treadle permissions: {error}")
        return _USAGE


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
    from treadle.apps.wiring.rules import load_rules

    found, notes = load_rules(options.folder)
    rules = found()
    for name in ("deny", "ask", "allow"):
        for rule in getattr(rules, name):
            say(f"{name:5}  {visible(rule.text):40}  {visible(str(rule.origin))}")
    if not (rules.allow or rules.ask or rules.deny):
        print("no rules: reading inside the workspace is allowed, all else is asked")
    for note in notes:
        warn(f"note: {visible(note)}")
    return _OK


def _explain(options: argparse.Namespace) -> int:
    from treadle.apps.wiring.rules import load_rules
    from treadle.policy.judge import Judge
    from treadle.policy.remember import propose_rules
    from treadle.policy.rulepolicy import situation_of
    from treadle.policy.rules import InvalidRule
    from treadle.policy.rulesfile import given_rules
    from treadle.policy.verdict import Call

    rules = load_rules(options.folder)[0]()
    root = os.path.realpath(options.folder)
    given = {name: getattr(options, name) for name in ("allow", "ask", "deny")}
    try:
        extra = given_rules(given, root=root, home=str(Path.home()), scope="this command")
    except InvalidRule as error:
        warn(f"treadle permissions: {error}")
        return _USAGE
    situation = situation_of(options.folder, rules + extra)
    key = {"bash": "command", "webfetch": "url", "web_fetch": "url"}.get(options.tool, "path")
    call = Call(options.tool, {key: options.line}, situation.root)
    ruling = Judge(situation).judge(call)
    proposed = propose_rules(call, situation) if ruling.outcome == "ask" else ()
    if options.json:
        parts = [_as_json(f) for f in ruling.findings]
        answer = {"verdict": ruling.outcome, "reason": ruling.reason, "parts": parts,
                  "always_allow": list(proposed)}  # fmt: skip
        print(json.dumps(answer))
        return _OK
    say(f"{ruling.outcome}: {visible(ruling.reason)}")
    for finding in ruling.findings:
        for line in _tree(finding, 1):
            say(line)
    if proposed:
        say("always allow would save: " + ", ".join(map(visible, proposed)))
    return _OK


def _tree(finding: Finding, depth: int) -> Iterator[str]:
    subject, reason = visible(finding.subject), visible(finding.reason)
    yield f"{'  ' * depth}{_MARKS[finding.outcome]} {subject}   {finding.outcome}: {reason}"
    for inner in finding.inner:
        yield from _tree(inner, depth + 1)


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "part": finding.subject,
        "verdict": finding.outcome,
        "reason": finding.reason,
        "rule": finding.rule,
        "inner": [_as_json(inner) for inner in finding.inner],
    }


def _test(options: argparse.Namespace) -> int:
    from treadle.policy.cases import read_cases, run_cases

    code = _OK
    for outcome in run_cases(read_cases(options.cases)):
        line = {"id": outcome.id, "verdict": outcome.verdict, "reason": outcome.reason}
        if outcome.differs:
            line["expect"] = outcome.expect
            code = _DIFFERS
        print(json.dumps(line))
    return code


def _backtest(options: argparse.Namespace) -> int:
    from treadle.apps.wiring.past import back_tested
    from treadle.policy.rules import InvalidRule

    folder = Path(os.path.realpath(options.folder))
    try:
        tested = back_tested(options.rules, folder, everywhere=options.all)
    except InvalidRule as error:
        warn(f"treadle permissions: {error}")
        return _USAGE
    say(f"{', '.join(options.rules)} {tested.result}")
    for line in tested.result.examples:
        say(f"  + {visible(line)}")
    for line in tested.result.warnings:
        say(f"  - denied then: {visible(line)}")
    if tested.unanswered:
        print(f"{tested.unanswered} of the questions came up where nobody could be asked")
    if not tested.result.questions:
        print("nobody was asked anything yet", file=sys.stderr)
    return _DIFFERS if tested.result.denied_covered else _OK
