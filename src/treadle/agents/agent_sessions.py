"""`agent.sessions`: the sessions of an agent's store, without opening them.

    for one in await agent.sessions.list(prefix="order-"):
        print(one.id, one.state, one.title)

Uses sessions/session_place.py. A session is continued with `agent.session(id)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import msgspec

from treadle.agents.child_agents import ChildAgents, find_child_location
from treadle.agents.subagents import AGENT_KEY
from treadle.core.argument_checks import (
    TEXT,
    Expected,
    check,
    number,
    one_of,
    optional,
    whole_number,
)
from treadle.core.errors import ConfigError
from treadle.core.events import TerminalReason
from treadle.core.steps import Doubt, PendingApproval, make_doubt
from treadle.core.transcript.entries import Entry, Intent, ItemAdded
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.recover import recovered
from treadle.core.transcript.state import QueuedMessage, SessionState, fold_entries
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.sessions.open_store import (
    StoreLocation,
    check_session_id,
    find_session_place,
    make_missing_error,
    read_session,
)
from treadle.sessions.session_place import SessionPlace, SessionQuery
from treadle.sessions.summaries import UNREADABLE, SessionSummary

if TYPE_CHECKING:
    from treadle.core.loop.driver import Driver
    from treadle.sessions.log.hash_chain import ChainReport

_TIME = optional(number("a time in seconds, as time.time() gives it", math.isfinite))
_STATES = (
    *("running", "interrupted", "suspended", "done", "empty", UNREADABLE),
    *(one for one in get_args(TerminalReason) if one != "end_turn"),
)
_STATE = Expected(
    lambda value: isinstance(value, str) and value.partition(" (")[0] in _STATES,
    f"one of {', '.join(_STATES)}",
)
_FORMATS = one_of("markdown", "json")


class StoredSession(msgspec.Struct, frozen=True):
    """A session in a list. `state` is "running" (its turn is not over, and a process has it open),
    "interrupted" (its turn is not over, and no process has it), "suspended (approval)" or another
    reason, "done", or why its last turn ended. The times are seconds, as time.time() gives them."""

    id: str
    title: str
    state: str
    created: float
    updated: float
    turns: int
    usage: Usage
    is_open: bool

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost


class SessionSnapshot(StoredSession, frozen=True):
    """What a session holds at a moment. `approvals` are the calls that wait for a decision,
    `doubts` those whose outcome is not known: after a crash, none while a process has the session
    open; and, marked `is_answered`, after a timeout or an interruption of an irreversible call.
    Both have those of child agents as well."""

    transcript: Transcript
    history: Transcript
    approvals: tuple[PendingApproval, ...]
    doubts: tuple[Doubt, ...]
    queued_messages: tuple[QueuedMessage, ...]


class _Starter(Protocol):
    """What is used of an agent."""

    def start(
        self, *, deps: object, state: SessionState, session_id: str, children: ChildAgents
    ) -> Driver: ...


class _FoundSession(msgspec.Struct, frozen=True):
    place: SessionPlace
    summary: SessionSummary
    entries: Sequence[Entry]


class AgentSessions:
    """The sessions of one store. All of it can be used while they are open elsewhere."""

    def __init__(self, agent: _Starter, location: StoreLocation | None) -> None:
        self._agent = agent
        self._location = location

    async def list(
        self,
        *,
        prefix: str = "",
        state: str | None = None,
        since: float | None = None,
        limit: int = 50,
        after: StoredSession | None = None,
    ) -> list[StoredSession]:
        """The sessions, the one with the newest entry first. `prefix` is that of their ids, `since`
        the time of their last entry, `state` one word of theirs, such as "suspended". `after`, the
        last session of a list, gives the next page."""
        check("prefix", prefix, TEXT)
        check("state", state, optional(_STATE))
        check("since", since, _TIME)
        check("limit", limit, whole_number(1))
        check("after", after, optional(_SESSION))
        place = self._find_place("listed")
        found: list[StoredSession] = []
        end = (math.inf, "") if after is None else (after.updated, after.id)
        while True:
            page = await place.list_page(SessionQuery("", prefix, since or 0.0, *end, limit))
            for summary in page:
                one = None if summary.is_child else await _describe(place, summary)
                if one is not None and state in (None, one.state, one.state.partition(" (")[0]):
                    found.append(one)
                    if len(found) == limit:
                        return found
            if len(page) < limit:
                return found
            end = (page[-1].updated, page[-1].id)

    async def exists(self, session_id: str) -> bool:
        """Whether a session with this id has begun."""
        place = self._find_place("looked for")
        return await place.find(check_session_id(session_id)) is not None

    async def read(self, session_id: str, *, deps: object = None) -> SessionSnapshot:
        """What the session holds. SessionNotFound if there is none. If calls may wait for a
        decision, the tools are opened and the policy and the hooks are asked, with `deps`."""
        found = await self._find(session_id)
        session, state = await _describe(found.place, found.summary), fold_entries(found.entries)
        approvals, doubts = await self._find_open_calls(session_id, recovered(state), deps)
        unknown = await _find_unknown(session_id, self._location, found.entries)
        return SessionSnapshot(
            **{**msgspec.structs.asdict(session), "usage": state.usage + state.child_usage},
            transcript=state.transcript,
            history=state.full_history,
            approvals=approvals,
            doubts=(*(() if session.is_open else doubts), *unknown),
            queued_messages=state.queued,
        )

    async def _find_open_calls(
        self, session_id: str, state: SessionState, deps: object
    ) -> tuple[tuple[PendingApproval, ...], tuple[Doubt, ...]]:
        if not isinstance(pending(state.transcript), RunTools):
            return (), ()
        location = find_child_location(session_id, self._location)
        children = ChildAgents(location, reads_only=True)
        driver = self._agent.start(deps=deps, state=state, session_id=session_id, children=children)
        try:
            await driver.restore_approvals()
            return driver.approvals, driver.doubts
        finally:
            await children.aclose()
            await driver.aclose()

    async def delete(self, session_id: str) -> None:
        """Delete a session and those of its child agents, for ever. SessionNotFound if there is
        none, SessionBusy if it is open, StoreError if it has forks that read its entries."""
        found = await self._find(session_id)
        await found.place.remove(session_id)
        await _remove_children(found.place, session_id, found.entries)

    async def export(
        self, session_id: str, format: Literal["markdown", "json"] = "markdown"
    ) -> str:
        """The whole session as a text, without the secrets of this process."""
        from treadle.sessions.export import render_entries

        check("format", format, _FORMATS)
        found = await self._find(session_id)
        return render_entries(found.summary, found.entries, format)

    async def verify(self, session_id: str) -> ChainReport:
        """Whether the log is as it was written: its `state` is "intact", "broken" (`problem` says
        where), or "unsigned" if an earlier version wrote it. SessionNotFound if there is none."""
        found = await self._find(session_id)
        return await found.place.verify(session_id)

    async def _find(self, session_id: str) -> _FoundSession:
        place = self._find_place("read")
        summary = await place.find(check_session_id(session_id))
        entries = () if summary is None else await place.read(session_id)
        if summary is None or not entries:
            raise make_missing_error(session_id)
        return _FoundSession(place, summary, entries)

    def _find_place(self, done: str) -> SessionPlace:
        place = find_session_place(self._location)
        if place is None:
            raise ConfigError(
                f"sessions of an own store cannot be {done} here: only your code knows where they "
                "are; give a folder, a database file or postgresql://… as the store"
            )
        return place


_SESSION = Expected(lambda value: isinstance(value, StoredSession), "a session of a list")


async def _describe(place: SessionPlace, summary: SessionSummary) -> StoredSession:
    from treadle.sessions.library import describe_last_turn

    is_open = await place.is_open(summary.id)
    is_running = is_open and summary.state == "open"
    return StoredSession(
        summary.id,
        summary.title,
        "running" if is_running else describe_last_turn(summary),
        summary.created,
        summary.updated,
        summary.turns,
        summary.total_usage,
        is_open,
    )


async def _find_unknown(
    session_id: str, location: StoreLocation | None, entries: Sequence[Entry]
) -> list[Doubt]:
    """The calls, also of child agents that have ended, whose result says that they may have had
    their effect."""
    from treadle.sessions.children import make_child_session_id

    intents = {one.call_id: one for one in entries if isinstance(one, Intent)}
    items = [one.item for one in entries if isinstance(one, ItemAdded)]
    calls = {call.id: call for one in items if isinstance(one, AssistantItem) for call in one.calls}
    results = [one for one in items if isinstance(one, ToolResultItem) and one.call_id in calls]
    found: list[Doubt] = []
    for result in results:
        intent, call = intents.get(result.call_id), calls[result.call_id]
        if intent is None or result.outcome not in ("unknown", "interrupted"):
            pass
        elif intent.effect == "irreversible":
            found.append(make_doubt(call, intent, session_id, is_answered=True))
        if AGENT_KEY in (result.data or {}):
            child_id = make_child_session_id(session_id, call.id)
            place = find_child_location(session_id, location)
            child = await read_session(place, child_id)
            found += await _find_unknown(child_id, place, child)
    return found


async def _remove_children(place: SessionPlace, session_id: str, entries: Sequence[Entry]) -> None:
    """In a database they are beside their parent."""
    from treadle.sessions.children import make_child_session_id

    items = [entry.item for entry in entries if isinstance(entry, ItemAdded)]
    calls = [call for item in items if isinstance(item, AssistantItem) for call in item.calls]
    for call in calls:
        child_id = make_child_session_id(session_id, call.id)
        child = await place.read(child_id)
        if child:
            await place.remove(child_id)
            await _remove_children(place, child_id, child)
