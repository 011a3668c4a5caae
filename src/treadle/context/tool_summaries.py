"""One line about the last tool calls, written by a small model in the background.

A mutator that changes nothing: after a round of tools it starts a model call, whose line becomes
the event ToolsSummarized. The loop does not wait for it; the call passes the gateway, is limited in
time, and is cancelled when the turn ends. For hosts that show long work in few words; off unless it
is one of the agent's mutators.
"""

from __future__ import annotations

import asyncio

from treadle.context.compaction.summary import format_items
from treadle.core.contracts.model import Model, ModelOptions, ModelRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.events import ToolsSummarized
from treadle.core.session_cache import SessionCache
from treadle.core.transcript.items import ToolResultItem, to_user_item
from treadle.core.transcript.transcript import Transcript

INSTRUCTIONS = (
    "You watch an agent at work. Say in one line of at most ten words what its last tool calls did "
    "and found. Past tense, no introduction, no final period."
)
MAX_TOKENS = 60
MAX_CHARS = 4_000  # of the calls and results that the model is shown
MAX_LINE_CHARS = 120
TIMEOUT = 20.0


class _SessionSummaries:
    """The running call of a session, and the first item that no summary has covered."""

    def __init__(self) -> None:
        self.work: asyncio.Task[None] | None = None
        self.start = 0


class ToolSummaries:
    """Summarizes the rounds of a turn with `model`, one call at a time."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sessions = SessionCache(_SessionSummaries)

    @property
    def name(self) -> str:
        return "tool_summaries"

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"after_tool_result", "after_turn_ended"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        session = self._sessions[context.session_id]
        if context.point == "after_turn_ended":
            await _cancel(session)
            session.start = len(context.transcript)
        elif session.work is None or session.work.done():
            self._start(context, session)
        return None  # the view stays as it is

    def _start(self, context: MutationContext, session: _SessionSummaries) -> None:
        items = context.transcript[min(session.start, len(context.transcript)) :]
        call_ids = tuple([item.call_id for item in items if isinstance(item, ToolResultItem)])
        if not call_ids:
            return
        session.start = len(context.transcript)
        work = self._run(context, format_items(items, MAX_CHARS), call_ids)
        session.work = asyncio.get_running_loop().create_task(work)

    async def _run(self, context: MutationContext, shown: str, call_ids: tuple[str, ...]) -> None:
        request = ModelRequest(
            Transcript([to_user_item(f"<work>\n{shown}\n</work>")]),
            system=INSTRUCTIONS,
            options=ModelOptions(max_tokens=MAX_TOKENS),
            session_id=f"{context.session_id}/tool_summaries",  # its own cached prefix
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await context.call_model(request, "summary", self._model)
        except Exception:  # noqa: BLE001 - a summary is a convenience
            return
        line = " ".join(reply.text.split())[:MAX_LINE_CHARS]
        if line:
            context.emit(ToolsSummarized, line, call_ids)


async def _cancel(session: _SessionSummaries) -> None:
    work, session.work = session.work, None
    if work is not None and not work.done():
        work.cancel()
        await asyncio.wait([work])
