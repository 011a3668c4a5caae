"""A command asks for the network, or to run outside of the sandbox: a rule or the user decides."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.workspace import NetworkAccess
from treadle.permissions.findings import PolicyContext
from treadle.permissions.policy import RulePolicy
from treadle.permissions.ruleset.rules import InvalidRule, parse_rule
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.tools.builtin import describe_access

SPEC = ToolSpec("bash", "", {})


async def decide(
    command: str,
    sandbox: str,
    rules: dict[str, list[str]] | None = None,
    domains: tuple[str, ...] = (),
    widest: NetworkAccess = True,
    **given: Any,
) -> Verdict:
    context = PolicyContext(
        "/r", "/h", parse_rules(rules or {}, root="/r", home="/h"), widest_network=widest
    )
    subject = RulePolicy(context, **{"sandboxed": True, **given})
    arguments = {"command": command, "sandbox": sandbox, "domains": list(domains)}
    access = describe_access("bash", arguments)
    return await subject.decide(PermissionRequest("s", "c", SPEC, arguments, "", access))


@pytest.mark.parametrize("mode", ["ask", "accept-edits", "auto"])
@pytest.mark.parametrize(
    ("sandbox", "words"),
    [("network", "asks for the network"), ("off", "asks to run outside of the sandbox")],
)
async def test_a_request_is_asked_about_also_if_the_command_is_allowed(
    mode: str, sandbox: str, words: str
) -> None:
    verdict = await decide("pip install x", sandbox, {"allow": ["Bash(pip install:*)"]}, mode=mode)
    assert isinstance(verdict, Ask)
    assert words in verdict.reason
    assert verdict.rules == (), "no rule that would give it to every command is offered"


async def test_without_a_user_a_request_is_denied_unless_a_rule_allows_it() -> None:
    rules = {"allow": ["Bash(pip install:*)"]}
    verdict = await decide("pip install x", "network", rules, interactive=False)
    assert isinstance(verdict, Deny)
    assert verdict.kind == "headless"
    rules["allow"].append("Sandbox(network)")
    assert isinstance(await decide("pip install x", "network", rules, interactive=False), Allow)
    outside = await decide("pip install x", "off", rules, interactive=False)
    assert isinstance(outside, Deny), "the network is not the way out of the sandbox"


async def test_a_rule_for_a_request_does_not_allow_the_command_itself() -> None:
    verdict = await decide("rm -r src", "network", {"allow": ["Sandbox(network)"]})
    assert isinstance(verdict, Ask)


async def test_a_rule_denies_a_request_in_every_mode() -> None:
    verdict = await decide("ls", "off", {"deny": ["Sandbox(off)"]}, mode="bypass")
    assert isinstance(verdict, Deny)


async def test_outside_of_the_sandbox_auto_does_not_run_a_command() -> None:
    assert isinstance(await decide("npm test", "", mode="auto"), Allow)
    rules = {"allow": ["Sandbox(off)"]}
    assert isinstance(await decide("npm test", "off", rules, mode="auto"), Ask)


async def test_without_a_sandbox_there_is_nothing_to_ask_for() -> None:
    assert isinstance(await decide("git status", "network", sandboxed=False), Allow)


def test_a_rule_about_the_sandbox_names_what_it_is_about() -> None:
    assert parse_rule("Sandbox(network)").tool == "sandbox"
    for wrong in ("Sandbox(internet)", "Sandbox(off:x.org)"):
        with pytest.raises(InvalidRule, match=r"write Sandbox\(network\), Sandbox"):
            parse_rule(wrong)
    with pytest.raises(InvalidRule, match="host name"):
        parse_rule("Sandbox(network:*)")


@pytest.mark.parametrize(
    ("hosts", "allow", "deny", "answer"),
    [
        ("a.org", "Sandbox(network:a.org)", "", Allow),
        ("a.org", "Sandbox(network)", "", Allow),
        ("x.a.org", "Sandbox(network:*.a.org)", "", Allow),
        ("*.a.org", "Sandbox(network:a.org)", "", Ask),
        ("a.org b.org", "Sandbox(network:a.org)", "", Ask),
        ("a.org:22", "Sandbox(network:a.org)", "", Ask),
        ("a.org:22", "Sandbox(network:a.org:22)", "", Allow),
        ("", "Sandbox(network:a.org)", "", Ask),
        ("x.a.org", "Sandbox(network)", "Sandbox(network:a.org)", Deny),
        ("*.org", "Sandbox(network)", "Sandbox(network:a.org)", Deny),
        ("*.a.org", "Sandbox(network)", "Sandbox(network:x.a.org)", Deny),
        ("", "Sandbox(network)", "Sandbox(network:a.org)", Deny),
        ("b.org", "Sandbox(network)", "Sandbox(network:a.org)", Allow),
        ("10.0.0.1", "Sandbox(network)", "", Deny),
        ("*", "Sandbox(network)", "", Deny),
    ],
)
async def test_a_request_for_some_hosts_needs_a_rule_for_each(
    hosts: str, allow: str, deny: str, answer: type
) -> None:
    rules = {"allow": ["Bash(pip install:*)", allow], "deny": [deny] if deny else []}
    verdict = await decide("pip install x", "network", rules, tuple(hosts.split()))
    assert type(verdict) is answer


@pytest.mark.parametrize("mode", ["ask", "auto", "bypass"])
async def test_no_request_goes_beyond_the_managed_policy(mode: str) -> None:
    rules = {"allow": ["Bash(pip install:*)", "Sandbox(network)"]}
    wide: tuple[str, ...] = ("*.a.org",)

    async def ask(hosts: tuple[str, ...], widest: NetworkAccess) -> type:
        return type(await decide("pip install x", "network", rules, hosts, widest, mode=mode))

    assert await ask(("x.a.org",), wide) is Allow
    assert await ask(("b.org",), wide) is Deny
    assert await ask((), wide) is Deny
    assert await ask(("x.a.org",), False) is Deny
