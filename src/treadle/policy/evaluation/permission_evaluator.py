"""The judge of calls: deny over ask over allow, for every tool.

A pure function of the call, the rules and what is on disk now: it runs nothing and remembers
nothing. Modes stand above it; commands, files and addresses below.
"""

import re
from collections.abc import Mapping
from typing import Any

from treadle.policy.evaluation.command_evaluator import CommandEvaluator
from treadle.policy.evaluation.file_evaluator import Access, FileEvaluator, PolicyContext
from treadle.policy.evaluation.ruling import (
    PolicyCall,
    PolicyFinding,
    PolicyRuling,
    combine_findings,
)
from treadle.policy.ruleset.domains import UrlTarget, parse_url_target
from treadle.policy.ruleset.rules import (
    READ_TOOLS,
    WRITE_TOOLS,
    DomainPattern,
    Rule,
    normalize_tool_name,
)

_PATH_KEYS = ("path", "file_path", "notebook_path", "file", "directory")
_PATCHED_FILE = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE
)


# Tools that do nothing themselves: what they lead to passes the same policy, call by call.
DELEGATING_TOOLS = frozenset({"task", "taskoutput", "taskstop", "skill", "ask"})


class PermissionEvaluator:
    """Judges calls in one situation. Cheap to keep, a few microseconds to make."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.files = FileEvaluator(context)
        self.commands = CommandEvaluator(context, self.files)

    def evaluate(self, call: PolicyCall) -> PolicyRuling:
        """The verdict by rules alone; what a mode makes of it is `modes.apply_mode`."""
        key = normalize_tool_name(call.tool)
        cwd = call.cwd or self.context.root
        if key == "bash":
            return self._evaluate_command(call, cwd)
        if key in READ_TOOLS or key in WRITE_TOOLS:
            return self._evaluate_file(call, key, cwd)
        if key == "webfetch":
            return self._evaluate_fetch(call)
        return self._evaluate_by_name(call, key)

    def _evaluate_command(self, call: PolicyCall, cwd: str) -> PolicyRuling:
        text = call.input.get("command")
        if not isinstance(text, str):
            return PolicyRuling("deny", "a command has to be text")
        cwd = str(call.input.get("cwd") or call.input.get("workdir") or cwd)
        if not cwd.startswith("/"):
            cwd = self.files.resolve(cwd, call.cwd or self.context.root).path
        findings, facts = self.commands.evaluate(text, cwd)
        outcome, reason = combine_findings(findings)
        asked = any(f.outcome == "ask" and f.rule for f in findings)
        static = facts is not None and not facts.doubts and _is_static(facts.commands)
        return PolicyRuling(outcome, reason, findings, asked, static)

    def _evaluate_file(self, call: PolicyCall, key: str, cwd: str) -> PolicyRuling:
        access: Access = "write" if key in WRITE_TOOLS else "read"
        paths = _list_paths(call.input, key)
        if paths is None:
            return PolicyRuling("ask", "the paths that it touches are not known")
        findings: list[PolicyFinding] = []
        named = self._check_tool_rules(key) if key not in ("read", *WRITE_TOOLS) else None
        if named is not None:
            findings.append(named)
        whole = key == "grep"
        findings += [
            self.files.evaluate(path, access, cwd, is_recursive=whole, tool=key) for path in paths
        ]
        pattern = call.input.get("pattern")
        if key == "glob" and isinstance(pattern, str) and pattern.startswith(("/", "~")):
            fixed = re.split(r"[*?\[{]", pattern)[0].rpartition("/")[0] or "/"
            findings.append(self.files.evaluate(fixed, access, cwd))
        elif key == "glob" and isinstance(pattern, str) and ".." in pattern.split("/"):
            findings.append(PolicyFinding(pattern, "ask", "a pattern that leads out of its folder"))
        outcome, reason = combine_findings(findings)
        asked = any(f.outcome == "ask" and f.rule for f in findings)
        return PolicyRuling(outcome, reason, tuple(findings), asked)

    def _check_tool_rules(self, key: str) -> PolicyFinding | None:
        """Deny and ask rules that name a searching tool itself."""
        for name in ("deny", "ask"):
            for rule in getattr(self.context.rules, name):
                if rule.tool == key and rule.pattern is None:
                    return PolicyFinding(key, name, f"rule {rule.text}", rule.text)
        return None

    def _evaluate_fetch(self, call: PolicyCall) -> PolicyRuling:
        url = call.input.get("url")
        if not isinstance(url, str):
            return PolicyRuling("deny", "an address has to be text")
        address = parse_url_target(url)
        if address.refusal:
            return PolicyRuling("deny", address.refusal)
        rules = self.context.rules
        for name, listed in (("deny", rules.deny), ("ask", rules.ask)):
            for rule in listed:
                if _is_fetch_rule(rule) and _covers_any_host(rule, address):
                    finding = PolicyFinding(url, "deny" if name == "deny" else "ask", f"rule {rule.text}",
                                      rule.text)  # fmt: skip
                    return PolicyRuling(finding.outcome, finding.reason, (finding,), name == "ask")
        finding = self._check_fetch_allowed(url, address)
        return PolicyRuling(finding.outcome, finding.reason, (finding,))

    def _check_fetch_allowed(self, url: str, address: UrlTarget) -> PolicyFinding:
        if address.ambiguity:
            return PolicyFinding(url, "ask", address.ambiguity)
        covering = [r for r in self.context.rules.allow if _is_fetch_rule(r)]
        named = next((r for r in covering if _names_host(r, address.host)), None)
        blanket = next((r for r in covering if r.pattern is None or _is_any_host(r)), None)
        if named is None and blanket is None:
            return PolicyFinding(url, "ask", f"no rule allows fetching from {address.host}")
        if address.is_private and named is None:
            return PolicyFinding(url, "ask", f"{address.host} is this machine or a private network")
        for host in address.embedded_hosts:
            if blanket is None and not any(_names_host(r, host) for r in covering):
                return PolicyFinding(url, "ask", f"it may lead on to {host}")
        rule = named or blanket
        text = rule.text if rule else ""
        return PolicyFinding(url, "allow", f"rule {text}", text, is_read_only=True)

    def _evaluate_by_name(self, call: PolicyCall, key: str) -> PolicyRuling:
        """Tools that rules know by name only."""
        rules = self.context.rules
        for rule in rules.deny:
            if rule.matches_tool(key):
                return _make_ruling(call, "deny", rule)
        for rule in rules.ask:
            if rule.matches_tool(key):
                return _make_ruling(call, "ask", rule)
        if call.is_definition_changed:
            reason = "its definition changed since it was approved"
            return PolicyRuling(
                "ask", reason, (PolicyFinding(call.tool, "ask", reason),), must_ask=True
            )
        for rule in rules.allow:
            if rule.matches_tool(key):
                return _make_ruling(call, "allow", rule)
        if key in DELEGATING_TOOLS:
            finding = PolicyFinding(
                call.tool, "allow", "its own calls are judged one by one", is_read_only=True
            )
            return PolicyRuling("allow", finding.reason, (finding,))
        if call.is_pure and not key.startswith("mcp__"):
            finding = PolicyFinding(call.tool, "allow", "changes nothing", is_read_only=True)
            return PolicyRuling("allow", finding.reason, (finding,))
        return PolicyRuling(
            "ask", "no rule allows it", (PolicyFinding(call.tool, "ask", "no rule allows it"),)
        )


def _make_ruling(call: PolicyCall, outcome: Any, rule: Rule) -> PolicyRuling:
    finding = PolicyFinding(call.tool, outcome, f"rule {rule.text}", rule.text)
    return PolicyRuling(outcome, finding.reason, (finding,), must_ask=outcome == "ask")


def _is_static(commands: Any) -> bool:
    return all(
        not p.doubts and all(w.text is not None for w in p.argv[:1]) and _is_static(p.inner)
        for p in commands
    )


def _list_paths(arguments: Mapping[str, Any], key: str) -> list[str] | None:
    if key == "applypatch":
        text = next((arguments[k] for k in ("patch", "input", "text") if k in arguments), None)
        if not isinstance(text, str):
            return None
        found = [a or b for a, b in _PATCHED_FILE.findall(text)]
        return [p.strip() for p in found] or None
    for name in _PATH_KEYS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return [value]
    return ["."] if key in ("glob", "grep", "ls") else None


def _is_fetch_rule(rule: Rule) -> bool:
    return rule.tool == "webfetch"


def _names_host(rule: Rule, host: str) -> bool:
    return (
        isinstance(rule.pattern, DomainPattern)
        and not _is_any_host(rule)
        and rule.pattern.matches(host)
    )


def _is_any_host(rule: Rule) -> bool:
    return isinstance(rule.pattern, DomainPattern) and rule.pattern.host == "*"


def _covers_any_host(rule: Rule, address: UrlTarget) -> bool:
    if not isinstance(rule.pattern, DomainPattern):
        return True
    return any(
        rule.pattern.forbids(host) for host in (address.host, *address.embedded_hosts) if host
    )
