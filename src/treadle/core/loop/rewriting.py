"""Letting the mutators look at the view, and taking over what they make of it.

They are asked in order, each sees what the one before it left, and every law is checked after
each that changed something. What a mutator asks of a model is paid from the same budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from treadle.core.contracts.hook import Add, Block
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.mutator import MutationPoint, Mutator, Scene
from treadle.core.errors import LawBroken, TreadleError
from treadle.core.events import MutationFinished, MutationStarted, Notified, Warning
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.equipment import Equipment
from treadle.core.loop.inbox import Inbox
from treadle.core.loop.ledger import Ledger
from treadle.core.loop.paying import Gates
from treadle.core.loop.telling import Teller
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.integrity import Violation, is_empty, violations
from treadle.core.transcript.items import Item, NoticeItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage


class Rewriting:
    def __init__(
        self,
        equipment: Equipment,
        teller: Teller,
        ledger: Ledger,
        toolbox: Toolbox,
        hooks: Hooks,
        inbox: Inbox,
        card: Callable[[], ModelCard],
    ) -> None:
        self._equipment = equipment
        self._teller = teller
        self._ledger = ledger
        self._toolbox = toolbox
        self._hooks = hooks
        self._inbox = inbox
        self._card = card

    async def mutate(self, point: MutationPoint, focus: str = "") -> bool:
        """Let the mutators look; whether one changed the view."""
        if not self._equipment.mutators:
            return False
        state = self._ledger.state
        scene = Scene(
            point,
            state.transcript,
            self._teller.session_id,
            self._teller.turn_id,
            self._card(),
            state.last_usage,
            len(self._equipment.system()) + self._toolbox.chars,
            lambda text: self._teller.tell(Notified, text),
            lambda: self._may_compact(point),
            focus,
            self._reserve,
        )
        changes = await mutated(self._equipment.mutators, scene, self._teller)
        for name, new in changes:
            self._ledger.rewrite(name, new)
        return bool(changes)

    async def _may_compact(self, point: MutationPoint) -> str | None:
        """What the hooks say: None forbids a compaction, a text is something to keep."""
        trigger = "manual" if point == "on_request" else "auto"
        answers = await self._hooks.ask("pre_compact", {"trigger": trigger})
        if any(isinstance(answer, Block) for answer in answers):
            return None
        return "\n".join(answer.text for answer in answers if isinstance(answer, Add))

    def _reserve(
        self, card: ModelCard, chars: int, max_output: int
    ) -> Callable[[Usage], None] | None:
        """Ask the gates for a model call that a mutator wants to make."""
        gates = Gates(self._equipment.gates)
        stop, told = gates.admit(self._ledger.account(card, chars, max_output))
        for text in told:
            self._inbox.put(NoticeItem(text, kind="budget"))
        if stop is not None:
            gates.settle(Usage())
            return None

        def settle(used: Usage) -> None:
            gates.settle(used)
            self._ledger.waste(card.name, used)

        return settle


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
