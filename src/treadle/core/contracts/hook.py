"""The contract of a hook: called at named points of the loop, may block, change or add.

    point                 may answer
    ------------------    -----------------------------------------------------------
    session_start         AddContext
    subagent_start        AddContext; instead of session_start in a child agent
    user_prompt_submit    Block (the input is dropped), AddContext
    pre_tool_use          Block (the call is denied), Change (arguments), AddContext
    before_effect         nothing; a call that is not pure is about to run, its arguments are final
    permission_request    Permit, Block
    permission_denied     nothing; the user, a rule or a hook denied a call
    post_tool_use         Change (the text of the result), AddContext
    pre_compact           Block, AddContext (a focus for the summary)
    post_compact          nothing
    instructions_loaded   nothing; a memory file is new for the model
    file_changed          nothing; a file that the session has seen is another one on disk
    config_change         Block (the setting stays as it is)
    subagent_stop, stop   Block (the turn continues, with the reason as a notice)
    stop_failure          nothing; the turn ends with an error
    notification          nothing
    session_end           nothing

Several hooks run in order. A hook that raises at pre_tool_use denies the call; at other points
it causes a warning. `HookInput.data` has a type for each point: hook_data.py. Used by
core/loop/hooks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, cast

import msgspec

from treadle.core.contracts.model import CallModel
from treadle.core.contracts.wrapped import call_directly
from treadle.core.events import Caller
from treadle.core.transcript.content import Arguments
from treadle.core.type_variables import ContextDepsT, HookDataT, PartDepsT, fill_parameters

HookPoint = Literal[
    "session_start",
    "subagent_start",
    "user_prompt_submit",
    "pre_tool_use",
    "before_effect",
    "permission_request",
    "permission_denied",
    "post_tool_use",
    "pre_compact",
    "post_compact",
    "instructions_loaded",
    "file_changed",
    "config_change",
    "subagent_stop",
    "stop",
    "stop_failure",
    "notification",
    "session_end",
]


LoadReason = Literal["session_start", "nested_traversal", "path_glob_match", "include"]


class HookInput(msgspec.Struct, Generic[HookDataT, ContextDepsT], frozen=True):
    """The point of the call. `data` depends on the point: `HookInput[PreToolUseData]` has
    `tool_name`, `tool_input` and so on. It must not be changed: answer with a Change instead.
    `deps` is what the run was given: `HookInput[PreToolUseData, Shop]`. A hook makes its own model
    calls by `call_model`, with the purpose "judge"."""

    point: HookPoint
    session_id: str
    turn_id: str
    data: HookDataT
    caller: Caller = "library"
    call_model: CallModel = call_directly
    deps: ContextDepsT = cast(ContextDepsT, None)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> object:
            return super().__class_getitem__(fill_parameters(types, Any, object))


class Block(msgspec.Struct, frozen=True):
    """Stop this. The model reads the reason; `data` becomes the data of that notice."""

    reason: str
    data: dict[str, Any] | None = None


class Permit(msgspec.Struct, frozen=True):
    """Allow the call without an approval by the user."""

    reason: str = ""


class Change(msgspec.Struct, frozen=True):
    """Continue with these arguments, or with this text, instead."""

    arguments: Arguments | None = None
    text: str | None = None


class AddContext(msgspec.Struct, frozen=True):
    """Continue, and show this text to the model."""

    text: str


HookAnswer = Block | Permit | Change | AddContext

ALLOWED_ANSWERS: Mapping[HookPoint, tuple[type, ...]] = {
    "session_start": (AddContext,),
    "subagent_start": (AddContext,),
    "user_prompt_submit": (Block, AddContext),
    "pre_tool_use": (Block, Change, AddContext),
    "before_effect": (),
    "permission_request": (Permit, Block),
    "permission_denied": (),
    "post_tool_use": (Change, AddContext),
    "pre_compact": (Block, AddContext),
    "post_compact": (),
    "instructions_loaded": (),
    "file_changed": (),
    "config_change": (Block,),
    "subagent_stop": (Block,),
    "stop": (Block,),
    "stop_failure": (),
    "notification": (),
    "session_end": (),
}

DEFAULT_HOOK_TIMEOUT = 60.0  # seconds


class Hook(Protocol[PartDepsT]):
    """A function or command at named points of the loop.

    Promises: `run` returns only answers that its point allows (the loop ignores others with a
    warning), and honours cancellation: the loop cancels it after 60 seconds. A hook may have an
    attribute `timeout` with other seconds, or None if it limits its time itself.
    A hook must not change the transcript, nor block the event loop.
    """

    @property
    def points(self) -> frozenset[HookPoint]: ...

    async def run(self, hook_input: HookInput[Any, PartDepsT]) -> HookAnswer | None: ...


def get_hook_timeout(hook: Hook) -> float | None:
    """The seconds that one run of the hook may take; None if it limits its time itself."""
    timeout: float | None = getattr(hook, "timeout", DEFAULT_HOOK_TIMEOUT)
    return timeout
