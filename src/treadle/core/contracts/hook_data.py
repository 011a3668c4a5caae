"""What a hook is given at each point: the types of `HookInput.data`.

They are for annotations: `def check(hook_input: HookInput[PreToolUseData])`. The loop passes plain
dicts, and an agent is made without this module: a TypedDict is slow to create.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from treadle.core.contracts.hook import HookPoint, LoadReason
from treadle.core.contracts.tool import Access
from treadle.core.transcript.content import Arguments


class SessionStartData(TypedDict):
    source: Literal["startup", "resume"]  # resume: the session has a history


class SubagentStartData(TypedDict):
    agent_type: str


class UserPromptSubmitData(TypedDict):
    prompt: str  # the text of the message


class PreToolUseData(TypedDict):
    tool_name: str
    tool_input: Arguments  # parsed and valid
    call_id: str
    summary: str  # one line for the user
    access: Access  # what the call touches


class BeforeEffectData(PreToolUseData):
    """As at pre_tool_use; the arguments are final."""


class PermissionRequestData(PreToolUseData):
    """As at pre_tool_use."""


class PermissionDeniedData(PreToolUseData):
    reason: str  # what the model reads


class PostToolUseData(PreToolUseData):
    tool_response: str  # what the model will read; "" if the result is not only text
    is_error: bool


class PreCompactData(TypedDict):
    trigger: Literal["auto", "manual"]


class PostCompactData(PreCompactData):
    """As at pre_compact."""


class InstructionsLoadedData(TypedDict):
    file_path: str
    memory_type: Literal["User", "Project", "Local"]
    # session_start: in the prompt; nested_traversal: of a folder in which the session works;
    # path_glob_match: a rule about a file of the work; include: another file imports it.
    load_reason: LoadReason


class FileChangedData(TypedDict):
    file_path: str
    event: Literal["change", "unlink"]  # unlink: it is no longer a file


class ConfigChangeData(TypedDict):
    source: Literal["user_settings"]
    file_path: str


class StopData(TypedDict):
    last_message: str  # the text of the last reply
    rounds: int  # tool rounds of this turn


class SubagentStopData(StopData):
    agent_type: str


class StopFailureData(TypedDict):
    error: str


class NotificationData(TypedDict):
    notification_type: Literal["permission_prompt"]


class SessionEndData(TypedDict):
    """Nothing."""


HOOK_DATA: Mapping[HookPoint, type] = {
    "session_start": SessionStartData,
    "subagent_start": SubagentStartData,
    "user_prompt_submit": UserPromptSubmitData,
    "pre_tool_use": PreToolUseData,
    "before_effect": BeforeEffectData,
    "permission_request": PermissionRequestData,
    "permission_denied": PermissionDeniedData,
    "post_tool_use": PostToolUseData,
    "pre_compact": PreCompactData,
    "post_compact": PostCompactData,
    "instructions_loaded": InstructionsLoadedData,
    "file_changed": FileChangedData,
    "config_change": ConfigChangeData,
    "subagent_stop": SubagentStopData,
    "stop": StopData,
    "stop_failure": StopFailureData,
    "notification": NotificationData,
    "session_end": SessionEndData,
}
