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

from treadle.policy.rules import tool_key
from treadle.policy.verdict import Call, Ruling

Mode = Literal["plan", "ask", "accept-edits", "auto", "bypass"]
MODES: tuple[str, ...] = get_args(Mode)
GRANTS_EDITS: frozenset[str] = frozenset({"accept-edits", "auto"})


def apply_mode(ruling: Ruling, call: Call, mode: Mode, *, careful: bool = False) -> Ruling:
    """The ruling in a mode. `careful`: there are deny or ask rules about commands."""
    if ruling.outcome == "deny":
        return ruling
    if mode == "plan":
        if ruling.reads_only and ruling.outcome == "allow":
            return ruling
        if ruling.reads_only or (ruling.outcome == "ask" and _fetches(call)):
            return ruling
        return _with(ruling, "deny", "plan mode: nothing may change until the plan is accepted")
    if ruling.outcome == "allow":
        return ruling
    if mode == "bypass":
        return _with(ruling, "allow", "permissions are bypassed")
    walled = call.sandboxed and tool_key(call.tool) == "bash" and not ruling.asked
    # A name that only the shell knows could be one that a rule denies.
    if mode == "auto" and walled and (ruling.static or not careful):
        return _with(ruling, "allow", "runs inside the sandbox")
    return ruling


def headless(ruling: Ruling) -> Ruling:
    """Without a person to ask, ask is deny, in words that the model can act on."""
    if ruling.outcome != "ask":
        return ruling
    reason = (
        f"This needs a person's approval, and nobody can be asked in this run ({ruling.reason}). "
        "Do it in another way, or say in your answer what was left undone."
    )
    return _with(ruling, "deny", reason)


def _fetches(call: Call) -> bool:
    return tool_key(call.tool) in ("webfetch", "websearch")


def _with(ruling: Ruling, outcome: Literal["allow", "deny"], reason: str) -> Ruling:
    return msgspec.structs.replace(ruling, outcome=outcome, reason=reason)
