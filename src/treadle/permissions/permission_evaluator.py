"""Evaluates a call by the rules: deny over ask over allow, for every tool.

A pure function of the call, the rules and the files on disk: it runs nothing and keeps nothing.
Used by `policy.py`, which applies the mode to the ruling. Uses the evaluators of commands, files
and URLs.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from treadle.core.contracts.tool import FileAccess
from treadle.lib.shell.ast import SimpleCommand
from treadle.permissions.command_evaluator import CommandEvaluator
from treadle.permissions.context import PolicyContext
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.ruleset.rules import (
    READ_TOOLS,
    WRITE_TOOLS,
    Outcome,
    Rule,
    RuleSet,
    SandboxPattern,
    normalize_tool_name,
)
from treadle.permissions.ruling import PolicyCall, PolicyFinding, PolicyRuling
from treadle.permissions.url_evaluator import evaluate_url

SEARCH_TOOLS = READ_TOOLS - {"read"}
# Tools that rules know by what they touch: a call of theirs has to say it.
ACCESS_TOOLS = READ_TOOLS | WRITE_TOOLS | {"bash", "webfetch"}
# Tools without effects of their own: the policy decides on each call that follows from them.
DELEGATING_TOOLS = frozenset({"task", "taskoutput", "taskstop", "skill", "ask"})


TYPED_TEXT = (
    "what is typed into a running command needs the rule task_input; mode auto allows it only for "
    "a command inside the sandbox"
)


class PermissionEvaluator:
    """Evaluates calls in one context. Takes a few microseconds to make."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.files = FileEvaluator(context)
        self.commands = CommandEvaluator(context, self.files)

    def evaluate(self, call: PolicyCall) -> PolicyRuling:
        """The ruling by rules alone, before `modes.apply_mode`."""
        key, access = normalize_tool_name(call.tool), call.access
        cwd = access.cwd or self.context.root
        if access.command is not None:
            findings, parsed = self.commands.evaluate(
                access.command, cwd, is_sandboxed=call.stays_sandboxed
            )
            is_static = parsed is not None and not parsed.doubts and _is_static(parsed.commands)
            if key == "taskinput":
                findings = self._evaluate_tool(key, call).findings + _keep_forbidding(findings)
            ruling = PolicyRuling.from_findings(findings, is_static=is_static)
            return self._evaluate_sandbox_request(call, ruling)
        if access.files:
            return PolicyRuling.from_findings([*self._evaluate_files(key, access.files, cwd)])
        if access.url is not None and key == "websearch":
            # The words of a query leave the machine: that needs a rule or an approval.
            return self._evaluate_tool(key, replace(call, is_pure=False))
        if access.url is not None:
            return PolicyRuling.from_finding(evaluate_url(access.url, self.context.rules))
        if key in ACCESS_TOOLS:
            outcome: Outcome = "deny" if key in ("bash", "webfetch") else "ask"
            return PolicyRuling(outcome, "what the call touches is not known")
        return self._evaluate_tool(key, call)

    def _evaluate_sandbox_request(self, call: PolicyCall, ruling: PolicyRuling) -> PolicyRuling:
        """The ruling on a call that asks for more than the sandbox gives: a rule allows it, or the
        user is asked, in every mode but bypass."""
        request = call.access.sandbox
        if not request or not call.is_sandboxed:
            return ruling  # without a sandbox there is nothing to ask for
        finding = evaluate_sandbox_request(request, self.context.rules)
        # The request comes first: it is what the user has to know.
        whole = PolicyRuling.from_findings([finding, *ruling.findings], is_static=ruling.is_static)
        must_ask = whole.must_ask or ruling.must_ask or finding.outcome == "ask"
        return replace(whole, must_ask=must_ask)

    def _evaluate_files(
        self, key: str, files: Sequence[FileAccess], cwd: str
    ) -> Iterator[PolicyFinding]:
        if key in SEARCH_TOOLS:
            yield from self._check_search_rules(key)
        for file in files:
            if file.is_shown and (found := self.files.check_read_rules(file.path, cwd)):
                yield found
            yield self.files.evaluate(
                file.path, file.mode, cwd, is_recursive=file.recursive, tool=key
            )

    def _check_search_rules(self, key: str) -> Iterator[PolicyFinding]:
        """The first deny or ask rule that names the search tool itself."""
        for outcome, rule in self.context.rules.list_forbidding():
            if rule.tool == key and rule.pattern is None:
                yield PolicyFinding.from_rule(key, outcome, rule)
                return

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
            reason = TYPED_TEXT if key == "taskinput" else "no rule allows it"
            finding = PolicyFinding(call.tool, "ask", reason)
        return PolicyRuling.from_finding(finding)


def _keep_forbidding(findings: Sequence[PolicyFinding]) -> tuple[PolicyFinding, ...]:
    """Of the findings on a text that is typed into a running command those that forbid: in which
    folder, and by which program, it is read is not known, so nothing allows it."""
    return tuple(f for f in findings if f.outcome == "deny" or (f.outcome == "ask" and f.rule))


_REQUEST_TEXTS = {
    "network": "the command asks for the network",
    "off": "the command asks to run outside of the sandbox",
}


def evaluate_sandbox_request(request: str, rules: RuleSet) -> PolicyFinding:
    """Whether a rule decides on what a command asks of its sandbox; else the user does."""

    def is_about(rule: Rule) -> bool:
        if rule.tool != "sandbox":
            return False
        return rule.pattern is None or rule.pattern == SandboxPattern(request)

    subject = f"sandbox {request}"
    lists: list[tuple[Outcome, Rule]] = [*rules.list_forbidding()]
    lists += [("allow", rule) for rule in rules.allow]
    for outcome, rule in lists:
        if is_about(rule):
            return PolicyFinding.from_rule(subject, outcome, rule)
    return PolicyFinding(subject, "ask", _REQUEST_TEXTS[request])


def _is_static(commands: Iterable[SimpleCommand]) -> bool:
    return all(
        not c.doubts and all(w.text is not None for w in c.argv[:1]) and _is_static(c.inner)
        for c in commands
    )
