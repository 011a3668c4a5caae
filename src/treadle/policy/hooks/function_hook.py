"""A Python function as a Hook.

    @hook("pre_tool_use", matcher="bash")
    def no_force(hook_input):
        if "--force" in hook_input.data["tool_input"].get("command", ""):
            return Block("do not use --force")

A returned string is context for the model. Points and answers are the same as for commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import get_args

from treadle.core.contracts.hook import (
    DEFAULT_HOOK_TIMEOUT,
    AddContext,
    HookAnswer,
    HookInput,
    HookPoint,
)
from treadle.core.errors import ConfigError
from treadle.policy.hooks.config import HookConfig

HookFunctionResult = HookAnswer | str | None
HookFunction = Callable[[HookInput], HookFunctionResult | Awaitable[HookFunctionResult]]


class FunctionHook:
    """Calls a function as a Hook."""

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
        # Same matcher semantics as in settings; there is no command here.
        self._matcher = HookConfig("PreToolUse", "", matcher)

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if not self._matcher.matches(hook_input):
            return None
        result = self.function(hook_input)
        if inspect.isawaitable(result):
            result = await result
        return AddContext(result) if isinstance(result, str) else result


def hook(
    *points: HookPoint, matcher: str = "", timeout: float | None = DEFAULT_HOOK_TIMEOUT
) -> Callable[[HookFunction], FunctionHook]:
    """Make a hook of a function, which runs at these points. An `async` function is cancelled
    after `timeout` seconds; a plain one blocks the agent, so it must return at once."""
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
