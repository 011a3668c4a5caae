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
from typing import Any, Literal, Protocol

import msgspec

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.child_agents import ChildAgents, RunningChild
from treadle.agents.run import DecideApprovals
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import STOPPED_KEY, ToolContext, ToolOutput
from treadle.core.errors import InputBlocked, SessionBusy, ToolError, error_text
from treadle.core.events import Event, TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import UserInput
from treadle.core.transcript.items import Metadata, UserItem
from treadle.core.transcript.pending import AskModel, RunTools, last_reply, pending
from treadle.core.transcript.recover import is_interrupted
from treadle.core.transcript.state import SessionState
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import plural
from treadle.sessions.open_store import load_state

MAX_ANSWER_CHARS = 20_000
MAX_DEPTH = 2
MAX_CHILDREN = 8
AGENT_KEY = "agent"  # in the data of the result of a call that started a child: its name
CALL_KEY = "task_call"  # in the metadata of a message to a child: the call that sent it
QUEUED = (
    "{name} is at work; the message waits for its next step. Its report comes as before, and says "
    "if the message did not reach it"
)
UNREAD = "[{messages} that you sent did not reach it; continue it if they still matter]"

# "": no worktree; head: from the last commit; changes: with the uncommitted changes, too.
WorktreeStart = Literal["", "head", "changes"]


class ChildAgent(Protocol):
    """What the runner needs of a child."""

    def start(
        self,
        prompt: UserInput | None = None,
        *,
        deps: object = None,
        state: SessionState | None = None,
        store: Store | None = None,
        metadata: Metadata | None = None,
        children: ChildAgents | None = None,
    ) -> Driver: ...

    async def finish_turn(self, driver: Driver, decide: DecideApprovals) -> TurnResult: ...

    async def aclose_owned_model(self) -> None: ...


class ChildTask(msgspec.Struct, frozen=True):
    """What a call of the model wants of a child.

    `call_id` is the call that started the child, also when a later call continues it.
    """

    definition: AgentDefinition
    name: str
    prompt: str
    call_id: str
    worktree: WorktreeStart = ""
    is_continued: bool = False


class ChildStart(msgspec.Struct, frozen=True):
    """A child that is about to work. `id` is unique and stays the same when it is continued.

    `model`, `source` and `policy` are the parent's, the source without what children do not get.
    `parent_id` is the parent's session, `earlier_usage` what the child used before. `is_done`: it
    has finished, and only its end is missing.
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


class ChildAnswer(msgspec.Struct, frozen=True):
    """The last message of a child. `is_complete`: it ended by itself, not at a limit. `is_stopped`:
    it was interrupted."""

    text: str
    is_complete: bool
    is_stopped: bool = False


class PreparedChild(Protocol):
    """What a program provides for one child; made by the `prepare_child` of an agent.

    `changes` are settings of the child that differ from its parent's; "source" among them replaces
    the tools. `finish` is called when the child has ended, and returns a text for the parent about
    its files, or ""; `abandon` instead of it when the child was interrupted. Both release what the
    child used.
    """

    @property
    def changes(self) -> Mapping[str, Any]: ...

    async def finish(self, *, succeeded: bool) -> str: ...

    async def abandon(self) -> None: ...


PrepareChild = Callable[[ChildStart], Awaitable[PreparedChild]]
MakeChild = Callable[[ChildStart, Mapping[str, Any]], ChildAgent]
MakeStart = Callable[[ChildTask, str, int], ChildStart]
# (parent session, call id) -> where the child is stored: the same log when asked again, so that a
# child can be continued.
OpenStore = Callable[[str, str], Awaitable[Store | None]]


class NothingPrepared:
    """A child that works with what its parent has."""

    changes: Mapping[str, Any] = {}

    async def finish(self, *, succeeded: bool) -> str:
        return ""

    async def abandon(self) -> None:
        return None


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
        running = children.running[task.call_id] = RunningChild()
        try:
            return await self._open_and_run(task, running, context)
        finally:
            del children.running[task.call_id]
            running.end()

    async def is_resumable(self, task: ChildTask, context: ToolContext[Any]) -> bool:
        """Whether the child of an interrupted call has a session, with which it can continue."""
        store = await self._open(task, context)
        if store is None:
            return False
        try:
            return not store.is_empty
        finally:
            await store.aclose()

    async def _open(self, task: ChildTask, context: ToolContext[Any]) -> Store | None:
        open_store: OpenStore = self._open_store or context.children.open_store
        try:
            return await open_store(context.session_id, task.call_id)
        except SessionBusy as error:
            raise ToolError(f"the agent is at work elsewhere: {error}") from error

    async def _open_and_run(
        self, task: ChildTask, running: RunningChild, context: ToolContext[Any]
    ) -> ToolOutput:
        store = await self._open(task, context)
        siblings: ChildAgents = context.children
        running.children = siblings.find_children(task.call_id, store)
        driver: Driver | None = None
        prepared: PreparedChild | None = None
        try:
            view = await _load_state(store, siblings, task.call_id)
            if task.is_continued and view is None:
                raise ToolError(f"the agent {task.name} has no session here; start a new one")
            is_recovered = view is not None and _has_message(view, context.call_id)
            answer = _find_answer(view) if is_recovered and view is not None else None
            start = self._make_child_start(task, context, view, is_done=answer is not None)
            prepared = NothingPrepared()
            if self._prepare is not None:
                prepared = await self._prepare(start)
            if answer is None:
                child = self._make_child(start, prepared.changes)
                children = running.children
                driver = _start(child, task, context, store, view, children, is_recovered)
                running.begin(driver)
                try:
                    answer = await self._run(child, running, context)
                finally:
                    running.is_at_work = False
                    await child.aclose_owned_model()
            ended, prepared = prepared, None
            notes = _describe_unread(running), await ended.finish(succeeded=answer.is_complete)
            data: dict[str, Any] = {AGENT_KEY: task.name}
            if answer.is_stopped:
                data[STOPPED_KEY] = True
            return ToolOutput(_join(answer.text, *notes), data=data)
        except Exception as error:  # a child that fails in any way is an error result
            note = ""
            if prepared is not None:
                failed, prepared = prepared, None
                note = await failed.finish(succeeded=False)
            text = error_text(error)
            text = text if isinstance(error, ToolError) else f"the agent failed: {text}"
            failure = ToolError(_join(text, _describe_unread(running), note))
            failure.data = {AGENT_KEY: task.name} if driver is not None else None
            raise failure from error
        finally:
            if prepared is not None:
                await prepared.abandon()
            if driver is not None:
                if store is None:
                    siblings.keep(task.call_id, running)
                await driver.aclose()
            elif store is not None:
                await store.aclose()

    def _make_child_start(
        self,
        task: ChildTask,
        context: ToolContext[Any],
        view: SessionState | None,
        *,
        is_done: bool,
    ) -> ChildStart:
        start = self._make_start(task, make_child_id(context.session_id, task), self.depth + 1)
        earlier = view.usage + view.child_usage if view is not None else Usage()
        return msgspec.structs.replace(
            start, parent_id=context.session_id, earlier_usage=earlier, is_done=is_done
        )

    async def _run(
        self, child: ChildAgent, running: RunningChild, context: ToolContext[Any]
    ) -> ChildAnswer:
        driver = running.driver
        driver.watch(EventRelay(context.relay_event))
        driver.stop_with(context.is_cancelled)
        turn = await child.finish_turn(driver, context.ask_host)
        while turn.reason == "end_turn" and driver.queued_messages:  # sent while the turn ended
            with contextlib.suppress(InputBlocked):  # a hook refused them: the answer stays
                turn = await child.finish_turn(driver, context.ask_host)
        if turn.error is not None:
            raise ToolError(f"the agent failed: {turn.error} (session {driver.session_id})")
        return _make_answer(turn.text, turn.reason, turn.detail, driver.session_id)


def make_child_id(parent_id: str, task: ChildTask) -> str:
    """The id of a child, the same whenever it is computed; part of file names and branches."""
    digest = make_child_digest(parent_id, task.call_id)
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in task.name.lower())
    return f"{plain.strip('-')[:40] or 'agent'}-{digest}"


def make_child_digest(parent_id: str, call_id: str) -> str:
    """The last part of the id of the child that a call starts."""
    return hashlib.sha256(f"{parent_id}/{call_id}".encode()).hexdigest()[:8]


def _start(
    child: ChildAgent,
    task: ChildTask,
    context: ToolContext[Any],
    store: Store | None,
    state: SessionState | None,
    children: ChildAgents,
    is_recovered: bool,
) -> Driver:
    """The driver of the child with the message, or with the turn that a crash left open."""
    message: dict[str, Any] = {"prompt": task.prompt, "metadata": {CALL_KEY: context.call_id}}
    given = {} if is_recovered else message
    driver = child.start(state=state, store=store, deps=context.deps, children=children, **given)
    if is_recovered:
        driver.retry()
    return driver


async def _load_state(
    store: Store | None, siblings: ChildAgents, call_id: str
) -> SessionState | None:
    """What the session of the child holds; None if it is new."""
    if store is None:
        kept = siblings.get_kept(call_id)
        return None if kept is None else kept.state
    state = await load_state(store)
    return state if len(state.transcript) or state.queued else None


def _has_message(view: SessionState, call_id: str) -> bool:
    """Whether the message of this call has reached the child."""
    items = (*view.full_history, *(one.item for one in view.queued))
    return any(
        isinstance(item, UserItem) and (item.metadata or {}).get(CALL_KEY) == call_id
        for item in items
    )


def _find_answer(view: SessionState) -> ChildAnswer | None:
    """The last answer, if the child has finished its last turn. One that was interrupted, while
    the process ended, has not."""
    if view.queued or view.turn or isinstance(pending(view.transcript), (AskModel, RunTools)):
        return None
    if is_interrupted(view.transcript):
        return None
    reply = last_reply(view.transcript)
    reason = view.last_end.reason if view.last_end is not None else ""
    return _make_answer(reply.text, reason, "", "") if reply is not None else None


def _describe_unread(running: RunningChild) -> str:
    count = running.withdraw_unread()
    return UNREAD.format(messages=plural(count, "message")) if count else ""


def _join(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _make_answer(text: str, reason: str, detail: str, session_id: str) -> ChildAnswer:
    text = text.strip() or "(the agent ended without an answer)"
    if reason == "aborted":
        text = f"[stopped before it was done{f': {detail}' if detail else ''}]\n{text}"
    elif reason != "end_turn":
        text = f"[ended early: {f'{reason} {detail}'.strip()}]\n{text}"
    if len(text) > MAX_ANSWER_CHARS:
        note = f"... [truncated, {len(text)} chars total; session {session_id}]"
        text = text[:MAX_ANSWER_CHARS] + note
    return ChildAnswer(text, reason == "end_turn", reason == "aborted")
