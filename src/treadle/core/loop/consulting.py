"""Consulting the hooks, each in order.

What they may do is their contract's matter; here is only how they are asked, how their failures
are contained, and how their answers are put together. Gates: paying.py. Mutators: rewriting.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle.core.contracts.hook import Add, Answer, Block, Change, Hook, HookPoint, Moment, Permit
from treadle.core.errors import TreadleError
from treadle.core.events import Warning
from treadle.core.loop.telling import Teller

ALLOWED: Mapping[HookPoint, tuple[type, ...]] = {
    "session_start": (Add,),
    "user_prompt_submit": (Block, Add),
    "pre_tool_use": (Block, Change, Add),
    "permission_request": (Permit, Block),
    "post_tool_use": (Change, Add),
    "pre_compact": (Block, Add),
    "subagent_stop": (Block,),
    "stop": (Block,),
    "notification": (),
    "session_end": (),
}


class Hooks:
    """Asks each hook of a point in order; the first objection ends the asking."""

    def __init__(self, hooks: Sequence[Hook], teller: Teller) -> None:
        self._by_point: dict[HookPoint, list[Hook]] = {}
        for hook in hooks:
            for point in hook.points:
                self._by_point.setdefault(point, []).append(hook)
        self._teller = teller

    def has(self, point: HookPoint) -> bool:
        return point in self._by_point

    async def ask(self, point: HookPoint, data: Mapping[str, Any]) -> list[Answer]:
        """What was answered, up to and including the first Block or Permit."""
        answers: list[Answer] = []
        teller = self._teller
        for hook in self._by_point.get(point, ()):
            name = type(hook).__name__
            try:
                answer = await hook.ask(Moment(point, teller.session_id, teller.turn_id, data))
            except Exception as error:  # noqa: BLE001 - a hook is somebody else's code
                problem = _failure(name, point, error)
                teller.tell(Warning, problem)
                if point == "pre_tool_use":
                    return [*answers, Block(problem)]
                continue
            if answer is None:
                continue
            if not isinstance(answer, ALLOWED[point]):
                kind = type(answer).__name__
                teller.tell(Warning, f"hook {name} may not answer {kind} at {point}: ignored")
                continue
            if isinstance(answer, Add) and not answer.text.strip():
                continue
            if isinstance(answer, Block) and not answer.reason.strip():
                answer = Block(f"hook {name} objects")
            answers.append(answer)
            if isinstance(answer, (Block, Permit)):
                break
        return answers


def _failure(name: str, point: HookPoint, error: Exception) -> str:
    """What went wrong; our own errors say by themselves with which hook."""
    if isinstance(error, TreadleError):
        return f"a hook failed at {point}: {error}"
    return f"hook {name} failed at {point}: {type(error).__name__}: {error}"
