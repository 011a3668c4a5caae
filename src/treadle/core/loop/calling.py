"""One tool round: hook, run, cap, answer, once judging.py has looked, checked and decided.

Whatever goes wrong with a call becomes its result; nothing but cancellation leaves here as an
exception. Safe calls run beside each other by resource, the others in order, and the answers
come in the model's order. A call with an effect has its intent in the log before it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from treadle.core.contracts.hook import Add, Block, Change
from treadle.core.contracts.policy import Allow, Ask, Deny
from treadle.core.contracts.tool import Probe, Tool, ToolContext, ToolOutput
from treadle.core.events import (
    ChildEvent,
    Event,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Warning,
    preview,
)
from treadle.core.loop.capping import capped
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.containing import Containing, words
from treadle.core.loop.early import Early
from treadle.core.loop.equipment import Equipment
from treadle.core.loop.judging import Judging, Prepared, checked, tool_data
from treadle.core.loop.scheduling import Slot, run_in_order
from treadle.core.loop.steps import PendingApproval
from treadle.core.loop.tasks import RUNNING, Tasks, end_all
from treadle.core.loop.telling import Teller
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.content import Text, ToolCall, parse_arguments
from treadle.core.transcript.entries import Intent, Ruling
from treadle.core.transcript.integrity import interrupted
from treadle.core.transcript.items import NoticeItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript

CUT = "Interrupted by the user before it finished; its effect may be incomplete."
LEFT = "Interrupted by the user, outcome unknown: it did not stop and may still be going on."


class Calling:
    """Carries out the calls of a reply."""

    def __init__(
        self,
        equipment: Equipment,
        teller: Teller,
        toolbox: Toolbox,
        hooks: Hooks,
        tasks: Tasks,
        intend: Callable[[Intent], Awaitable[None]],
        on_notice: Callable[[NoticeItem], None],
        history: Callable[[], Transcript],
    ) -> None:
        self._history = history
        self._equipment = equipment
        self._teller = teller
        self._toolbox = toolbox
        self._hooks = hooks
        self._judging = Judging(equipment.policy, teller, toolbox, hooks)
        self._containing = Containing(teller)
        self._tasks = tasks
        self._intend = intend
        self._on_notice = on_notice
        self.early = Early(toolbox, hooks, equipment.max_parallel, self._start_early)

    async def aclose(self) -> None:
        """Nothing that was started here goes on, as far as that can be had."""
        await self.early.drop()
        await self._containing.aclose()

    # --- before anything happens ---------------------------------------------------------

    def prepare(
        self,
        calls: Sequence[ToolCall],
        rulings: dict[str, Ruling],
        intents: dict[str, Intent],
        settled: dict[str, ToolResultItem],
    ) -> Awaitable[tuple[list[Prepared], list[PendingApproval]]]:
        """Look at every call, and at who must still be asked. Running it twice is harmless."""
        self.early.withdraw_offers()
        return self._judging.prepare(calls, rulings, intents, settled)

    # --- the round -----------------------------------------------------------------------

    async def run(
        self,
        prepared: Sequence[Prepared],
        intents: dict[str, Intent],
        on_result: Callable[[ToolResultItem], None],
        on_early: Callable[[ToolResultItem], None],
    ) -> None:
        """Answer every call. `on_result` gets the answers in the model's order, `on_early` one
        that came before its turn."""
        if len(prepared) == 1:
            on_result(await self._answer(prepared[0], intents))
            return
        slots = [Slot(partial(self._answer, ready, intents), *_reach(ready)) for ready in prepared]
        await run_in_order(slots, self._equipment.max_parallel, on_result, on_early)

    def cut_off(self, call: ToolCall) -> ToolResultItem:
        """The answer to a call that the user interrupted."""
        output = self._containing.take_answer(call.id)
        if output is not None:
            return self._finish(Prepared(call), output)
        return interrupted(call, LEFT if self._containing.has_left(call.id) else CUT)

    async def _answer(self, ready: Prepared, intents: dict[str, Intent]) -> ToolResultItem:
        if ready.settled is not None:
            return ready.settled
        intent = intents.get(ready.call.id)
        if intent is not None:
            concluded = await self._conclude(ready, intent)
            if concluded is not None:
                return concluded
            if ready.objection is not None:
                text = f"{ready.objection} It was not done before the interruption."
                return self._finish(ready, ToolOutput(text, is_error=True))
        if ready.refusal is not None:
            await asyncio.sleep(0)  # others get a turn, also from a model that calls for nonsense
            return self._finish(ready, ToolOutput(ready.refusal, is_error=True))
        result = await self.early.result_of(ready.call)
        if result is not None:
            return self._renamed(result, ready)
        if self._hooks.has("pre_tool_use"):
            ready = await self._ask_hooks(ready)
            if ready.refusal is not None:
                return self._finish(ready, ToolOutput(ready.refusal, is_error=True))
        assert ready.tool is not None, "a call without a tool is refused before"
        if ready.tool.spec.detachable:
            return await self._detachable(ready, ready.tool.spec.detach_after)
        return await self._execute(ready, _stay)

    async def _start_early(self, call: ToolCall) -> ToolResultItem | None:
        """Run it now if nobody has to be asked; what is wrong with it is told at its turn."""
        prepared = self._judging.look_at(call, None)
        if prepared.refusal is not None:
            return None
        if not isinstance(await self._judging.decide(prepared), Allow):
            return None
        return await self._execute(prepared, _stay)

    async def _ask_hooks(self, ready: Prepared) -> Prepared:
        """A hook may deny, add, or change the arguments; changed ones are judged again."""
        tool, changed = ready.tool, False
        for answer in await self._hooks.ask("pre_tool_use", tool_data(ready)):
            match answer:
                case Block(reason=reason):
                    return msgspec.structs.replace(ready, refusal=f"denied: {reason}")
                case Change(arguments=arguments) if arguments is not None and tool is not None:
                    ready, changed = checked(ready.call, tool, arguments), True
                case Add(text=text):
                    self._on_notice(NoticeItem(text, kind="hook"))
        if changed and ready.refusal is None:
            verdict = await self._judging.decide(ready)
            if isinstance(verdict, (Deny, Ask)):
                problem = f"a hook changed the call into one that is not allowed: {verdict.reason}"
                return msgspec.structs.replace(ready, refusal=f"error: {problem}")
        return ready

    async def _detachable(self, ready: Prepared, after: float | None) -> ToolResultItem:
        self._tasks.listen(ready.call)
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[None] = loop.create_future()

        def detach() -> None:
            if not asked.done():
                asked.set_result(None)

        work = loop.create_task(self._execute(ready, detach))
        try:
            either: list[asyncio.Future[Any]] = [work, asked]
            await asyncio.wait(either, timeout=after, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._tasks.let_go(ready.call)
            await end_all([work])
            raise
        if work.done():
            self._tasks.let_go(ready.call)
            return work.result()
        task_id = self._tasks.adopt(ready.call, ready.summary, work)
        self._teller.tell(ToolDetached, ready.call.id, task_id)
        text = RUNNING.format(id=task_id)
        return ToolResultItem(ready.call.id, ready.call.name, (Text(text),), display=text)

    async def _execute(self, ready: Prepared, detach: Callable[[], None]) -> ToolResultItem:
        """Write down the intent, run, contain."""
        tool, call = ready.tool, ready.call
        assert tool is not None, "only calls of known tools are run"
        context = self._context(call, detach)
        if tool.spec.effect != "pure":
            refused = await self._write_intent(ready, tool, context)
            if refused is not None:
                return self._finish(ready, refused)
        self._teller.tell(ToolStarted, call.id, call.name, ready.summary)
        limit = tool.spec.timeout or self._equipment.tool_timeout
        output = await self._containing.run(tool, ready.arguments, context, limit)
        if self._hooks.has("post_tool_use"):
            output = await self._ask_after(ready, output)
        return self._finish(ready, output)

    async def _write_intent(
        self, ready: Prepared, tool: Tool, context: ToolContext
    ) -> ToolOutput | None:
        evidence: dict[str, Any] = {}
        raw: str | None = None
        try:
            if ready.arguments != ready.call.arguments:
                raw = msgspec.json.encode(ready.arguments).decode()
            if tool.spec.effect == "verifiable":
                evidence = await tool.evidence(ready.arguments, context)
        except Exception as error:  # noqa: BLE001 - becomes the call's answer
            return ToolOutput(f"error: {words(error)}", is_error=True)
        await self._intend(
            Intent(ready.call.id, tool.spec.name, context.key, tool.spec.effect, evidence, raw)
        )
        return None

    async def _conclude(self, ready: Prepared, intent: Intent) -> ToolResultItem | None:
        """An earlier process meant to do this and may have: find out, or say so."""
        given = f" with {preview(intent.raw)}" if intent.raw is not None else ""
        evidence = f"{intent.tool} was about to run{given} (key {intent.key})"
        if intent.effect == "verifiable" and ready.tool is not None and ready.refusal is None:
            try:
                probe = await self._probe(ready.tool, ready, intent)
            except Exception as error:  # noqa: BLE001 - becomes the call's answer
                evidence = f"the check failed: {words(error)}"
            else:
                if probe.outcome == "not_done":
                    return None
                if probe.outcome == "done":
                    text = f"Done before an interruption. {probe.evidence}"
                    return self._finish(ready, ToolOutput(text))
                evidence = probe.evidence
        unsure = interrupted(ready.call, f"Interrupted, outcome unknown. Evidence: {evidence}")
        return self._finish(ready, ToolOutput(unsure.text, is_error=True))

    async def _probe(self, tool: Tool, ready: Prepared, intent: Intent) -> Probe:
        """Look for what was really run, whatever the call or a hook would have it be by now."""
        arguments = ready.arguments if intent.raw is None else parse_arguments(intent.raw)
        if isinstance(arguments, str):
            return Probe("unknown", f"what it was run with cannot be read: {arguments}")
        return await tool.probe(arguments, intent.evidence, self._context(ready.call, _stay))

    async def _ask_after(self, ready: Prepared, output: ToolOutput) -> ToolOutput:
        text = output.content if isinstance(output.content, str) else ""
        data = {**tool_data(ready), "tool_response": text, "is_error": output.is_error}
        for answer in await self._hooks.ask("post_tool_use", data):
            match answer:
                case Change(text=new) if new is not None:
                    output = msgspec.structs.replace(output, content=new)
                case Add(text=text):
                    self._on_notice(NoticeItem(text, kind="hook"))
        return output

    def _context(self, call: ToolCall, detach: Callable[[], None]) -> ToolContext:
        equipment, teller, tasks = self._equipment, self._teller, self._tasks

        def progress(text: str) -> None:
            if not self._containing.has_left(call.id):
                teller.tell(ToolProgress, call.id, text)
                tasks.note_output(call.id, text)

        def relay(event: Event) -> None:
            if not self._containing.has_left(call.id):
                teller.tell(ChildEvent, call.id, event)

        return ToolContext(
            teller.session_id,
            teller.turn_id,
            call.id,
            f"{teller.session_id}/{teller.turn_id}/{call.id}",
            progress,
            detach,
            relay,
            equipment.workspace,
            tasks,
            equipment.services,
            self._history,
        )

    def _finish(self, ready: Prepared, output: ToolOutput) -> ToolResultItem:
        """Cap, tell, answer."""
        limit = self._equipment.max_result_chars
        if ready.tool is not None:
            limit = min(limit, ready.tool.spec.max_result_chars)
        keep = self._keep if self._equipment.keep_output is not None else None
        result = capped(ready.call, output, limit, keep)
        self._tell_finished(result)
        return result

    def _keep(self, call_id: str, text: str) -> str:
        """Where the whole output is, or nothing if it could not be kept."""
        keep = self._equipment.keep_output
        try:
            return keep(call_id, text) if keep is not None else ""
        except Exception as error:  # noqa: BLE001 - the beginning of it is an answer, too
            self._teller.tell(Warning, f"an output could not be kept whole: {words(error)}")
            return ""

    def _renamed(self, result: ToolResultItem, ready: Prepared) -> ToolResultItem:
        """The result of a call that started early, perhaps under the id of a broken attempt."""
        if result.call_id == ready.call.id:
            return result
        result = msgspec.structs.replace(result, call_id=ready.call.id)
        self._teller.tell(ToolStarted, ready.call.id, ready.call.name, ready.summary)
        self._tell_finished(result)
        return result

    def _tell_finished(self, result: ToolResultItem) -> None:
        self._teller.tell(
            ToolFinished,
            result.call_id,
            result.name,
            preview(result.text),
            result.display,
            result.is_error,
            result.is_truncated,
        )


def _stay() -> None:
    """For calls that cannot go on in the background."""


def _reach(ready: Prepared) -> tuple[bool, frozenset[str], frozenset[str]]:
    """Whether it may run beside others, what it reads, what it writes."""
    if ready.refusal is not None or ready.tool is None:
        return True, frozenset(), frozenset()
    spec = ready.tool.spec
    try:
        touched = ready.tool.resources(ready.arguments)
    except Exception:  # noqa: BLE001 - a tool's own code: in doubt it runs alone
        return False, frozenset(), frozenset()
    return spec.concurrent or spec.effect == "pure", touched.reads, touched.writes
