"""The judge of calls: deny over ask over allow, for every tool.

A pure function of the call, the rules and what is on disk now: it runs nothing and remembers
nothing. Modes stand above it; commands, files and addresses below.
"""

import re
from collections.abc import Mapping
from typing import Any

from treadle.policy.commands import CommandJudge
from treadle.policy.domains import Address, read_address
from treadle.policy.files import Access, FileJudge, Situation
from treadle.policy.rules import READING, WRITING, DomainPattern, Rule, tool_key
from treadle.policy.verdict import Call, Finding, Ruling, combine

_PATH_KEYS = ("path", "file_path", "notebook_path", "file", "directory")
_PATCHED = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE
)


# Tools that do nothing themselves: what they lead to passes the same policy, call by call.
DELEGATING = frozenset({"task", "taskoutput", "taskstop", "skill", "ask"})


class Judge:
    """Judges calls in one situation. Cheap to keep, a few microseconds to make."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.files = FileJudge(situation)
        self.commands = CommandJudge(situation, self.files)

    def judge(self, call: Call) -> Ruling:
        """The verdict by rules alone; what a mode makes of it is `modes.apply_mode`."""
        key = tool_key(call.tool)
        cwd = call.cwd or self.situation.root
        if key == "bash":
            return self._command(call, cwd)
        if key in READING or key in WRITING:
            return self._file(call, key, cwd)
        if key == "webfetch":
            return self._fetch(call)
        return self._named(call, key)

    def _command(self, call: Call, cwd: str) -> Ruling:
        text = call.input.get("command")
        if not isinstance(text, str):
            return Ruling("deny", "a command has to be text")
        cwd = str(call.input.get("cwd") or call.input.get("workdir") or cwd)
        if not cwd.startswith("/"):
            cwd = self.files.place(cwd, call.cwd or self.situation.root).path
        findings, facts = self.commands.judge(text, cwd)
        outcome, reason = combine(findings)
        asked = any(f.outcome == "ask" and f.rule for f in findings)
        static = facts is not None and not facts.doubts and _static(facts.parts)
        return Ruling(outcome, reason, findings, asked, static)

    def _file(self, call: Call, key: str, cwd: str) -> Ruling:
        access: Access = "write" if key in WRITING else "read"
        paths = _paths(call.input, key)
        if paths is None:
            return Ruling("ask", "the paths that it touches are not known")
        findings: list[Finding] = []
        named = self._tool_rules(key) if key not in ("read", *WRITING) else None
        if named is not None:
            findings.append(named)
        whole = key == "grep"
        findings += [self.files.judge(path, access, cwd, whole=whole, tool=key) for path in paths]
        pattern = call.input.get("pattern")
        if key == "glob" and isinstance(pattern, str) and pattern.startswith(("/", "~")):
            fixed = re.split(r"[*?\[{]", pattern)[0].rpartition("/")[0] or "/"
            findings.append(self.files.judge(fixed, access, cwd))
        elif key == "glob" and isinstance(pattern, str) and ".." in pattern.split("/"):
            findings.append(Finding(pattern, "ask", "a pattern that leads out of its folder"))
        outcome, reason = combine(findings)
        asked = any(f.outcome == "ask" and f.rule for f in findings)
        return Ruling(outcome, reason, tuple(findings), asked)

    def _tool_rules(self, key: str) -> Finding | None:
        """Deny and ask rules that name a searching tool itself."""
        for name in ("deny", "ask"):
            for rule in getattr(self.situation.rules, name):
                if rule.tool == key and rule.body is None:
                    return Finding(key, name, f"rule {rule.text}", rule.text)
        return None

    def _fetch(self, call: Call) -> Ruling:
        url = call.input.get("url")
        if not isinstance(url, str):
            return Ruling("deny", "an address has to be text")
        address = read_address(url)
        if address.refused:
            return Ruling("deny", address.refused)
        rules = self.situation.rules
        for name, listed in (("deny", rules.deny), ("ask", rules.ask)):
            for rule in listed:
                if _fetches(rule) and _covers_any(rule, address):
                    finding = Finding(url, "deny" if name == "deny" else "ask", f"rule {rule.text}",
                                      rule.text)  # fmt: skip
                    return Ruling(finding.outcome, finding.reason, (finding,), name == "ask")
        finding = self._fetch_allowed(url, address)
        return Ruling(finding.outcome, finding.reason, (finding,))

    def _fetch_allowed(self, url: str, address: Address) -> Finding:
        if address.unclear:
            return Finding(url, "ask", address.unclear)
        covering = [r for r in self.situation.rules.allow if _fetches(r)]
        named = next((r for r in covering if _names_host(r, address.host)), None)
        blanket = next((r for r in covering if r.body is None or _any_host(r)), None)
        if named is None and blanket is None:
            return Finding(url, "ask", f"no rule allows fetching from {address.host}")
        if address.private and named is None:
            return Finding(url, "ask", f"{address.host} is this machine or a private network")
        for host in address.leads_to:
            if blanket is None and not any(_names_host(r, host) for r in covering):
                return Finding(url, "ask", f"it may lead on to {host}")
        rule = named or blanket
        text = rule.text if rule else ""
        return Finding(url, "allow", f"rule {text}", text, plain=True)

    def _named(self, call: Call, key: str) -> Ruling:
        """Tools that rules know by name only."""
        rules = self.situation.rules
        for rule in rules.deny:
            if rule.names_tool(key):
                return _one(call, "deny", rule)
        for rule in rules.ask:
            if rule.names_tool(key):
                return _one(call, "ask", rule)
        if call.changed:
            reason = "its definition changed since it was approved"
            return Ruling("ask", reason, (Finding(call.tool, "ask", reason),), asked=True)
        for rule in rules.allow:
            if rule.names_tool(key):
                return _one(call, "allow", rule)
        if key in DELEGATING:
            finding = Finding(call.tool, "allow", "its own calls are judged one by one", plain=True)
            return Ruling("allow", finding.reason, (finding,))
        if call.pure and not key.startswith("mcp__"):
            finding = Finding(call.tool, "allow", "changes nothing", plain=True)
            return Ruling("allow", finding.reason, (finding,))
        return Ruling("ask", "no rule allows it", (Finding(call.tool, "ask", "no rule allows it"),))


def _one(call: Call, outcome: Any, rule: Rule) -> Ruling:
    finding = Finding(call.tool, outcome, f"rule {rule.text}", rule.text)
    return Ruling(outcome, finding.reason, (finding,), asked=outcome == "ask")


def _static(parts: Any) -> bool:
    return all(
        not p.doubts and all(w.text is not None for w in p.argv[:1]) and _static(p.inner)
        for p in parts
    )


def _paths(given: Mapping[str, Any], key: str) -> list[str] | None:
    if key == "applypatch":
        text = next((given[k] for k in ("patch", "input", "text") if k in given), None)
        if not isinstance(text, str):
            return None
        found = [a or b for a, b in _PATCHED.findall(text)]
        return [p.strip() for p in found] or None
    for name in _PATH_KEYS:
        value = given.get(name)
        if isinstance(value, str) and value:
            return [value]
    return ["."] if key in ("glob", "grep", "ls") else None


def _fetches(rule: Rule) -> bool:
    return rule.tool == "webfetch"


def _names_host(rule: Rule, host: str) -> bool:
    return isinstance(rule.body, DomainPattern) and not _any_host(rule) and rule.body.matches(host)


def _any_host(rule: Rule) -> bool:
    return isinstance(rule.body, DomainPattern) and rule.body.host == "*"


def _covers_any(rule: Rule, address: Address) -> bool:
    if not isinstance(rule.body, DomainPattern):
        return True
    return any(rule.body.forbids(host) for host in (address.host, *address.leads_to) if host)
