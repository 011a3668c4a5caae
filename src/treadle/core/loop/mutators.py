"""Runs the mutators, and takes over the view that they return.

They run in order. The view of each is checked against every law and taken over before the next
one runs, so that an interruption loses none. Model calls of a mutator pass the gateway.
"""

from __future__ import annotations

import msgspec

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.contracts.model import CacheRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint, Mutator
from treadle.core.errors import CallNotAdmitted, LawBroken, TreadleError, error_message
from treadle.core.events import MutationFinished, MutationStarted, Notified, WarningRaised
from treadle.core.loop.model_gateway import ModelGateway, build_aside_request
from treadle.core.loop.parts import DriverParts
from treadle.core.transcript.integrity import Violation, find_violations, is_empty
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript
from treadle.lib.contained import call_contained


class MutatorRunner:
    def __init__(self, parts: DriverParts, gateway: ModelGateway) -> None:
        self._parts = parts
        self._gateway = gateway
        self._is_compacting = False  # a mutator asked whether it may

    async def run(self, point: MutationPoint, focus: str = "") -> bool:
        """Run the mutators of a point; whether one changed the view."""
        parts, emitter, state = self._parts, self._parts.emitter, self._parts.session.state
        if not parts.config.mutators:
            return False
        if point == "on_request":
            parts.toolbox.refresh()
        self._is_compacting = False
        context = MutationContext(
            point,
            state.transcript,
            emitter.session_id,
            emitter.turn_id,
            self._gateway.model.card,
            state.last_usage,
            estimate_text_chars(await parts.instructions.read()) + parts.toolbox.spec_chars,
            lambda text: emitter.emit(Notified, text),
            lambda: self._run_pre_compact_hooks(point),
            focus,
            self._gateway.call,
            emitter.emit,
            self._ask_aside,
            parts.hooks.run,
        )
        has_changed = await self._run_all(context)
        if has_changed and self._is_compacting:
            await parts.hooks.run("post_compact", {"trigger": _name_trigger(point)})
        return has_changed

    async def _ask_aside(self, transcript: Transcript, use_cache: bool) -> AssistantItem:
        request = build_aside_request(
            self._parts, await self._parts.instructions.read(), transcript
        )
        if not use_cache:
            request = msgspec.structs.replace(request, cache=CacheRequest(enabled=False))
        return await self._gateway.call(request, "summary")

    async def _run_all(self, context: MutationContext) -> bool:
        emitter, session, has_changed = self._parts.emitter, self._parts.session, False
        for mutator in self._parts.config.mutators:
            if context.point not in mutator.points:
                continue
            emitter.emit(MutationStarted, mutator.name, context.point)
            new: Transcript | None = None
            try:
                new = await self._mutate(mutator, context)
            finally:
                if new is context.transcript:
                    new = None
                emitter.emit(MutationFinished, mutator.name, context.point, new is not None)
            if new is None:
                continue
            broken = _find_new_violations(context.transcript, new)
            if broken:
                raise LawBroken(mutator.name, broken[0].law, broken[0].problem)
            session.replace_view(mutator.name, new)
            context = msgspec.structs.replace(context, transcript=session.state.transcript)
            has_changed = True
        return has_changed

    async def _mutate(self, mutator: Mutator, context: MutationContext) -> Transcript | None:
        """The new view; None if the mutator failed, unless with an error of ours."""
        emitter, who = self._parts.emitter, f"mutator {mutator.name}"
        try:
            return await emitter.await_contained(call_contained(mutator.mutate, context), who)
        except CallNotAdmitted as error:
            emitter.emit(WarningRaised, f"{who} did nothing: {error}")
        except TreadleError:
            raise
        except Exception as error:  # noqa: BLE001 - a mutator may raise anything
            problem = f"{who} failed: {type(error).__name__}: {error_message(error)}"
            emitter.emit(WarningRaised, problem)
        return None

    async def _run_pre_compact_hooks(self, point: MutationPoint) -> str | None:
        """None if a hook forbids the compaction, else a focus for the summary."""
        self._is_compacting = True
        answers = await self._parts.hooks.run("pre_compact", {"trigger": _name_trigger(point)})
        if any(isinstance(answer, Block) for answer in answers):
            return None
        return "\n".join(answer.text for answer in answers if isinstance(answer, AddContext))


def _name_trigger(point: MutationPoint) -> str:
    return "manual" if point == "on_request" else "auto"


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
