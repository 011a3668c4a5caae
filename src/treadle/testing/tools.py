"""Tools for tests: they record their calls, and fail, wait or talk as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from treadle.core.contracts.tool import (
    Access,
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass


class RecordingTool(BaseTool):
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
        self._probe = probe or ProbeResult("unknown", "nobody looked")
        self.calls: list[Arguments] = []
        self.idempotency_keys: list[str] = []
        self.started = asyncio.Event()
        self.cancel_count = 0
        self.running_count = 0
        self.max_running = 0

    @property
    def spec(self) -> ToolSpec:
        return self._spec

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
        given = answer(arguments)
        return given if isinstance(given, ToolOutput) else ToolOutput(str(given))

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {"call": context.call_id}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return self._probe


class ChangingSource:
    """A source whose tools can be changed while an agent works."""

    def __init__(self, tools: Sequence[Tool] = (), name: str = "shifting") -> None:
        self._tools: Sequence[Tool] = tuple(tools)
        self._name = name
        self.open_count = 0
        self.close_count = 0

    @property
    def name(self) -> str:
        return self._name

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def set_tools(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    def instructions(self) -> str:
        return ""

    async def open(self) -> None:
        self.open_count += 1

    async def aclose(self) -> None:
        self.close_count += 1
