"""Runs the mutators, and takes over the view that they return.

They run in order. The view of each is checked against every law and taken over before the next
one runs, so that an interruption loses none. Model calls of a mutator pass the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.contracts.mutator import MutationContext, MutationPoint, Mutator
from treadle.core.errors import CallNotAdmitted, LawBroken, TreadleError, error_message
from treadle.core.events import MutationFinished, MutationStarted, Notified, WarningRaised
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.instructions import Instructions
from treadle.core.loop.interruption import await_contained
from treadle.core.loop.loop_session import LoopSession
from treadle.core.loop.model_gateway import ModelGateway
from treadle.core.loop.prepare import Toolbox
from treadle.core.transcript.integrity import Violation, find_violations, is_empty
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript


class MutatorRunner:
    def __init__(
        self,
        config: DriverConfig,
        emitter: Emitter,
        session: LoopSession,
        toolbox: Toolbox,
        hooks: Hooks,
        gateway: ModelGateway,
        instructions: Instructions,
    ) -> None:
        self._config = config
        self._emitter = emitter
        self._session = session
        self._toolbox = toolbox
        self._hooks = hooks
        self._gateway = gateway
        self._instructions = instructions

    async def run(self, point: MutationPoint, focus: str = "") -> bool:
        """Run the mutators of a point; whether one changed the view."""
        if not self._config.mutators:
            return False
        state = self._session.state
        scene = MutationContext(
            point,
            state.transcript,
            self._emitter.session_id,
            self._emitter.turn_id,
            self._gateway.model.card,
            state.last_usage,
            estimate_text_chars(await self._instructions.read()) + self._toolbox.spec_chars,
            lambda text: self._emitter.emit(Notified, text),
            lambda: self._run_pre_compact_hooks(point),
            focus,
            self._gateway.call,
            self._emitter.emit,
        )
        return await run_mutators(self._config.mutators, scene, self._emitter, self._take_over)

    def _take_over(self, mutator: str, new: Transcript) -> Transcript:
        self._session.replace_view(mutator, new)
        return self._session.state.transcript

    async def _run_pre_compact_hooks(self, point: MutationPoint) -> str | None:
        """None if a hook forbids the compaction, else a focus for the summary."""
        trigger = "manual" if point == "on_request" else "auto"
        answers = await self._hooks.run("pre_compact", {"trigger": trigger})
        if any(isinstance(answer, Block) for answer in answers):
            return None
        return "\n".join(answer.text for answer in answers if isinstance(answer, AddContext))


async def run_mutators(
    mutators: Sequence[Mutator],
    context: MutationContext,
    emitter: Emitter,
    take_over: Callable[[str, Transcript], Transcript],
) -> bool:
    """Whether one changed the view; `take_over` gets each lawful new view and gives it back."""
    has_changed = False
    for mutator in mutators:
        if context.point not in mutator.points:
            continue
        emitter.emit(MutationStarted, mutator.name, context.point)
        new: Transcript | None = None
        try:
            new = await await_contained(mutator.mutate(context), f"mutator {mutator.name}", emitter)
        except CallNotAdmitted as error:
            emitter.emit(WarningRaised, f"mutator {mutator.name} did nothing: {error}")
        except TreadleError:
            raise
        except Exception as error:  # noqa: BLE001 - a mutator may raise anything
            problem = (
                f"mutator {mutator.name} failed: {type(error).__name__}: {error_message(error)}"
            )
            emitter.emit(WarningRaised, problem)
        finally:
            if new is context.transcript:
                new = None
            emitter.emit(MutationFinished, mutator.name, context.point, new is not None)
        if new is None:
            continue
        broken = _find_new_violations(context.transcript, new)
        if broken:
            raise LawBroken(mutator.name, broken[0].law, broken[0].problem)
        context = msgspec.structs.replace(context, transcript=take_over(mutator.name, new))
        has_changed = True
    return has_changed


def _find_new_violations(old: Transcript, new: Transcript) -> list[Violation]:
    """Laws that the changed view breaks and the old one kept."""
    before, after = pending(old), pending(new)
    is_open = isinstance(before, RunTools) or isinstance(after, RunTools)
    if is_open and before != after:
        return [Violation("open_calls_kept", len(new), "other calls would be run than before")]
    if new.is_extension_of(old) and not is_open and all(map(_is_input_or_notice, new[len(old) :])):
        return []  # only appended items: the history is not checked again
    if _begins_with_reply(new) and not _begins_with_reply(old):
        return [Violation("begins_with_input", 0, "the reply at the beginning has lost its input")]
    return find_violations(new)


def _begins_with_reply(transcript: Transcript) -> bool:
    first = next((item for item in transcript if not isinstance(item, NoticeItem)), None)
    return isinstance(first, AssistantItem)


def _is_input_or_notice(item: Item) -> bool:
    return isinstance(item, (NoticeItem, UserItem)) and not is_empty(item)
