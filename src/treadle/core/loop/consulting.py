"""Consulting those who may object: hooks, mutators and gates, each in order.

What they may do is their contracts' matter; here is only how they are asked, how their
failures are contained, and how their answers are put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.gate import Account, Gate, Stop
from treadle.core.contracts.hook import Add, Answer, Block, Change, Hook, HookPoint, Moment, Permit
from treadle.core.contracts.mutator import Mutator, Scene
from treadle.core.errors import LawBroken, TreadleError
from treadle.core.events import MutationFinished, MutationStarted, Warning
from treadle.core.loop.telling import Teller
from treadle.core.transcript.integrity import Violation, is_empty, violations
from treadle.core.transcript.items import Item, NoticeItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

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
                problem = f"hook {name} failed at {point}: {type(error).__name__}: {error}"
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


async def mutated(
    mutators: Sequence[Mutator], scene: Scene, teller: Teller
) -> Sequence[tuple[str, Transcript]]:
    """Each change that was made at this point, with who made it; every law holds after each."""
    changes: list[tuple[str, Transcript]] = []
    for mutator in mutators:
        if scene.point not in mutator.points:
            continue
        teller.tell(MutationStarted, mutator.name, scene.point)
        try:
            new = await mutator.mutate(scene)
        except TreadleError:
            raise
        except Exception as error:  # noqa: BLE001 - a mutator is somebody else's code
            problem = f"mutator {mutator.name} failed: {type(error).__name__}: {error}"
            teller.tell(Warning, problem)
            new = None
        if new is scene.transcript:
            new = None
        teller.tell(MutationFinished, mutator.name, scene.point, new is not None)
        if new is None:
            continue
        broken = _breaches(scene.transcript, new)
        if broken:
            raise LawBroken(mutator.name, broken[0].law, broken[0].problem)
        changes.append((mutator.name, new))
        scene = msgspec.structs.replace(scene, transcript=new)
    return changes


def _breaches(old: Transcript, new: Transcript) -> list[Violation]:
    """What is wrong with a changed view, beside one that was lawful."""
    before, after = pending(old), pending(new)
    is_open = isinstance(before, RunTools) or isinstance(after, RunTools)
    if is_open and before != after:
        return [Violation("open_calls_kept", len(new), "other calls would be run than before")]
    if new.extends(old) and not is_open and all(map(_is_remark, new[len(old) :])):
        return []  # a few lines more: no need to walk the history
    return violations(new)


def _is_remark(item: Item) -> bool:
    return isinstance(item, (NoticeItem, UserItem)) and not is_empty(item)


class Gates:
    """Asks every gate before a model call, and settles with each that admitted it."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._admitted: list[tuple[Gate, Account]] = []

    def admit(self, account: Account) -> tuple[Stop | None, list[str]]:
        """Whether to stop, and what the gates want the model to know.

        All are asked, so that each has reserved what a closing reply costs. Nothing left to ask
        goes before a budget that is used up; there is a closing reply if nobody objects to it.
        """
        told: list[str] = []
        stops: list[Stop] = []
        for gate in self._gates:
            answer = gate.admit(account)
            if isinstance(answer, Stop):
                stops.append(answer)
                if not answer.closing:
                    continue
            elif answer.tell:
                told.append(answer.tell)
            self._admitted.append((gate, account))
        if not stops:
            return None, told
        first = next((stop for stop in stops if stop.reason == "end_turn"), stops[0])
        closing = min(stop.closing for stop in stops)
        if not closing:
            self.settle(Usage())
        return msgspec.structs.replace(first, closing=closing), told

    def settle(self, used: Usage) -> None:
        for gate, account in self._admitted:
            gate.settle(account, used)
        self._admitted.clear()
