"""Before a call is carried out: lookup, parse, validate, and who decides whether it may happen.

Nothing runs here. What is wrong with a call is its answer; what nobody has decided yet is asked.
Above stands calling.py, which carries out what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.hook import Block, Permit
from treadle.core.contracts.policy import Ask, Deny, Policy, Proposal, Verdict
from treadle.core.contracts.tool import Forwarding, Tool
from treadle.core.events import Notified, Warning
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.containing import words
from treadle.core.loop.steps import PendingApproval
from treadle.core.loop.telling import Teller
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.content import Arguments, ToolCall, parse_arguments
from treadle.core.transcript.entries import Intent, Ruling
from treadle.core.transcript.items import ToolResultItem


class Prepared(msgspec.Struct, frozen=True):
    """A call that was looked at: either ready to run, or already answered by `refusal`."""

    call: ToolCall
    tool: Tool | None = None
    arguments: Arguments = {}
    summary: str = ""
    refusal: str | None = None
    objection: str | None = None  # why it may not be run now, if it was not before a crash
    settled: ToolResultItem | None = None  # it ended before a crash, and waits for its place


class Judging:
    """Looks at calls, and asks who has to decide."""

    def __init__(self, policy: Policy, teller: Teller, toolbox: Toolbox, hooks: Hooks) -> None:
        self._policy = policy
        self._teller = teller
        self._toolbox = toolbox
        self._hooks = hooks

    async def prepare(
        self,
        calls: Sequence[ToolCall],
        rulings: dict[str, Ruling],
        intents: dict[str, Intent],
        settled: dict[str, ToolResultItem],
    ) -> tuple[list[Prepared], list[PendingApproval]]:
        """Look at every call, and at who must still be asked. Running it twice is harmless."""
        prepared: list[Prepared] = []
        asked: list[PendingApproval] = []
        for call in calls:
            if call.id in settled:
                prepared.append(Prepared(call, settled=settled[call.id]))
                continue
            ruling, intent = rulings.get(call.id), intents.get(call.id)
            ready = self.look_at(call, ruling)
            if ready.refusal is None and intent is None:
                ready = await self._judge(ready, ruling, asked)
            elif ready.refusal is None and intent is not None and intent.effect == "verifiable":
                ready = await self._judge_again(ready, ruling)
            prepared.append(ready)
        return prepared, asked

    def look_at(self, call: ToolCall, ruling: Ruling | None) -> Prepared:
        """Lookup, parse, validate."""
        tool = self._toolbox.find(call.name)
        if tool is None:
            return Prepared(call, refusal=self._toolbox.unknown(call.name))
        edited = ruling.raw if ruling is not None else None
        parsed = call.parsed if edited is None else parse_arguments(edited)
        if isinstance(parsed, str):
            return Prepared(call, tool, refusal=f"error: {parsed}. Nothing was run.")
        if hasattr(tool, "target") and isinstance(tool, Forwarding):
            meant = tool.target(parsed)
            if isinstance(meant, str):
                return Prepared(call, tool, refusal=f"error: {meant}")
            tool, parsed = meant
        return checked(call, tool, parsed)

    async def _judge(
        self, ready: Prepared, ruling: Ruling | None, asked: list[PendingApproval]
    ) -> Prepared:
        """Decide, or note that somebody has to."""
        if ruling is not None and ruling.decision == "deny":
            return msgspec.structs.replace(ready, refusal=f"denied: {ruling.reason}")
        verdict = await self.decide(ready)
        if isinstance(verdict, Deny):
            return msgspec.structs.replace(ready, refusal=f"denied: {verdict.reason}")
        if isinstance(verdict, Ask) and ruling is None:
            answers = await self._hooks.ask("permission_request", tool_data(ready))
            if answers and isinstance(answers[-1], Block):
                return msgspec.structs.replace(ready, refusal=f"denied: {answers[-1].reason}")
            if not (answers and isinstance(answers[-1], Permit)):
                asked.append(
                    PendingApproval(ready.call, ready.summary, verdict.reason, verdict.rules)
                )
        if isinstance(verdict, Ask) and ruling is not None and ruling.always:
            await self._remember(ready, ruling, verdict.rules)
        return ready

    async def _judge_again(self, ready: Prepared, ruling: Ruling | None) -> Prepared:
        """It may have happened before a crash. If it did not: may it happen now?"""
        asked: list[PendingApproval] = []
        judged = await self._judge(ready, ruling, asked)
        objection = judged.refusal or (f"denied: {asked[0].reason}" if asked else None)
        return msgspec.structs.replace(ready, objection=objection)

    async def _remember(self, ready: Prepared, ruling: Ruling, rules: tuple[str, ...]) -> None:
        if ruling.raw is not None and parse_arguments(ruling.raw) != ready.call.arguments:
            text = f"no rule was saved for {ready.summary}: it was edited after they were shown"
            self._teller.tell(Notified, text)
            return
        try:
            await self._policy.remember(self._proposal(ready), rules)
        except Exception as error:  # noqa: BLE001 - the call is allowed all the same
            self._teller.tell(Warning, f"the rule could not be saved: {words(error)}")

    async def decide(self, ready: Prepared) -> Verdict:
        try:
            return await self._policy.decide(self._proposal(ready))
        except Exception as error:  # noqa: BLE001 - becomes the call's answer
            return Deny(f"the policy failed ({type(error).__name__}: {error})")

    def _proposal(self, ready: Prepared) -> Proposal:
        assert ready.tool is not None, "only calls of known tools are judged"
        return Proposal(
            self._teller.session_id,
            ready.call.id,
            ready.tool.spec,
            ready.arguments,
            ready.summary,
        )


def checked(call: ToolCall, tool: Tool, arguments: Arguments) -> Prepared:
    """The call with these arguments, if the tool can do something with them."""
    try:
        problem = tool.check(arguments)
        summary = tool.summary(arguments)
    except Exception as error:  # noqa: BLE001 - becomes the call's answer
        problem, summary = f"{type(error).__name__}: {error}", ""
    if problem is not None:
        return Prepared(call, tool, arguments, refusal=f"error: {problem}")
    return Prepared(call, tool, arguments, summary)


def tool_data(ready: Prepared) -> dict[str, Any]:
    return {
        "tool_name": ready.tool.spec.name if ready.tool is not None else ready.call.name,
        "tool_input": ready.arguments,
        "call_id": ready.call.id,
        "summary": ready.summary,
    }
