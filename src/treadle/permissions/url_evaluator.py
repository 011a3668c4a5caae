"""Whether a URL may be fetched: the host, and the hosts that it may redirect to.

Used by `permission_evaluator.py`; `ruleset/domains.py` reads the URL.
"""

from treadle.permissions.ruleset.domains import UrlTarget, parse_url_target
from treadle.permissions.ruleset.rules import DomainPattern, Rule, RuleSet
from treadle.permissions.ruling import PolicyFinding


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
    named = next((r for r in allowing if _names(r, target.host)), None)
    blanket = next((r for r in allowing if _is_blanket(r)), None)
    covering = named or blanket
    if covering is None:
        return PolicyFinding(url, "ask", f"no rule allows fetching from {target.host}")
    if target.is_private and named is None:
        return PolicyFinding(url, "ask", f"{target.host} is this machine or a private network")
    for host in target.embedded_hosts:
        if blanket is None and not any(_names(r, host) for r in allowing):
            return PolicyFinding(url, "ask", f"it may redirect to {host}")
    return PolicyFinding.from_rule(url, "allow", covering, is_read_only=True)


def _forbids(rule: Rule, target: UrlTarget) -> bool:
    pattern = rule.pattern
    if not isinstance(pattern, DomainPattern):
        return True
    return any(pattern.forbids(host) for host in (target.host, *target.embedded_hosts) if host)


def _names(rule: Rule, host: str) -> bool:
    pattern = rule.pattern
    return isinstance(pattern, DomainPattern) and not _is_blanket(rule) and pattern.matches(host)


def _is_blanket(rule: Rule) -> bool:
    return not isinstance(rule.pattern, DomainPattern) or rule.pattern.host == "*"
