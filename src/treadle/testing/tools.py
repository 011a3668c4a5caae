"""Tools for tests: they record their calls, and fail, wait or talk as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from treadle.core.contracts.tool import (
    Probe,
    Resources,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass


class RecordingTool:
    """Answers with `answer` (a text, an exception to raise, or a function of the arguments).

    `calls` holds the arguments of every execution, `keys` their idempotency keys. With a gate
    it waits there; `entered` tells that it has come so far, `cancelled` that it was cut off.
    """

    def __init__(
        self,
        name: str = "record",
        answer: str | BaseException | Callable[[Arguments], object] = "ok",
        *,
        effect: EffectClass = "pure",
        concurrent: bool | None = None,
        gate: asyncio.Event | None = None,
        resources: Callable[[Arguments], Resources] | None = None,
        problem: Callable[[Arguments], str | None] | None = None,
        probe: Probe | None = None,
        timeout: float | None = None,
        detach_after: float | None = None,
        max_result_chars: int = 100_000,
    ) -> None:
        self._spec = ToolSpec(
            name,
            f"Records its calls as {name}.",
            {"type": "object", "properties": {}, "additionalProperties": True},
            effect=effect,
            concurrent=effect == "pure" if concurrent is None else concurrent,
            timeout=timeout,
            detachable=detach_after is not None,
            detach_after=detach_after,
            max_result_chars=max_result_chars,
        )
        self._answer = answer
        self._gate = gate
        self._resources = resources
        self._problem = problem
        self._probe = probe or Probe("unknown", "nobody looked")
        self.calls: list[Arguments] = []
        self.keys: list[str] = []
        self.entered = asyncio.Event()
        self.cancelled = 0
        self.running = 0
        self.most_running = 0

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        return self._problem(arguments) if self._problem is not None else None

    def summary(self, arguments: Arguments) -> str:
        return f"[{self._spec.name}]"

    def resources(self, arguments: Arguments) -> Resources:
        return self._resources(arguments) if self._resources is not None else Resources()

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        self.calls.append(arguments)
        self.keys.append(context.key)
        self.entered.set()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self._gate is not None:
                await self._gate.wait()
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        answer = self._answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return ToolOutput(answer)
        given = answer(arguments)
        return given if isinstance(given, ToolOutput) else ToolOutput(str(given))

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {"call": context.call_id}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        return self._probe


class ShiftingSource:
    """A source whose tools can be changed while an agent works."""

    def __init__(self, tools: Sequence[Tool] = (), name: str = "shifting") -> None:
        self._tools: Sequence[Tool] = tuple(tools)
        self._name = name
        self.opened = 0
        self.closed = 0

    @property
    def name(self) -> str:
        return self._name

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def change(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    def instructions(self) -> str:
        return ""

    async def open(self) -> None:
        self.opened += 1

    async def aclose(self) -> None:
        self.closed += 1
