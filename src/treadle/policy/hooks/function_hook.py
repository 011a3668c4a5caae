"""A Python function as a Hook.

    @hook("pre_tool_use", matcher="bash")
    def no_force(moment):
        if "--force" in moment.data["tool_input"].get("command", ""):
            return Block("no force here")

A text that is returned is told to the model. The same points and answers as for shell commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable

from treadle.core.contracts.hook import AddContext, HookAnswer, HookInput, HookPoint
from treadle.core.errors import ConfigError
from treadle.policy.hooks.config import HOOK_EVENTS, HookConfig

HookFunctionResult = HookAnswer | str | None
HookFunction = Callable[[HookInput], HookFunctionResult | Awaitable[HookFunctionResult]]


class FunctionHook:
    """A function with a Hook's face."""

    def __init__(
        self, function: HookFunction, points: frozenset[HookPoint], matcher: str = ""
    ) -> None:
        self.function = function
        self._points = points
        # The matcher's meaning is the settings' one; the command is nobody's.
        self._matcher = HookConfig("PreToolUse", "", matcher)

    @property
    def points(self) -> frozenset[HookPoint]:
        return self._points

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if not self._matcher.matches(hook_input):
            return None
        said = self.function(hook_input)
        if inspect.isawaitable(said):
            said = await said
        return AddContext(said) if isinstance(said, str) else said


def hook(*points: HookPoint, matcher: str = "") -> Callable[[HookFunction], FunctionHook]:
    """Make a hook of a function that is asked at these points."""
    known = frozenset(HOOK_EVENTS.values())
    for point in points:
        if point not in known:
            raise ConfigError(f"no hook point is called {point!r}; there are {', '.join(known)}")
    if not points:
        raise ConfigError("a hook needs a point, such as @hook('pre_tool_use')")
    try:
        re.compile(matcher if matcher != "*" else "")
    except re.error as error:
        raise ConfigError(f"the matcher {matcher!r} is no pattern ({error})") from error
    return lambda function: FunctionHook(function, frozenset(points), matcher)
