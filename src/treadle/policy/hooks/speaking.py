"""What a hook command is told and what it answers, in the JSON that hook scripts are written for.

`told` makes its standard input, `heard` reads its standard output; both are pure. Unknown fields
of an answer are passed over, known ones of a wrong kind are an error: who wrote them meant
something. Running the command is shell.py's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from treadle.core.contracts.hook import Add, Answer, Block, Change, HookPoint, Moment, Permit
from treadle.policy.hooks.configured import EVENTS, SUBJECTS, known_name

CONTEXT_CHARS = 10_000
_EVENT_OF = {point: event for event, point in EVENTS.items()}
_FILE_TOOLS = frozenset({"read", "write", "edit"})
_FILE_SYNONYMS = ("path", "file")


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    behavior: Literal["allow", "deny"]
    message: str | None = None
    updated_input: dict[str, Any] | None = None


class Specific(msgspec.Struct, frozen=True, rename="camel"):
    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None
    decision: Decision | None = None
    updated_tool_output: str | None = None


class Output(msgspec.Struct, frozen=True, rename="camel"):
    """The JSON that a command may print."""

    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: Literal["approve", "allow", "block", "deny"] | None = None
    reason: str | None = None
    additional_context: str | None = None
    updated_input: dict[str, Any] | None = None
    hook_specific_output: Specific = Specific()

    @property
    def is_no(self) -> bool:
        return self.decision in ("block", "deny")

    @property
    def context(self) -> str:
        specific = self.hook_specific_output.additional_context
        return clipped("\n".join(text for text in (specific, self.additional_context) if text))

    @property
    def changed_input(self) -> dict[str, Any] | None:
        specific = self.hook_specific_output.updated_input
        return specific if specific is not None else self.updated_input


class Heard(msgspec.Struct, frozen=True):
    """What an output means: the answer, what is said beside it, and lines for the person."""

    answer: Answer | None = None
    remark: str = ""
    message: str = ""
    halt: str | None = None  # the whole turn should end, for this reason


# ------------------------------------------------------------------ to the command


def told(moment: Moment, surroundings: Mapping[str, Any]) -> bytes:
    """The standard input of a hook command."""
    data = dict(moment.data)
    call_id = data.pop("call_id", None)
    data.pop("summary", None)
    is_error = data.pop("is_error", False)
    said: dict[str, Any] = {
        "session_id": moment.session_id,
        **surroundings,
        "hook_event_name": _EVENT_OF[moment.point],
        "turn_id": moment.turn_id,
    }
    if "tool_name" in data:
        name = str(data["tool_name"])
        said["tool_name"] = known_name(name)
        said["tool_input"] = _with_file_path(name, data.pop("tool_input", {}))
        said["tool_use_id"] = call_id
        del data["tool_name"]
    if "tool_response" in data:
        said["tool_response"] = {"text": data.pop("tool_response"), "is_error": is_error}
    if "last_message" in data:
        said["last_assistant_message"] = data.pop("last_message")
    key, usual = SUBJECTS.get(moment.point, ("", ""))
    if key:
        said[key] = usual
    # Escaped to ASCII: a model may write half a surrogate pair, which UTF-8 cannot hold.
    return json.dumps({**said, **data}, default=str).encode()


def _with_file_path(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Scripts look for `file_path`; a model may have used a synonym, and would be past a guard."""
    if name not in _FILE_TOOLS or "file_path" in arguments:
        return dict(arguments)
    given = next((arguments[key] for key in _FILE_SYNONYMS if key in arguments), None)
    return dict(arguments) if given is None else {**arguments, "file_path": given}


def _without_file_path(changed: dict[str, Any], moment: Moment) -> dict[str, Any]:
    """Take the `file_path` that we added out again; a changed one replaces the synonym."""
    name, before = str(moment.data.get("tool_name", "")), moment.data.get("tool_input", {})
    shown = _with_file_path(name, before)
    if "file_path" in before or "file_path" not in shown or "file_path" not in changed:
        return changed
    rest = {key: value for key, value in changed.items() if key != "file_path"}
    if changed["file_path"] == shown["file_path"]:
        return rest
    return {**{k: v for k, v in rest.items() if k not in _FILE_SYNONYMS},
            "file_path": changed["file_path"]}  # fmt: skip


# ------------------------------------------------------------------ from the command


def heard(moment: Moment, stdout: str) -> Heard:
    """What a command that ended well wants. ValueError says why it cannot be understood."""
    text = stdout.strip()
    if not text.startswith("{"):
        # Plain words are for the model where context is asked for, and for nobody elsewhere.
        is_context = moment.point in ("user_prompt_submit", "session_start") and text
        return Heard(Add(clipped(text)) if is_context else None)
    try:
        output = msgspec.json.decode(text, type=Output)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"its output is not the JSON of a hook ({error})") from error
    message = (output.system_message or "").strip()
    if not output.continue_:
        return _halting(moment.point, output, message)
    answer, remark = _meaning(moment, output)
    return Heard(answer, remark, message)


def _halting(point: HookPoint, output: Output, message: str) -> Heard:
    reason = output.stop_reason or output.reason or "a hook ended the turn"
    if point in ("pre_tool_use", "permission_request", "user_prompt_submit", "pre_compact"):
        answer = Block(reason)
        return Heard(answer, "", message, None if point == "user_prompt_submit" else reason)
    return Heard(None, "", message, None if point in ("stop", "subagent_stop") else reason)


def _meaning(moment: Moment, output: Output) -> tuple[Answer | None, str]:
    """The answer that the point allows, and what has to be said beside it."""
    specific, context = output.hook_specific_output, output.context
    reason = output.reason or "a hook said no"
    match moment.point:
        case "pre_tool_use":
            if specific.permission_decision in ("deny", "ask"):
                return Block(_refusal(specific)), ""
            if output.is_no:
                return Block(reason), ""
            if output.changed_input is not None:
                return Change(_without_file_path(output.changed_input, moment)), context
        case "permission_request":
            return _permission(output), ""
        case "post_tool_use":
            if output.is_no:
                context = "\n".join(text for text in (reason, context) if text)
            if specific.updated_tool_output is not None:
                return Change(text=specific.updated_tool_output), context
        case "user_prompt_submit" | "pre_compact" | "stop" | "subagent_stop" if output.is_no:
            return Block(reason), ""
        case "stop" | "subagent_stop" | "notification" | "session_end":
            return None, ""
    return (Add(context) if context else None), ""


def _refusal(specific: Specific) -> str:
    reason = specific.permission_decision_reason or "a hook said no"
    if specific.permission_decision == "deny":
        return reason
    # By now the policy has decided, so there is no question left to put to a person.
    return f"a hook wants a person to look at this call first: {reason}"


def _permission(output: Output) -> Answer | None:
    specific = output.hook_specific_output
    decision = specific.decision
    if output.is_no or specific.permission_decision == "deny":
        return Block(output.reason or specific.permission_decision_reason or "a hook said no")
    if decision is not None and decision.behavior == "deny":
        return Block(decision.message or "a hook said no")
    if output.changed_input is not None or (decision and decision.updated_input is not None):
        return None  # it permits another call than this one: a person decides
    is_yes = (
        output.decision in ("approve", "allow")
        or specific.permission_decision == "allow"
        or (decision is not None and decision.behavior == "allow")
    )
    return Permit("a hook said yes") if is_yes else None


def clipped(text: str) -> str:
    """Context is for the model, and a megabyte of it helps nobody."""
    if len(text) <= CONTEXT_CHARS:
        return text
    return f"{text[:CONTEXT_CHARS]}\n... [truncated, {len(text)} chars total]"
