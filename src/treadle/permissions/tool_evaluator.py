"""Whether a tool may be called: by its name, by the files or the URL that it uses, or by what a
command asks of its sandbox.

Used by `verdict.py`; `ruleset/domains.py` reads the URL, `file_evaluator.py` looks at the files.
"""

from collections.abc import Iterator, Sequence

from treadle.core.contracts.tool import Access, FileAccess
from treadle.lib.http.hosts import DomainPattern, is_within, parse_domain, parse_domains
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.findings import PolicyCall, PolicyContext, PolicyFinding
from treadle.permissions.ruleset.domains import UrlTarget, parse_url_target
from treadle.permissions.ruleset.rules import (
    READ_TOOLS,
    Rule,
    RuleSet,
    SandboxPattern,
)

SEARCH_TOOLS = READ_TOOLS - {"read"}
# Tools without effects of their own: the policy decides on each call that follows from them.
DELEGATING_TOOLS = frozenset({"task", "taskoutput", "taskstop", "skill", "ask"})


TYPED_TEXT = (
    "what is typed into a running command needs the rule task_input; mode auto allows it only for "
    "a command inside the sandbox"
)
_REQUEST_TEXTS = {
    "network": "the command asks for the network",
    "off": "the command asks to run outside of the sandbox",
}


def evaluate_tool(key: str, call: PolicyCall, rules: RuleSet, *, is_pure: bool) -> PolicyFinding:
    """A tool that rules know by its name only."""
    for outcome, rule in rules.list_forbidding():
        if rule.matches_tool(key):
            return PolicyFinding.from_rule(call.tool, outcome, rule)
    if call.is_definition_changed:
        reason = "its definition changed since the approval"
        return PolicyFinding(call.tool, "ask", reason, kind="changed_definition")
    harmless = ""
    if key in DELEGATING_TOOLS:
        harmless = "each call that it makes is checked"
    elif is_pure and not key.startswith("mcp__"):
        harmless = "changes nothing"
    allowing = next((r for r in rules.allow if r.matches_tool(key)), None)
    if allowing is not None:
        return PolicyFinding.from_rule(call.tool, "allow", allowing, is_read_only=bool(harmless))
    if harmless:
        return PolicyFinding(call.tool, "allow", harmless, is_read_only=True)
    return PolicyFinding(
        call.tool, "ask", TYPED_TEXT if key == "taskinput" else "no rule allows it"
    )


def evaluate_sandbox_request(access: Access, context: PolicyContext) -> PolicyFinding:
    """Whether rules decide on what a command asks of its sandbox; else the user does."""
    request, hosts, widest = access.sandbox, access.domains, context.widest_network
    subject = " ".join(["sandbox", request, *hosts])
    try:
        is_within_policy = widest is True or (hosts and is_within(hosts, widest or ()))
        hosts = tuple(pattern.host for pattern in parse_domains(hosts))
    except ValueError as error:
        return PolicyFinding(subject, "deny", str(error))
    if request == "network" and not is_within_policy:
        allowed = ", ".join(widest or ()) if isinstance(widest, tuple) else "none"
        return PolicyFinding(
            subject, "deny", f"the managed policy allows the network of: {allowed}"
        )
    for outcome, rule in context.rules.list_forbidding():
        if _forbids_request(rule, request, hosts):
            return PolicyFinding.from_rule(subject, outcome, rule)
    rules = [rule for rule in context.rules.allow if rule.tool == "sandbox"]
    open_rules = [rule for rule in rules if _allows_request(rule, request, "")]
    found = [
        next((rule for rule in rules if _allows_request(rule, request, host)), None)
        for host in access.domains or ("",)
    ]
    if all(rule is not None for rule in found):
        covering = open_rules[0] if open_rules else found[0]
        assert covering is not None, "there is one for each host"
        return PolicyFinding.from_rule(subject, "allow", covering)
    text = _REQUEST_TEXTS[request]
    return PolicyFinding(subject, "ask", f"{text} of {', '.join(hosts)}" if hosts else text)


def _forbids_request(rule: Rule, request: str, hosts: Sequence[str]) -> bool:
    """Whether a deny or ask rule is about it. All of the network includes every host."""
    pattern = rule.pattern
    if rule.tool != "sandbox" or not isinstance(pattern, SandboxPattern | None):
        return False
    if pattern is None or pattern.request != request or pattern.domain is None:
        return pattern is None or pattern.request == request
    domain = pattern.domain
    return not hosts or any(
        domain.forbids(host.removeprefix("*.")) or DomainPattern(host).matches(domain.host)
        for host in hosts
    )


def _allows_request(rule: Rule, request: str, host: str) -> bool:
    """Whether an allow rule covers a request; `host` is one as it was asked for, "" for all."""
    pattern = rule.pattern
    if not isinstance(pattern, SandboxPattern):
        return pattern is None
    if pattern.request != request or pattern.domain is None:
        return pattern.request == request
    one = parse_domain(host) if host else None
    is_named = one is not None and pattern.domain.matches(one.host)
    return is_named and one is not None and one.port in (0, pattern.domain.port)


def evaluate_url(url: str, rules: RuleSet) -> PolicyFinding:
    """The finding on one URL."""
    target = parse_url_target(url)
    if target.refusal:
        return PolicyFinding(url, "deny", target.refusal)
    for outcome, rule in rules.list_forbidding():
        if rule.tool == "webfetch" and _forbids(rule, target):
            return PolicyFinding.from_rule(url, outcome, rule)
    if target.ambiguity:
        return PolicyFinding(url, "ask", target.ambiguity)
    allowing = [r for r in rules.allow if r.tool == "webfetch"]
    named = [r for r in allowing if _names(r, target.host)]
    blanket = [r for r in allowing if _is_blanket(r)]
    if not named and not blanket:
        return PolicyFinding(url, "ask", f"no rule allows fetching from {target.host}")
    if target.is_private and not named:
        return PolicyFinding(url, "ask", f"{target.host} is this machine or a private network")
    about = named if target.is_private else [*named, *blanket]
    covering = [r for r in about if not target.port or _names_port(r, target.port)]
    if not covering:
        reason = f"the rule {about[0].text} covers the usual ports, not {target.port}"
        return PolicyFinding(url, "ask", reason)
    for host in target.embedded_hosts:
        if not blanket and not any(_names(r, host) for r in allowing):
            return PolicyFinding(url, "ask", f"it may redirect to {host}")
    return PolicyFinding.from_rule(url, "allow", covering[0], is_read_only=True)


def _forbids(rule: Rule, target: UrlTarget) -> bool:
    pattern = rule.pattern
    if not isinstance(pattern, DomainPattern):
        return True
    return any(pattern.forbids(host) for host in (target.host, *target.embedded_hosts) if host)


def _names(rule: Rule, host: str) -> bool:
    pattern = rule.pattern
    return isinstance(pattern, DomainPattern) and not _is_blanket(rule) and pattern.matches(host)


def _names_port(rule: Rule, port: int) -> bool:
    """`WebFetch(domain:localhost:3000)`; a rule about every host covers every port."""
    return (isinstance(rule.pattern, DomainPattern) and rule.pattern.port == port) or _is_blanket(
        rule
    )


def _is_blanket(rule: Rule) -> bool:
    return not isinstance(rule.pattern, DomainPattern) or rule.pattern.host == "*"


def evaluate_files(
    key: str, accesses: Sequence[FileAccess], cwd: str, files: FileEvaluator, rules: RuleSet
) -> Iterator[PolicyFinding]:
    """The findings on the files of a call, at least one."""
    if key in SEARCH_TOOLS:
        for outcome, rule in rules.list_forbidding():
            if rule.tool == key and rule.pattern is None:  # names the search tool itself
                yield PolicyFinding.from_rule(key, outcome, rule)
                break
    for file in accesses:
        if file.is_shown and (found := files.check_read_rules(file.path, cwd)):
            yield found
        yield files.evaluate(file.path, file.mode, cwd, is_recursive=file.recursive, tool=key)
