"""Runs the hooks of a point in order.

A hook that fails or does not end in time is contained, answers that its point does not allow are
ignored with a warning. What each point allows is in contracts/hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.core.contracts.hook import (
    ALLOWED_ANSWERS,
    AddContext,
    Block,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
    get_hook_timeout,
)
from treadle.core.contracts.model import CallModel
from treadle.core.errors import TreadleError, error_message, error_text
from treadle.core.events import WarningRaised
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.lib.contained import call_contained

SESSION_END_TIMEOUT = 90.0  # closing a session waits no longer for one hook


class Hooks:
    """Runs each hook of a point in order; the first Block or Permit ends the run."""

    def __init__(
        self,
        config: DriverConfig,
        emitter: Emitter,
        call_model: CallModel,
    ) -> None:
        self._by_point: dict[HookPoint, list[Hook]] = {}
        for hook in config.hooks:
            for point in hook.points:
                self._by_point.setdefault(point, []).append(hook)
        self._emitter = emitter
        self._caller, self._deps = config.caller, config.deps
        self.call_model = call_model

    def has(self, point: HookPoint) -> bool:
        return point in self._by_point

    async def run(self, point: HookPoint, data: Mapping[str, Any]) -> list[HookAnswer]:
        """The answers, up to and including the first Block or Permit."""
        answers: list[HookAnswer] = []
        emitter = self._emitter
        for hook in self._by_point.get(point, ()):
            name = _get_name(hook)
            try:
                ids = (emitter.session_id, emitter.turn_id)
                hook_input = HookInput(point, *ids, data, self._caller, self.call_model, self._deps)
                answer = await self._run_bounded(hook, hook_input)
            except Exception as error:  # noqa: BLE001 - a hook may raise anything
                problem = _failure_text(name, point, error)
                emitter.emit(WarningRaised, problem)
                if point == "pre_tool_use":
                    return [*answers, Block(problem)]
                continue
            if answer is None:
                continue
            if not isinstance(answer, ALLOWED_ANSWERS[point]):
                kind = type(answer).__name__
                emitter.emit(
                    WarningRaised, f"hook {name} may not answer {kind} at {point}: ignored"
                )
                continue
            if isinstance(answer, AddContext) and not answer.text.strip():
                continue
            if isinstance(answer, Block) and not answer.reason.strip():
                answer = Block(f"hook {name} blocked it")
            answers.append(answer)
            if isinstance(answer, (Block, Permit)):
                break
        return answers

    async def run_start(self, has_history: bool, agent_type: str) -> list[HookAnswer]:
        """At the beginning of a session, or of a child agent of this type."""
        if not agent_type:
            source = "resume" if has_history else "startup"
            return await self.run("session_start", {"source": source})
        return [] if has_history else await self.run("subagent_start", {"agent_type": agent_type})

    async def run_failure(self, error: BaseException | None) -> None:
        if error is not None:
            await self.run("stop_failure", {"error": error_text(error)})

    async def _run_bounded(self, hook: Hook, hook_input: HookInput) -> HookAnswer | None:
        limit = get_hook_timeout(hook)
        if hook_input.point == "session_end":
            limit = SESSION_END_TIMEOUT if limit is None else min(limit, SESSION_END_TIMEOUT)
        who = f"hook {_get_name(hook)}"
        work = call_contained(hook.run, hook_input)
        return await self._emitter.await_contained(work, who, limit)


def _get_name(hook: Hook) -> str:
    """That of its function, if it has one."""
    name: str = getattr(getattr(hook, "function", hook), "__qualname__", type(hook).__name__)
    return name


def _failure_text(name: str, point: HookPoint, error: Exception) -> str:
    """Our own errors name their hook by themselves."""
    if isinstance(error, TreadleError):
        return f"a hook failed at {point}: {error_message(error)}"
    return f"hook {name} failed at {point}: {type(error).__name__}: {error_message(error)}"
