"""The permission modes, and how a mode changes a ruling.

    plan          allows only what certainly reads; the rest is denied with a reason. Commands run
                  if the sandbox is one in which they can change nothing
    ask           the ruling of the rules
    accept-edits  writing inside the folder needs no approval
    auto          as accept-edits, and commands inside the sandbox run
    bypass        allows everything that is not denied; only by a flag, never from settings

A deny stays a deny in every mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import replace

if TYPE_CHECKING:
    from treadle.permissions.findings import PolicyCall, PolicyRuling

PermissionMode = Literal["plan", "ask", "accept-edits", "auto", "bypass"]
EDIT_MODES: frozenset[str] = frozenset({"accept-edits", "auto"})
_FETCH_TOOLS = ("webfetch", "websearch")
_COMMAND_TOOLS = ("bash", "taskinput")


_WIDTHS: dict[str, int] = {"plan": 0, "ask": 1, "accept-edits": 2, "auto": 3, "bypass": 4}


def choose_narrower(mode: PermissionMode, other: str) -> PermissionMode:
    """The one of two modes that allows less; "" is no mode."""
    if other not in _WIDTHS or _WIDTHS[mode] <= _WIDTHS[other]:
        return mode
    return cast(PermissionMode, other)


def apply_mode(
    ruling: PolicyRuling,
    call: PolicyCall,
    mode: PermissionMode,
    *,
    has_command_rules: bool = False,
    is_read_only: bool = False,
) -> PolicyRuling:
    """The ruling in a mode. `has_command_rules`: there are deny or ask rules about commands.
    `is_read_only`: in the sandbox commands can change nothing and reach no network."""
    # Every host knows the modes; what judges calls is loaded for the first one.
    from treadle.permissions.ruleset.rules import normalize_tool_name

    tool = normalize_tool_name(call.tool)
    if ruling.outcome == "deny":
        return ruling
    if mode == "plan":
        if ruling.is_read_only or (ruling.outcome == "ask" and tool in _FETCH_TOOLS):
            return ruling
        is_plain = is_read_only and tool == "bash" and not call.access.sandbox
        if is_plain and _may_run_inside(ruling, call, has_command_rules):
            return replace(ruling, outcome="allow", reason="can change nothing in its sandbox")
        reason = "plan mode: nothing may change until the user accepts the plan"
        if ruling.outcome == "ask":
            reason += f" ({ruling.reason})"
        return replace(ruling, outcome="deny", reason=reason)
    if ruling.outcome == "allow":
        return ruling
    if mode == "bypass":
        return replace(ruling, outcome="allow", reason="permissions are bypassed")
    if mode != "auto" or tool not in _COMMAND_TOOLS:
        return ruling
    if not _may_run_inside(ruling, call, has_command_rules):
        return ruling
    return replace(ruling, outcome="allow", reason="runs inside the sandbox")


def _may_run_inside(ruling: PolicyRuling, call: PolicyCall, has_command_rules: bool) -> bool:
    """Whether the sandbox is enough for a command about which the rules ask."""
    from treadle.permissions.verdict import stays_sandboxed

    if ruling.must_ask or not stays_sandboxed(call):
        return False
    # A program name that is not static could be one that a rule denies.
    return ruling.is_static or not has_command_rules
