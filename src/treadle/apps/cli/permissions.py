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

if TYPE_CHECKING:
    from treadle.policy.rules import RuleSet
    from treadle.policy.verdict import Finding

_OK, _DIFFERS, _USAGE = 0, 1, 2
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
            case _:
                return _list(options)
    except (ConfigError, OSError) as error:
        print(f"treadle permissions: {error}", file=sys.stderr)
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
    return parser


def settings_files(folder: Path) -> list[tuple[str, Path, str]]:
    """Where rules are kept: what the user calls the place, the file, the root of its paths."""
    home = Path.home()
    root = os.path.realpath(folder)
    return [
        ("everywhere", home / ".treadle" / "settings.json", root),
        ("this project", Path(root) / ".treadle" / "settings.json", root),
        ("this project, only you", Path(root) / ".treadle" / "settings.local.json", root),
    ]


def load_rules(folder: Path) -> tuple[RuleSet, list[str]]:
    """The rules in force in a folder, and notes on those that are not."""
    from treadle.policy.rules import RuleSet
    from treadle.policy.rulesfile import read_rules
    from treadle.policy.trust import TrustStore, rules_of_folder

    trust = TrustStore(Path.home() / ".treadle" / "trust.json")
    rules, notes = RuleSet(), list[str]()
    for scope, file, root in settings_files(folder):
        found = read_rules(file, scope=scope, root=root, home=str(Path.home()))
        if scope != "everywhere":
            accepted = trust.accepts_rules(folder, found)
            if found.allow and not accepted:
                count = len(found.allow)
                notes.append(f"{count} allow rules of {file} wait until you accept them")
            found = rules_of_folder(found, accepted=accepted)
        rules = rules + found
    return rules, notes


def _list(options: argparse.Namespace) -> int:
    rules, notes = load_rules(options.folder)
    for name in ("deny", "ask", "allow"):
        for rule in getattr(rules, name):
            print(f"{name:5}  {rule.text:40}  {rule.origin}")
    if not (rules.allow or rules.ask or rules.deny):
        print("no rules: reading inside the workspace is allowed, all else is asked")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return _OK


def _explain(options: argparse.Namespace) -> int:
    from treadle.policy.judge import Judge
    from treadle.policy.remember import propose_rules
    from treadle.policy.rulepolicy import situation_of
    from treadle.policy.rules import InvalidRule
    from treadle.policy.rulesfile import given_rules
    from treadle.policy.verdict import Call

    rules, _ = load_rules(options.folder)
    root = os.path.realpath(options.folder)
    given = {name: getattr(options, name) for name in ("allow", "ask", "deny")}
    try:
        extra = given_rules(given, root=root, home=str(Path.home()), scope="this command")
    except InvalidRule as error:
        print(f"treadle permissions: {error}", file=sys.stderr)
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
    print(f"{ruling.outcome}: {ruling.reason}")
    for finding in ruling.findings:
        for line in _tree(finding, 1):
            print(line)
    if proposed:
        print("always allow would save: " + ", ".join(proposed))
    return _OK


def _tree(finding: Finding, depth: int) -> Iterator[str]:
    subject = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in finding.subject)
    mark = _MARKS[finding.outcome]
    yield f"{'  ' * depth}{mark} {subject}   {finding.outcome}: {finding.reason}"
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
