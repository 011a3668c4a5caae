"""The tools of an agent, which answer as in a recorded session, so that no effect happens again.

A call that the session has, with the same arguments, gets its recorded result. Another call of a
pure tool runs, if the policy allows it; of any other tool it is an error. Used by evaluate.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from treadle.core.contracts.policy import (
    Allow,
    BasePolicy,
    PermissionRequest,
    Policy,
    Verdict,
    require_approval,
)
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    ForwardingTool,
    RepairedArguments,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.contracts.wrapped import WrappedForwardingTool, WrappedSource, WrappedTool
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem
from treadle.lib.text.text import shorten_middle
from treadle.tools.late_tools import unwrap_call

SHOWN_CHARS = 300


class RecordedCall(NamedTuple):
    """A call, whatever its id. `arguments` are as JSON; "" if they could not be read."""

    name: str
    arguments: str

    def __str__(self) -> str:
        return shorten_middle(f"{self.name} {self.arguments}", SHOWN_CHARS)


def make_call(name: str, arguments: Arguments | None) -> RecordedCall:
    if arguments is None:
        return RecordedCall(name, "")
    name, arguments = unwrap_call(name, arguments)
    return RecordedCall(name, msgspec.json.encode(arguments, order="sorted").decode())


def list_calls(items: Iterable[Item]) -> list[tuple[str, RecordedCall]]:
    """The calls of a transcript with their ids."""
    replies = [item for item in items if isinstance(item, AssistantItem)]
    return [
        (call.id, make_call(call.name, call.arguments)) for one in replies for call in one.calls
    ]


def describe_difference(recorded: Iterable[RecordedCall], now: Iterable[RecordedCall]) -> str:
    """The first call that is different; "" if none is."""
    for number, (old, new) in enumerate(zip_longest(recorded, now), 1):
        if old != new:
            return f"call {number} was {old or 'none'}; now it is {new or 'none'}"
    return ""


class RecordedTools(WrappedSource):
    """The tools of one attempt. Without a history they are not `is_recorded`, and not used."""

    def __init__(self, source: ToolSource, history: Sequence[Item]) -> None:
        super().__init__(source)
        self.is_recorded = bool(history)
        self._calls = list_calls(history)
        results = {item.call_id: item for item in history if isinstance(item, ToolResultItem)}
        self._results: dict[RecordedCall, list[ToolResultItem]] = {}
        for call_id, call in self._calls:
            if call_id in results:
                self._results.setdefault(call, []).append(results[call_id])
        self._source_tools: Sequence[Tool] | None = None
        self._tools: tuple[Tool, ...] = ()
        self._specs: dict[str, ToolSpec] = {}

    def tools(self) -> Sequence[Tool]:
        tools = self._source.tools()
        if tools is not self._source_tools:
            self._source_tools = tools
            self._tools = tuple(self.wrap(tool) for tool in tools)
        return self._tools

    def wrap(self, tool: Tool) -> Tool:
        self._specs[tool.spec.name] = tool.spec
        kind = _ForwardingTool if isinstance(tool, ForwardingTool) else RecordedTool
        return kind(tool, self)

    def has(self, call: RecordedCall) -> bool:
        return call in self._results

    def take_result(self, call: RecordedCall) -> ToolResultItem | None:
        """The next result of this call; the last one stays."""
        results = self._results.get(call, [])
        return results.pop(0) if len(results) > 1 else next(iter(results), None)

    def find_spec(self, name: str) -> ToolSpec | None:
        """That of the tool itself; None if there is no such tool any more."""
        for tool in self.tools():
            if name not in self._specs and isinstance(tool, _ForwardingTool):
                tool.find_target(name)
        return self._specs.get(name)

    def find_difference(self, items: Iterable[Item]) -> str:
        """The first call that is not as recorded, of those that may change something; "" if they
        are the same."""
        recorded, now = (
            [call for _, call in calls if not self._is_pure(call.name)]
            for calls in (self._calls, list_calls(items))
        )
        return describe_difference(recorded, now)

    def _is_pure(self, name: str) -> bool:
        spec = self.find_spec(name)
        return spec is not None and spec.effect == "pure"


class RecordedTool(WrappedTool):
    """A tool that gives recorded results, and has no effect."""

    def __init__(self, tool: Tool, recorded: RecordedTools) -> None:
        super().__init__(tool)
        self._recorded = recorded

    @property
    def spec(self) -> ToolSpec:
        return msgspec.structs.replace(self._tool.spec, effect="pure", needs_approval=False)

    def repair(self, arguments: Arguments) -> RepairedArguments:
        known = self._recorded.has(make_call(self.spec.name, arguments))
        return RepairedArguments(arguments) if known else super().repair(arguments)

    def check(self, arguments: Arguments) -> str | None:
        known = self._recorded.has(make_call(self.spec.name, arguments))
        return None if known else super().check(arguments)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        result = self._recorded.take_result(make_call(self.spec.name, arguments))
        if result is not None:
            shown = result.display, result.is_error, result.full_output, result.data
            return ToolOutput(result.content, *shown)
        if self._tool.spec.effect != "pure":
            raise ToolError("the recorded session does not have this call, so it has no result")
        return await super().call(arguments, context)


class _ForwardingTool(RecordedTool, WrappedForwardingTool):
    def wrap_target(self, target: Tool) -> Tool:
        return self._recorded.wrap(target)


class RecordedPolicy(BasePolicy):
    """Allows what has no effect here; the agent's own policy decides on the other calls."""

    def __init__(self, policy: Policy, recorded: RecordedTools) -> None:
        self._policy = policy
        self._recorded = recorded

    async def decide(self, request: PermissionRequest) -> Verdict:
        spec = self._recorded.find_spec(request.tool.name) or request.tool
        is_known = self._recorded.has(make_call(spec.name, request.arguments))
        if is_known or spec.effect != "pure":
            return Allow()
        own = msgspec.structs.replace(request, tool=spec)
        return require_approval(await self._policy.decide(own), spec)
