"""Child agents: how they are started, continued and resumed.

A child has its own history and session, at most its parent's permissions, and shares the parent's
budget. Its last answer, up to a limit, is the result of the call; a child that fails gives an error
result. Its events are relayed to the parent's observers; interrupting the parent stops it. A child
continues with a new message, and a call that a crash interrupted continues the child that it had
started: which message belongs to which call is in the metadata of the message.
The model starts children with task_tool.py; what a child may do is in child_settings.py.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, cast

import msgspec

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.child_agents import (
    ChildAgent,
    ChildAgents,
    NothingPrepared,
    PreparedChild,
    RunningChild,
)
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import STOPPED_KEY, ToolContext, ToolOutput
from treadle.core.errors import InputBlocked, SessionBusy, ToolError, error_text
from treadle.core.events import Event, TerminalReason, TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript.items import CALL_KEY, AssistantItem, UserItem
from treadle.core.transcript.pending import AskModel, RunTools, last_reply, pending
from treadle.core.transcript.recover import is_interrupted
from treadle.core.transcript.state import SessionState
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.lib.shielded import complete
from treadle.lib.text.text import plural

MAX_ANSWER_CHARS = 20_000
MAX_DEPTH = 2
MAX_CHILDREN = 8
AGENT_KEY = "agent"  # in the data of the result of a call that started a child: its name
EARLY_KEY = "ended_early"  # there, too: at a limit, say
QUEUED = (
    "{name} is at work; the message waits for its next step. Its report comes as before, and says "
    "if the message did not reach it"
)
UNREAD = "[{messages} that you sent did not reach it; continue it if they still matter]"

# "": no worktree; head: from the last commit; changes: with the uncommitted changes, too.
WorktreeStart = Literal["", "head", "changes"]


class ChildTask(msgspec.Struct, frozen=True):
    """What a call of the model wants of a child.

    `call_id` is the call that started the child, also when a later call continues it. `history` is
    what a new child begins with.
    """

    definition: AgentDefinition
    name: str
    prompt: str
    call_id: str
    worktree: WorktreeStart = ""
    is_continued: bool = False
    history: Transcript | None = None


class ChildStart(msgspec.Struct, frozen=True):
    """A child that is about to work. `id` is unique and stays the same when it is continued.

    `model`, `source` and `policy` are the parent's, the model that of its run, the source without
    what children do not get. `parent_id` is the parent's session, `earlier_usage` what the child
    used before. `is_done`: it has finished, and only its end is missing. `gates` are the limits of
    the parent and its run, `options` those of the run.
    """

    task: ChildTask
    id: str
    depth: int
    model: Model
    source: ToolSource
    policy: Policy
    parent_id: str = ""
    earlier_usage: Usage = Usage()
    is_done: bool = False
    gates: tuple[Gate, ...] = ()
    options: ModelOptions | None = None


class ChildAnswer(msgspec.Struct, frozen=True):
    """The last message of a child. `is_complete`: it ended by itself, not at a limit. `is_stopped`:
    it was interrupted. `is_missing`: it ended before it said anything."""

    text: str
    is_complete: bool
    is_stopped: bool = False
    is_missing: bool = False


PrepareChild = Callable[[ChildStart], Awaitable[PreparedChild]]
MakeChild = Callable[[ChildStart, Mapping[str, Any]], ChildAgent]
MakeStart = Callable[[ChildTask, str, int, ChildAgents], ChildStart]
# (parent session, call id) -> where the child is stored: the same log when asked again, so that a
# child can be continued.
OpenStore = Callable[[str, str], Awaitable[Store | None]]


class EventRelay(BaseObserver):
    """Passes a child's events to the parent's observers."""

    def __init__(self, relay: Callable[[Event], None]) -> None:
        self._relay = relay

    def on_event(self, event: Event) -> None:
        self._relay(event)


class SubagentRunner:
    """Starts children, up to a nesting depth and a number at once, each with its own store."""

    def __init__(
        self,
        make_start: MakeStart,
        make_child: MakeChild,
        *,
        depth: int = 0,
        max_depth: int = MAX_DEPTH,
        max_children: int = MAX_CHILDREN,
        open_store: OpenStore | None = None,
        prepare: PrepareChild | None = None,
    ) -> None:
        self._make_start = make_start
        self._make_child = make_child
        self.depth = depth
        self._max_depth = max_depth
        self._max_children = max_children
        self._open_store = open_store
        self._prepare = prepare

    async def __call__(self, task: ChildTask, context: ToolContext[Any]) -> ToolOutput:
        """Run a child to its end and return its last answer. A child at work gets the message; one
        that is ending reads it in another turn."""
        children: ChildAgents = context.children
        while (other := children.running.get(task.call_id)) is not None:
            if not task.is_continued:
                raise ToolError(f"the agent {task.name} is at work already; wait for it")
            await other.has_begun.wait()
            if other.send(task.prompt, {CALL_KEY: context.call_id}):
                return ToolOutput(QUEUED.format(name=task.name))
            await other.has_ended.wait()
        if self.depth >= self._max_depth:
            raise ToolError(
                f"agents may be nested at most {plural(self._max_depth, 'level')} deep; "
                "do this work yourself"
            )
        if len(children.running) >= self._max_children:
            raise ToolError(
                f"{plural(len(children.running), 'agent')} already running, the most allowed; "
                "wait for one to end"
            )
        running = children.restored.pop(task.call_id, None) or RunningChild()
        children.running[task.call_id] = running
        try:
            return await self._run_call(task, running, context)
        finally:
            del children.running[task.call_id]
            running.end()

    def has_place(self, context: ToolContext[Any]) -> bool:
        """Whether we store the children of this session: one without an entry has done nothing."""
        return self._open_store is None and bool(context.children.is_stored)

    async def is_resumable(self, task: ChildTask, context: ToolContext[Any]) -> bool:
        """Whether the child of an interrupted call has a session, with which it can continue."""
        if task.call_id in context.children.restored:
            return True
        return await self.read_state(task, context) is not None

    async def read_state(self, task: ChildTask, context: ToolContext[Any]) -> SessionState | None:
        """What the session of a child holds; None if it has none."""
        store = await self._open_store_of(task, context)
        if store is None:
            return None
        from treadle.sessions.open_store import load_state

        try:
            return None if store.is_empty else await load_state(store)
        finally:
            await store.aclose()

    async def restore(self, task: ChildTask, context: ToolContext[Any]) -> list[ApprovalRequest]:
        """The approvals that the child of an interrupted call, and its own children, wait for. With
        any, or with a call in doubt, it stays open for the answers until the call continues."""
        running, requests, is_open = RunningChild(), list[ApprovalRequest](), False
        if context.children.reads_only and self._prepare is not None:
            return requests  # to prepare a child may change something, such as a worktree
        try:
            state = await self._load(task, running, context)
            move = None if state is None else pending(state.transcript)
            if running.store is not None and isinstance(move, RunTools):
                driver = await self._start(task, running, context, state)
                await driver.restore_approvals()
                requests = _make_requests(driver)
                is_open = bool(requests or driver.doubts)
        finally:
            if is_open:
                context.children.restored[task.call_id] = running
            else:
                await complete(running.aclose())
        return requests

    async def _run_call(
        self, task: ChildTask, running: RunningChild, context: ToolContext[Any]
    ) -> ToolOutput:
        try:
            answer = await self._answer(task, running, context)
            prepared, running.prepared = running.prepared, None
            assert prepared is not None, "it is prepared before it answers"
            notes = _describe_unread(running), await prepared.finish(succeeded=answer.is_complete)
            data: dict[str, Any] = {AGENT_KEY: task.name}
            if answer.is_stopped:
                data[STOPPED_KEY] = True
            if not answer.is_complete:
                data[EARLY_KEY] = True
            text = _join(answer.text, *notes)
            return ToolOutput(text, is_error=answer.is_missing, data=data)
        except Exception as error:  # a child that fails in any way is an error result
            prepared, running.prepared, note = running.prepared, None, ""
            if prepared is not None:
                note = await prepared.finish(succeeded=False)
            text = error_text(error)
            text = text if isinstance(error, ToolError) else f"the agent failed: {text}"
            failure = ToolError(_join(text, _describe_unread(running), note))
            failure.data = {AGENT_KEY: task.name} if running.driver is not None else None
            raise failure from error
        finally:
            context.children.keep(task.call_id, running)
            await running.aclose()

    async def _answer(
        self, task: ChildTask, running: RunningChild, context: ToolContext[Any]
    ) -> ChildAnswer:
        """What the child answers to the call; it may have done so before a crash."""
        ended: TurnResult | None = None
        if (driver := running.driver) is None:
            state = await self._load(task, running, context)
            if task.is_continued and state is None:
                raise ToolError(f"the agent {task.name} has no session here; start a new one")
            if state is not None and _has_message(state, context.call_id):
                ended = _find_ended_turn(state)
            driver = await self._start(task, running, context, state, ended)
        if _has_message(driver.state, context.call_id):
            if ended is None:
                driver.retry()
        else:
            driver.submit(task.prompt, metadata={**context.metadata, CALL_KEY: context.call_id})
        running.begin(driver)
        try:
            return await self._run(running, driver, context, ended)
        finally:
            running.is_at_work = False

    async def _load(
        self, task: ChildTask, running: RunningChild, context: ToolContext[Any]
    ) -> SessionState | None:
        """What the session of the child holds, which is open from here on; None if it is new."""
        siblings: ChildAgents = context.children
        running.store = store = await self._open_store_of(task, context)
        running.children = siblings.find_children(task.call_id, store)
        running.children.wrap_model = siblings.wrap_model
        running.children.run_options = siblings.run_options
        if store is None:
            kept = siblings.get_kept(task.call_id)
            return None if kept is None else kept.state
        from treadle.sessions.open_store import load_state

        state = await load_state(store)
        return state if len(state.transcript) or state.queued else None

    async def _open_store_of(self, task: ChildTask, context: ToolContext[Any]) -> Store | None:
        siblings: ChildAgents = context.children
        is_known = _make_known_check(context) if task.is_continued else None
        try:
            if self._open_store is not None:
                return await self._open_store(context.session_id, task.call_id)
            return await siblings.open_store(context.session_id, task.call_id, is_known)
        except SessionBusy as error:
            raise ToolError(f"the agent is at work elsewhere: {error}") from error

    async def _start(
        self,
        task: ChildTask,
        running: RunningChild,
        context: ToolContext[Any],
        state: SessionState | None,
        ended: TurnResult | None = None,
    ) -> Driver:
        start, prepared = await self._prepare_child(task, running, context, state, ended)
        running.agent = self._make_child(start, prepared.changes)
        running.driver = running.agent.start(
            state=state,
            store=running.store,
            deps=context.deps,
            children=running.children,
            history=task.history if state is None else None,
        )
        return running.driver

    async def _prepare_child(
        self,
        task: ChildTask,
        running: RunningChild,
        context: ToolContext[Any],
        state: SessionState | None,
        ended: TurnResult | None,
    ) -> tuple[ChildStart, PreparedChild]:
        child_id = make_child_id(context.session_id, task)
        start = self._make_start(task, child_id, self.depth + 1, context.children)
        earlier = state.usage + state.child_usage if state is not None else Usage()
        start = msgspec.structs.replace(
            start,
            parent_id=context.session_id,
            gates=context.children.gates,
            options=context.children.run_options,
            earlier_usage=earlier,
            is_done=ended is not None,
        )
        running.prepared = (
            NothingPrepared() if self._prepare is None else await self._prepare(start)
        )
        return start, running.prepared

    async def _run(
        self,
        running: RunningChild,
        driver: Driver,
        context: ToolContext[Any],
        ended: TurnResult | None,
    ) -> ChildAnswer:
        child = running.agent
        assert child is not None, "its driver is its agent's"
        driver.watch(EventRelay(context.relay_event))
        driver.stop_with(context.is_cancelled)
        turn, text = await child._answer_parent(driver, context.ask_host, ended)
        while turn.reason == "end_turn" and driver.queued_messages:  # sent while the turn ended
            with contextlib.suppress(InputBlocked):  # a hook refused them: the answer stays
                turn, text = await child._answer_parent(driver, context.ask_host)
        if turn.error is not None:
            raise ToolError(f"the agent failed: {turn.error} (session {driver.session_id})")
        return _make_answer(text, turn.reason, turn.detail, driver.session_id)


def make_child_id(parent_id: str, task: ChildTask) -> str:
    """The id of a child, the same whenever it is computed; part of file names and branches."""
    digest = make_child_digest(parent_id, task.call_id)
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in task.name.lower())
    return f"{plain.strip('-')[:40] or 'agent'}-{digest}"


def make_child_digest(parent_id: str, call_id: str) -> str:
    """The last part of the id of the child that a call starts."""
    return hashlib.sha256(f"{parent_id}/{call_id}".encode()).hexdigest()[:8]


def _make_requests(driver: Driver) -> list[ApprovalRequest]:
    """The approvals of the driver and its children, a request for each session."""
    by_session: dict[str, list[PendingApproval]] = {}
    for one in driver.approvals:
        by_session.setdefault(one.session_id, []).append(one)
    return [
        ApprovalRequest(tuple(approvals), _make_callbacks(driver, session_id))
        for session_id, approvals in by_session.items()
    ]


def _make_callbacks(driver: Driver, session_id: str) -> ApprovalCallbacks:
    return ApprovalCallbacks(
        lambda call_id, arguments, always: driver.approve(
            call_id, arguments=arguments, always=always, session_id=session_id
        ),
        lambda call_id, reason, decided_by: driver.deny(call_id, reason, session_id=session_id),
        lambda: tuple(one.call.id for one in driver.approvals if one.session_id == session_id),
    )


def _make_known_check(context: ToolContext[Any]) -> Callable[[UserItem], bool]:
    """Whether an earlier call of the history sent a message to a child. By its text, too: a session
    and its fork may use the same ids for their later calls."""
    replies = [item for item in context.history() if isinstance(item, AssistantItem)]
    calls = {call.id: call for reply in replies for call in reply.calls}
    calls.pop(context.call_id, None)

    def is_known(message: UserItem) -> bool:
        call = calls.get(str((message.metadata or {})[CALL_KEY]))
        return call is not None and (call.arguments or {}).get("prompt") == message.text

    return is_known


def _has_message(view: SessionState, call_id: str) -> bool:
    """Whether the message of this call has reached the child."""
    items = (*view.full_history, *(one.item for one in view.queued))
    return any(
        isinstance(item, UserItem) and (item.metadata or {}).get(CALL_KEY) == call_id
        for item in items
    )


def _find_ended_turn(view: SessionState) -> TurnResult | None:
    """The last turn, if the child has finished it. One that was interrupted, while the process
    ended, it has not."""
    if view.queued or view.turn or isinstance(pending(view.transcript), (AskModel, RunTools)):
        return None
    end = view.last_end
    if end is None or is_interrupted(view.transcript) or last_reply(view.transcript) is None:
        return None
    return TurnResult(end.turn_id, cast("TerminalReason", end.reason), tuple(view.transcript))


def _describe_unread(running: RunningChild) -> str:
    count = running.withdraw_unread()
    return UNREAD.format(messages=plural(count, "message")) if count else ""


def _join(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _make_answer(text: str, reason: str, detail: str, session_id: str) -> ChildAnswer:
    is_complete, is_missing = reason == "end_turn", reason != "end_turn" and not text.strip()
    text = text.strip() or "(the agent ended without an answer)"
    if reason == "aborted":
        text = f"[stopped before it was done{f': {detail}' if detail else ''}]\n{text}"
    elif reason != "end_turn":
        text = f"[ended early: {f'{reason}: {detail}' if detail else reason}]\n{text}"
    if len(text) > MAX_ANSWER_CHARS:
        note = f"... [truncated, {len(text)} chars total; session {session_id}]"
        text = text[:MAX_ANSWER_CHARS] + note
    return ChildAnswer(text, is_complete, reason == "aborted", is_missing)
