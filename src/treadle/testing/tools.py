"""Tools for tests: they record their calls, and answer, fail or wait; and a context for a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from treadle.core.contracts.source import BaseSource
from treadle.core.contracts.tool import (
    NO_ACCESS,
    Access,
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.contracts.workspace import Workspace
from treadle.core.events import Event
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass


class RecordingTool(BaseTool):
    """Answers with `answer` (a text, an exception to raise, or a function of the arguments).

    `calls` holds the arguments of every execution, `idempotency_keys` their keys. With `release`
    a call waits for that event; `started` is set before that, `cancel_count` counts cancellations.
    """

    def __init__(
        self,
        name: str = "record",
        answer: str | BaseException | Callable[[Arguments], object] = "ok",
        *,
        effect: EffectClass = "pure",
        concurrent: bool | None = None,
        release: asyncio.Event | None = None,
        access: Callable[[Arguments], Access] | None = None,
        check: Callable[[Arguments], str | None] | None = None,
        probe: ProbeResult | None = None,
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
        self._release = release
        self._access = access
        self._check = check
        self._probe = probe or ProbeResult("unknown", "no probe was given")
        self.calls: list[Arguments] = []
        self.idempotency_keys: list[str] = []
        self.started = asyncio.Event()
        self.cancel_count = 0
        self.running_count = 0
        self.max_running = 0

    def check(self, arguments: Arguments) -> str | None:
        return self._check(arguments) if self._check is not None else None

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return self._access(arguments) if self._access is not None else Access()

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        self.calls.append(arguments)
        self.idempotency_keys.append(context.idempotency_key)
        self.started.set()
        self.running_count += 1
        self.max_running = max(self.max_running, self.running_count)
        try:
            if self._release is not None:
                await self._release.wait()
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancel_count += 1
            raise
        finally:
            self.running_count -= 1
        answer = self._answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return ToolOutput(answer)
        output = answer(arguments)
        return output if isinstance(output, ToolOutput) else ToolOutput(str(output))

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {"call": context.call_id}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return self._probe


class ChangingSource(BaseSource):
    """A source whose tools can be changed while an agent works."""

    def __init__(self, tools: Sequence[Tool] = (), name: str = "changing") -> None:
        self._tools: Sequence[Tool] = tuple(tools)
        self.name = name
        self.open_count = 0
        self.close_count = 0

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def set_tools(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    async def open(self) -> None:
        self.open_count += 1

    async def aclose(self) -> None:
        self.close_count += 1


def make_tool_context(
    *,
    deps: Any = None,
    workspace: Workspace | None = None,
    access: Access = NO_ACCESS,
    services: dict[str, Any] | None = None,
    report_progress: Callable[[str], None] | None = None,
) -> ToolContext[Any]:
    """A context to call a tool with, outside of an agent."""

    def ignore(value: str | Event = "") -> None:
        return None

    return ToolContext(
        "session",
        "turn-1",
        "call_1",
        "session/turn-1/call_1",
        report_progress or ignore,
        ignore,
        ignore,
        workspace=workspace,
        services=services or {},
        access=access,
        deps=deps,
    )
