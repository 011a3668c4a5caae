"""What a mode makes of a ruling.

    plan          only what provably reads; the rest is denied, and the model is told why
    ask           the ruling as it is
    accept-edits  writing inside the workspace needs no question
    auto          as accept-edits, and commands inside the sandbox run
    bypass        everything but what is denied; only by a flag, never from settings

A deny stays a deny in every mode. Without a person, ask becomes deny.
"""

from typing import Literal, get_args

import msgspec

from treadle.policy.evaluation.ruling import PolicyCall, PolicyRuling
from treadle.policy.ruleset.rules import normalize_tool_name

PermissionMode = Literal["plan", "ask", "accept-edits", "auto", "bypass"]
PERMISSION_MODES: tuple[str, ...] = get_args(PermissionMode)
EDIT_MODES: frozenset[str] = frozenset({"accept-edits", "auto"})


def apply_mode(
    ruling: PolicyRuling, call: PolicyCall, mode: PermissionMode, *, has_command_rules: bool = False
) -> PolicyRuling:
    """The ruling in a mode. `careful`: there are deny or ask rules about commands."""
    if ruling.outcome == "deny":
        return ruling
    if mode == "plan":
        if ruling.is_read_only and ruling.outcome == "allow":
            return ruling
        if ruling.is_read_only or (ruling.outcome == "ask" and _is_fetch(call)):
            return ruling
        return _replace_outcome(
            ruling, "deny", "plan mode: nothing may change until the plan is accepted"
        )
    if ruling.outcome == "allow":
        return ruling
    if mode == "bypass":
        return _replace_outcome(ruling, "allow", "permissions are bypassed")
    walled = call.is_sandboxed and normalize_tool_name(call.tool) == "bash" and not ruling.must_ask
    # A name that only the shell knows could be one that a rule denies.
    if mode == "auto" and walled and (ruling.is_static or not has_command_rules):
        return _replace_outcome(ruling, "allow", "runs inside the sandbox")
    return ruling


def apply_headless(ruling: PolicyRuling) -> PolicyRuling:
    """Without a person to ask, ask is deny, in words that the model can act on."""
    if ruling.outcome != "ask":
        return ruling
    reason = (
        f"This needs a person's approval, and nobody can be asked in this run ({ruling.reason}). "
        "Do it in another way, or say in your answer what was left undone."
    )
    return _replace_outcome(ruling, "deny", reason)


def _is_fetch(call: PolicyCall) -> bool:
    return normalize_tool_name(call.tool) in ("webfetch", "websearch")


def _replace_outcome(
    ruling: PolicyRuling, outcome: Literal["allow", "deny"], reason: str
) -> PolicyRuling:
    return msgspec.structs.replace(ruling, outcome=outcome, reason=reason)
