"""A Python function as a Hook.

    @hook("pre_tool_use", matcher="bash")
    def no_force(hook_input: HookInput[PreToolUseData]) -> Block | None:
        if "--force" in hook_input.data["tool_input"].get("command", ""):
            return Block("do not use --force")
        return None

A returned string is context for the model. Points and answers are the same as for commands. A type
checker knows the data of the point: the overloads below.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, Protocol, TypeVar, get_args, overload

from treadle.core.contracts.hook import (
    DEFAULT_HOOK_TIMEOUT,
    AddContext,
    HookAnswer,
    HookInput,
    HookPoint,
)
from treadle.core.contracts.hook_data import (
    BeforeEffectData,
    ConfigChangeData,
    FileChangedData,
    InstructionsLoadedData,
    NotificationData,
    PermissionDeniedData,
    PermissionRequestData,
    PostCompactData,
    PostToolUseData,
    PreCompactData,
    PreToolUseData,
    SessionEndData,
    SessionStartData,
    StopData,
    StopFailureData,
    SubagentStartData,
    SubagentStopData,
    UserPromptSubmitData,
)
from treadle.core.errors import ConfigError
from treadle.core.type_variables import PartDepsT
from treadle.hooks.hook_config import HookConfig
from treadle.lib.function_thread import run_in_thread

HookFunctionResult = HookAnswer | str | None
_DataT = TypeVar("_DataT")
_DataT_co = TypeVar("_DataT_co", covariant=True)
# A function of the input of one point.
PointFunction = Callable[
    [HookInput[_DataT, PartDepsT]], HookFunctionResult | Awaitable[HookFunctionResult]
]
HookFunction = PointFunction[Any, Any]


class HookDecorator(Protocol[_DataT_co]):
    def __call__(
        self, function: PointFunction[_DataT_co, PartDepsT], /
    ) -> FunctionHook[PartDepsT]: ...


class FunctionHook(Generic[PartDepsT]):
    """Calls a function as a Hook; a plain one runs in a thread, unless it has no timeout."""

    def __init__(
        self,
        function: HookFunction,
        points: frozenset[HookPoint],
        matcher: str = "",
        timeout: float | None = DEFAULT_HOOK_TIMEOUT,
    ) -> None:
        self.function = function
        self.points = points
        self.timeout = timeout
        is_plain = not inspect.iscoroutinefunction(inspect.unwrap(function))
        self._needs_thread = timeout is not None and is_plain
        # Same matcher semantics as in settings; there is no command here.
        self._matcher = HookConfig("PreToolUse", "", matcher)

    async def run(self, hook_input: HookInput[Any, PartDepsT]) -> HookAnswer | None:
        if not self._matcher.matches(hook_input):
            return None
        if self._needs_thread:
            result = await run_in_thread(lambda: self.function(hook_input))
        else:
            result = self.function(hook_input)
        if inspect.isawaitable(result):
            result = await result
        return AddContext(result) if isinstance(result, str) else result


@overload
def hook(
    point: Literal["session_start"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[SessionStartData]: ...
@overload
def hook(
    point: Literal["subagent_start"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[SubagentStartData]: ...
@overload
def hook(
    point: Literal["user_prompt_submit"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[UserPromptSubmitData]: ...
@overload
def hook(
    point: Literal["pre_tool_use"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PreToolUseData]: ...
@overload
def hook(
    point: Literal["before_effect"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[BeforeEffectData]: ...
@overload
def hook(
    point: Literal["permission_request"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PermissionRequestData]: ...
@overload
def hook(
    point: Literal["permission_denied"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PermissionDeniedData]: ...
@overload
def hook(
    point: Literal["post_tool_use"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PostToolUseData]: ...
@overload
def hook(
    point: Literal["pre_compact"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PreCompactData]: ...
@overload
def hook(
    point: Literal["post_compact"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[PostCompactData]: ...
@overload
def hook(
    point: Literal["instructions_loaded"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[InstructionsLoadedData]: ...
@overload
def hook(
    point: Literal["file_changed"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[FileChangedData]: ...
@overload
def hook(
    point: Literal["config_change"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[ConfigChangeData]: ...
@overload
def hook(
    point: Literal["subagent_stop"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[SubagentStopData]: ...
@overload
def hook(
    point: Literal["stop"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[StopData]: ...
@overload
def hook(
    point: Literal["stop_failure"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[StopFailureData]: ...
@overload
def hook(
    point: Literal["notification"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[NotificationData]: ...
@overload
def hook(
    point: Literal["session_end"], /, *, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[SessionEndData]: ...
@overload
def hook(
    *points: HookPoint, matcher: str = "", timeout: float | None = ...
) -> HookDecorator[Any]: ...
def hook(
    *points: HookPoint, matcher: str = "", timeout: float | None = DEFAULT_HOOK_TIMEOUT
) -> HookDecorator[Any]:
    """Make a hook of a function, which runs at these points and has failed after `timeout` seconds.
    An `async` function is cancelled then. A plain one runs in a thread and is left to itself; with
    `timeout=None` it runs in the event loop, so it must return at once."""
    known = get_args(HookPoint)
    for point in points:
        if point not in known:
            raise ConfigError(f"unknown hook point {point!r}; known points: {', '.join(known)}")
    if not points:
        raise ConfigError("a hook needs at least one point, such as @hook('pre_tool_use')")
    try:
        re.compile(matcher if matcher != "*" else "")
    except re.error as error:
        raise ConfigError(f"the matcher {matcher!r} is not a valid pattern ({error})") from error
    return lambda function: FunctionHook(function, frozenset(points), matcher, timeout)
