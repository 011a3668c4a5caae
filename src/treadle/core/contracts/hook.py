"""The contract of a hook: someone who is asked at named points and may object, change or add.

    point                 may answer
    ------------------    -----------------------------------------------------------
    session_start         Add
    user_prompt_submit    Block (the input is dropped), Add
    pre_tool_use          Block (the call is denied), Change (arguments), Add
    permission_request    Permit, Block
    post_tool_use         Change (the result's text), Add
    pre_compact           Block, Add (a focus for the summary)
    subagent_stop, stop   Block (the turn goes on, with the reason as a notice)
    notification          nothing
    session_end           nothing

Several hooks are asked in order. One that raises at pre_tool_use denies; elsewhere it warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from treadle.core.transcript.content import Arguments

HookPoint = Literal[
    "session_start",
    "user_prompt_submit",
    "pre_tool_use",
    "permission_request",
    "post_tool_use",
    "pre_compact",
    "subagent_stop",
    "stop",
    "notification",
    "session_end",
]


class HookInput(msgspec.Struct, frozen=True):
    """Where and when a hook is asked. `data` depends on the point: tool_name, tool_input, ..."""

    point: HookPoint
    session_id: str
    turn_id: str
    data: Mapping[str, Any]


class Block(msgspec.Struct, frozen=True):
    """No, or not yet; the model reads the reason. `data` becomes the data of that notice."""

    reason: str
    data: dict[str, Any] = {}


class Permit(msgspec.Struct, frozen=True):
    """Yes, without asking a person."""

    reason: str = ""


class Change(msgspec.Struct, frozen=True):
    """Go on, but with this instead."""

    arguments: Arguments | None = None
    text: str | None = None


class AddContext(msgspec.Struct, frozen=True):
    """Go on, and tell the model this."""

    text: str


HookAnswer = Block | Permit | Change | AddContext


class Hook(Protocol):
    """Who may object or add.

    Promises: answers only what its point allows (anything else is ignored with a warning),
    returns in bounded time, honours cancellation.
    It must not touch the transcript.
    """

    @property
    def points(self) -> frozenset[HookPoint]: ...

    async def run(self, hook_input: HookInput) -> HookAnswer | None: ...
