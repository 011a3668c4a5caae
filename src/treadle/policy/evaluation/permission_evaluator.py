"""Evaluates a call by the rules: deny over ask over allow, for every tool.

A pure function of the call, the rules and the files on disk: it runs nothing and keeps nothing.
Used by `policy.py`, which applies the mode to the ruling. Uses the evaluators of commands, files
and URLs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from treadle.core.patch_headers import find_patch_paths
from treadle.policy.evaluation.command_evaluator import CommandEvaluator
from treadle.policy.evaluation.context import PolicyContext
from treadle.policy.evaluation.file_evaluator import AccessMode, FileEvaluator
from treadle.policy.evaluation.ruling import PolicyCall, PolicyFinding, PolicyRuling
from treadle.policy.evaluation.url_evaluator import evaluate_url
from treadle.policy.ruleset.rules import READ_TOOLS, WRITE_TOOLS, normalize_tool_name
from treadle.policy.shell.ast import SimpleCommand

SEARCH_TOOLS = READ_TOOLS - {"read"}
# Tools without effects of their own: the policy decides on each call that follows from them.
DELEGATING_TOOLS = frozenset({"task", "taskoutput", "taskstop", "skill", "ask"})

_PATH_KEYS = ("path", "file_path", "notebook_path", "file", "directory")


class PermissionEvaluator:
    """Evaluates calls in one context. Takes a few microseconds to make."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.files = FileEvaluator(context)
        self.commands = CommandEvaluator(context, self.files)

    def evaluate(self, call: PolicyCall) -> PolicyRuling:
        """The ruling by rules alone, before `modes.apply_mode`."""
        key = normalize_tool_name(call.tool)
        cwd = call.cwd or self.context.root
        if key == "bash":
            return self._evaluate_command(call.input, cwd)
        if key in READ_TOOLS or key in WRITE_TOOLS:
            return self._evaluate_file_tool(key, call.input, cwd)
        if key == "webfetch":
            return self._evaluate_fetch(call.input)
        return self._evaluate_tool(key, call)

    def _evaluate_command(self, arguments: Mapping[str, Any], cwd: str) -> PolicyRuling:
        text = arguments.get("command")
        if not isinstance(text, str):
            return PolicyRuling("deny", "the command must be a string")
        chosen = str(arguments.get("cwd") or arguments.get("workdir") or cwd)
        if not chosen.startswith("/"):
            chosen = self.files.resolve(chosen, cwd).path
        findings, parsed = self.commands.evaluate(text, chosen)
        is_static = parsed is not None and not parsed.doubts and _is_static(parsed.commands)
        return PolicyRuling.from_findings(findings, is_static=is_static)

    def _evaluate_file_tool(self, key: str, arguments: Mapping[str, Any], cwd: str) -> PolicyRuling:
        paths = _list_paths(key, arguments)
        if paths is None:
            return PolicyRuling("ask", "the paths of the call are not known")
        access: AccessMode = "write" if key in WRITE_TOOLS else "read"
        findings = [
            self.files.evaluate(path, access, cwd, is_recursive=key == "grep", tool=key)
            for path in paths
        ]
        if key in SEARCH_TOOLS:
            findings[:0] = self._check_search_rules(key)
        if key == "glob":
            findings += self._check_glob_pattern(arguments.get("pattern"), cwd)
        return PolicyRuling.from_findings(findings)

    def _check_search_rules(self, key: str) -> Iterator[PolicyFinding]:
        """The first deny or ask rule that names the search tool itself."""
        for outcome, rule in self.context.rules.list_forbidding():
            if rule.tool == key and rule.pattern is None:
                yield PolicyFinding.from_rule(key, outcome, rule)
                return

    def _check_glob_pattern(self, pattern: object, cwd: str) -> Iterator[PolicyFinding]:
        if not isinstance(pattern, str):
            return
        if pattern.startswith(("/", "~")):
            folder = re.split(r"[*?\[{]", pattern)[0].rpartition("/")[0] or "/"
            yield self.files.evaluate(folder, "read", cwd)
        elif ".." in pattern.split("/"):
            yield PolicyFinding(pattern, "ask", "the pattern leaves the folder")

    def _evaluate_fetch(self, arguments: Mapping[str, Any]) -> PolicyRuling:
        url = arguments.get("url")
        if not isinstance(url, str):
            return PolicyRuling("deny", "the URL must be a string")
        return PolicyRuling.from_finding(evaluate_url(url, self.context.rules))

    def _evaluate_tool(self, key: str, call: PolicyCall) -> PolicyRuling:
        """A tool that rules know by its name only."""
        for outcome, rule in self.context.rules.list_forbidding():
            if rule.matches_tool(key):
                return PolicyRuling.from_finding(PolicyFinding.from_rule(call.tool, outcome, rule))
        if call.is_definition_changed:
            finding = PolicyFinding(call.tool, "ask", "its definition changed since the approval")
            return PolicyRuling("ask", finding.reason, (finding,), must_ask=True)
        allowing = next((r for r in self.context.rules.allow if r.matches_tool(key)), None)
        if allowing is not None:
            finding = PolicyFinding.from_rule(call.tool, "allow", allowing)
        elif key in DELEGATING_TOOLS:
            reason = "each call that it makes is checked"
            finding = PolicyFinding(call.tool, "allow", reason, is_read_only=True)
        elif call.is_pure and not key.startswith("mcp__"):
            finding = PolicyFinding(call.tool, "allow", "changes nothing", is_read_only=True)
        else:
            finding = PolicyFinding(call.tool, "ask", "no rule allows it")
        return PolicyRuling.from_finding(finding)


def _is_static(commands: Iterable[SimpleCommand]) -> bool:
    return all(
        not c.doubts and all(w.text is not None for w in c.argv[:1]) and _is_static(c.inner)
        for c in commands
    )


def _list_paths(key: str, arguments: Mapping[str, Any]) -> list[str] | None:
    """The paths that a file tool is called with; None if they are not known."""
    if key == "applypatch":
        text = next((arguments[k] for k in ("patch", "input", "text") if k in arguments), None)
        return find_patch_paths(text) or None if isinstance(text, str) else None
    for name in _PATH_KEYS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return [value]
    return ["."] if key in SEARCH_TOOLS else None
