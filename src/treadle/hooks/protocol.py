"""The JSON protocol of hook commands, which is also the one of other agents.

`encode_input` makes the standard input, `parse_output` reads the standard output; both are pure.
Unknown fields of the output are ignored; a known field with a wrong type is an error. Used by
command_hook.py, which runs the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.contracts.hook import (
    ALLOWED_ANSWERS,
    AddContext,
    Block,
    Change,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.tool import NO_ACCESS
from treadle.hooks.hook_config import HOOK_EVENTS, MATCHER_FIELDS, to_hook_tool_name

MAX_CONTEXT_CHARS = 10_000
_EVENT_BY_POINT = {point: event for event, point in HOOK_EVENTS.items()}
_NO_REASON = "a hook denied it"
# Plain text is context at these points, and ignored at the others.
_TEXT_IS_CONTEXT = frozenset({"user_prompt_submit", "session_start", "subagent_start"})
# The arguments of NotebookEdit as scripts for Claude Code read them, and as the tool names them.
_NOTEBOOK_NAMES = {"notebook_path": "file_path", "new_source": "source", "edit_mode": "mode"}


class HookDecision(msgspec.Struct, frozen=True, rename="camel"):
    behavior: Literal["allow", "deny"]
    message: str | None = None
    updated_input: dict[str, Any] | None = None


class HookSpecificOutput(msgspec.Struct, frozen=True, rename="camel"):
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    additional_context: str | None = None
    decision: HookDecision | None = None
    updated_tool_output: str | None = None


class HookOutput(msgspec.Struct, frozen=True, rename="camel"):
    """The JSON output of a command."""

    continue_: bool = msgspec.field(default=True, name="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: Literal["approve", "allow", "block", "deny"] | None = None
    reason: str | None = None
    additional_context: str | None = None
    updated_input: dict[str, Any] | None = None
    hook_specific_output: HookSpecificOutput = HookSpecificOutput()

    @property
    def is_denied(self) -> bool:
        return self.decision in ("block", "deny")

    @property
    def context(self) -> str:
        specific = self.hook_specific_output.additional_context
        return truncate_context("\n".join(filter(None, (specific, self.additional_context))))

    @property
    def effective_input(self) -> dict[str, Any] | None:
        specific = self.hook_specific_output.updated_input
        return specific if specific is not None else self.updated_input


class _AsyncOutput(msgspec.Struct, frozen=True):
    """The first line of a command that wants to continue in the background."""

    is_async: bool = msgspec.field(name="async")


class HookReply(msgspec.Struct, frozen=True):
    """The meaning of an output."""

    answer: HookAnswer | None = None
    extra_context: str = ""  # for the model, in addition to the answer
    user_message: str = ""
    end_turn_reason: str | None = None  # set if the turn must end


# ------------------------------------------------------------------ to the command


def encode_input(hook_input: HookInput, common_input: Mapping[str, Any], event: str = "") -> bytes:
    """The standard input of a hook command; `event` is the name that its settings use."""
    folder = str(common_input.get("cwd") or "")
    data = dict(hook_input.data)
    call_id = data.pop("call_id", None)
    data.pop("summary", None)
    data.pop("access", None)
    is_error = data.pop("is_error", False)
    payload: dict[str, Any] = {
        "session_id": hook_input.session_id,
        **common_input,
        "hook_event_name": event or _EVENT_BY_POINT[hook_input.point],
        "turn_id": hook_input.turn_id,
        "caller": hook_input.caller,
    }
    if "tool_name" in data:
        payload["tool_name"] = to_hook_tool_name(str(data.pop("tool_name")))
        payload["tool_input"] = _show_arguments(hook_input, folder)
        data.pop("tool_input", None)
        payload["tool_use_id"] = call_id
    if "tool_response" in data:
        text = str(data.pop("tool_response"))
        payload["tool_response"] = _describe_response(payload, text, is_error=is_error)
        if is_error:
            payload["error"] = text
    if "last_message" in data:
        payload["last_assistant_message"] = data.pop("last_message")
    key, default = MATCHER_FIELDS.get(hook_input.point, ("", ""))
    if key:
        payload[key] = default
    # Escaped to ASCII: a model may write half a surrogate pair, which UTF-8 cannot encode.
    return json.dumps({**payload, **data}, default=str).encode()


def _show_arguments(hook_input: HookInput, folder: str = "") -> dict[str, Any]:
    """The arguments with an absolute `file_path`, which scripts check: a model that gives the path
    under another name must not evade a guard. Those of a notebook also have their usual names."""
    arguments = dict(hook_input.data.get("tool_input", {}))
    access = hook_input.data.get("access", NO_ACCESS)
    if hook_input.data.get("tool_name") == "task_input":
        return {**arguments, "command": arguments.get("text", "")}
    path = arguments.get("file_path")
    if path is None and len(access.files) == 1 and access.files[0].path in arguments.values():
        path = access.files[0].path
    if not isinstance(path, str):
        return arguments
    shown = {**arguments, "file_path": os.path.normpath(Path(folder, access.cwd, path))}
    if hook_input.data.get("tool_name") == "notebook_edit":
        shown |= {name: shown[own] for name, own in _NOTEBOOK_NAMES.items() if own in shown}
    return shown


def _describe_response(payload: Mapping[str, Any], text: str, *, is_error: bool) -> dict[str, Any]:
    """The result of a call, with the fields that scripts for Claude Code read."""
    response: dict[str, Any] = {"text": text, "is_error": is_error, "success": not is_error}
    if payload["tool_name"] == "Bash":
        response |= {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    if "file_path" in payload["tool_input"]:
        response["filePath"] = payload["tool_input"]["file_path"]
    return response


def _restore_arguments(
    changed: dict[str, Any], hook_input: HookInput, folder: str
) -> dict[str, Any]:
    """Undo what `_show_arguments` did; a changed path replaces the one of the model."""
    before, shown = hook_input.data.get("tool_input", {}), _show_arguments(hook_input, folder)
    if hook_input.data.get("tool_name") == "task_input":
        own = {name: value for name, value in changed.items() if name != "command"}
        is_same = changed.get("command", shown["command"]) == shown["command"]
        return own if is_same else {**own, "text": changed["command"]}
    if hook_input.data.get("tool_name") == "notebook_edit":
        changed = _restore_notebook_names(changed, shown)
    if "file_path" not in shown or "file_path" not in changed:
        return changed
    if "file_path" in before:
        is_same = changed["file_path"] == shown["file_path"]
        return {**changed, "file_path": before["file_path"]} if is_same else changed
    rest = {key: value for key, value in changed.items() if key != "file_path"}
    if changed["file_path"] == shown["file_path"]:
        return rest
    access = hook_input.data.get("access", NO_ACCESS)
    others = {key: value for key, value in rest.items() if value != access.files[0].path}
    return {**others, "file_path": changed["file_path"]}


def _restore_notebook_names(changed: dict[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the tool's own names; what was changed under either name counts."""
    own = {name: value for name, value in changed.items() if name not in _NOTEBOOK_NAMES}
    for name, own_name in _NOTEBOOK_NAMES.items():
        if name in changed and changed[name] != shown.get(name):
            own[own_name] = changed[name]
    return own


# ------------------------------------------------------------------ from the command


def parse_output(hook_input: HookInput, stdout: str, folder: str = "") -> HookReply:
    """The reply of a command that exited with 0; ValueError if the output is wrong.

    `folder` is the `cwd` of its input. What an asynchronous command writes after its first line
    comes too late for an answer: only its message and its context count.
    """
    text = stdout.strip()
    if _find_late_output(text) is not None:
        late = parse_late_output(text)
        has_context = late.extra_context and AddContext in ALLOWED_ANSWERS[hook_input.point]
        context = AddContext(late.extra_context) if has_context else None
        return HookReply(context, user_message=late.user_message)
    if not text.startswith("{"):
        is_context = hook_input.point in _TEXT_IS_CONTEXT and text
        return HookReply(AddContext(truncate_context(text)) if is_context else None)
    output = _decode(text)
    message = (output.system_message or "").strip()
    if not output.continue_:
        return _parse_halt(hook_input.point, output, message)
    answer, extra_context = _parse_answer(hook_input, output, folder)
    return HookReply(answer, extra_context, message)


def parse_late_output(stdout: str) -> HookReply:
    """What a command in the background wrote: its message and its context count."""
    text = stdout.strip()
    begun = _find_late_output(text)
    late = _find_last_object(text) if begun is None else begun
    output = _decode(late) if late else HookOutput()
    return HookReply(None, output.context, (output.system_message or "").strip())


def _decode(text: str) -> HookOutput:
    try:
        return msgspec.json.decode(text, type=HookOutput)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"the output is not valid hook JSON ({error})") from error


def _find_late_output(text: str) -> str | None:
    """The JSON that an asynchronous command wrote last, or ""; None if it is not asynchronous."""
    first, _, rest = text.partition("\n")
    try:
        begun = msgspec.json.decode(first, type=_AsyncOutput)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    if not begun.is_async:
        return None
    return _find_last_object(rest)


def _find_last_object(text: str) -> str:
    """The whole text, if it is an object; else its last line that begins as one, or ""."""
    if text.startswith("{") and "\n{" not in text:
        return text
    lines = [line for line in text.splitlines() if line.lstrip().startswith("{")]
    return lines[-1].strip() if lines else ""


def _parse_halt(point: HookPoint, output: HookOutput, message: str) -> HookReply:
    reason = output.stop_reason or output.reason or "a hook ended the turn"
    if point in ("stop", "subagent_stop"):
        return HookReply(None, "", message)
    if Block in ALLOWED_ANSWERS[point]:
        end_reason = None if point in ("user_prompt_submit", "config_change") else reason
        return HookReply(Block(reason), "", message, end_reason)
    return HookReply(None, "", message, reason)


def _parse_answer(
    hook_input: HookInput, output: HookOutput, folder: str
) -> tuple[HookAnswer | None, str]:
    """The answer that the point allows, and context for the model in addition to it."""
    specific, context = output.hook_specific_output, output.context
    reason = output.reason or _NO_REASON
    match hook_input.point:
        case "pre_tool_use":
            if specific.permission_decision in ("deny", "ask"):
                return Block(_get_denial_reason(specific)), ""
            if output.is_denied:
                return Block(reason), ""
            if output.effective_input is not None:
                changed = _restore_arguments(output.effective_input, hook_input, folder)
                return Change(changed), context
        case "permission_request":
            return _parse_permission(output), ""
        case "post_tool_use":
            if output.is_denied:
                context = "\n".join(filter(None, (reason, context)))
            if specific.updated_tool_output is not None:
                return Change(text=specific.updated_tool_output), context
        case point if Block in ALLOWED_ANSWERS[point] and output.is_denied:
            return Block(reason), ""
        case point if AddContext not in ALLOWED_ANSWERS[point]:
            return None, ""
    return (AddContext(context) if context else None), ""


def _get_denial_reason(specific: HookSpecificOutput) -> str:
    reason = specific.permission_decision_reason or _NO_REASON
    if specific.permission_decision == "deny":
        return reason
    # The policy has decided already, so the user can no longer be asked.
    return f"a hook requires the user to check this call first: {reason}"


def _parse_permission(output: HookOutput) -> HookAnswer | None:
    specific = output.hook_specific_output
    decision = specific.decision
    if output.is_denied or specific.permission_decision == "deny":
        return Block(output.reason or specific.permission_decision_reason or _NO_REASON)
    if decision is not None and decision.behavior == "deny":
        return Block(decision.message or _NO_REASON)
    if output.effective_input is not None or (decision and decision.updated_input is not None):
        return None  # it permits a changed call: the user decides
    is_permitted = (
        output.decision in ("approve", "allow")
        or specific.permission_decision == "allow"
        or (decision is not None and decision.behavior == "allow")
    )
    return Permit("a hook approved it") if is_permitted else None


def truncate_context(text: str) -> str:
    """Limit the context for the model."""
    if len(text) <= MAX_CONTEXT_CHARS:
        return text
    return f"{text[:MAX_CONTEXT_CHARS]}\n... [truncated, {len(text)} chars total]"
