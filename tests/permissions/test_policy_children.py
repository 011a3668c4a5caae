"""Starting a child needs no approval: the policy checks each call of the child."""

from __future__ import annotations

from pathlib import Path

from treadle.core.contracts.policy import Allow, Deny, PermissionRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules import RuleSet, parse_rule
from treadle.tools.builtin import describe_access


def policy(root: Path, *, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> RulePolicy:
    def read(texts: tuple[str, ...]):
        return tuple(parse_rule(text, str(root), str(root)) for text in texts)

    rules = RuleSet(allow=read(allow), deny=read(deny))
    return RulePolicy(build_policy_context(root, rules), interactive=False)


def proposal(tool: str, /, **arguments: object) -> PermissionRequest:
    return PermissionRequest(
        "s",
        "c",
        ToolSpec(tool, "", {"type": "object"}),
        arguments,
        "",
        describe_access(tool, arguments),
    )


async def test_starting_a_child_needs_no_question(tmp_path: Path):
    assert isinstance(await policy(tmp_path).decide(proposal("task", prompt="x")), Allow)
    denied = policy(tmp_path, deny=("Task",))
    assert isinstance(await denied.decide(proposal("task", prompt="x")), Deny)
