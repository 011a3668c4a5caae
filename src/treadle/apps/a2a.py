"""Agents that speak A2A: an agent as a server of that protocol, over the server of its SDK.

    card = make_card("Cashier", "Pays bills.", "https://agents.example.org/cashier")
    app = Starlette(routes=make_routes(agent, card))

A context is a session, which is stored; a task is a run of it. A call that needs an approval makes
the task input-required, and the next message of the task answers it. docs/front-ends.md tells it to
the author of a client. Above: your server.

    submitted  working (artifact*)  completed | failed | canceled | rejected
                  input-required  working …
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, cast, overload

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.run import Result
from treadle.agents.session import Session
from treadle.agents.stream import Stream, find_text, unwrap_handoff
from treadle.apps.delivery import (
    ANSWER_SCHEMA,
    answer_approval,
    describe_failure,
    find_known_ids,
    make_approval_id,
    make_metadata,
)
from treadle.core.errors import LoopError, SessionBusy, TreadleError
from treadle.core.events import ReplyDiscarded, RequestStarted
from treadle.core.extras import require_extra
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Document, Image, Text, UserContent
from treadle.core.transcript.items import AssistantItem, UserItem
from treadle.core.type_variables import DepsT
from treadle.tools.function import to_json_value

require_extra("a2a")
from a2a import helpers, types  # noqa: E402 - the sentence about the extra comes first
from a2a.server.agent_execution import AgentExecutor, RequestContext  # noqa: E402
from a2a.server.events import EventQueue  # noqa: E402
from a2a.server.request_handlers import DefaultRequestHandler  # noqa: E402
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes  # noqa: E402
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater  # noqa: E402

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = ["SessionExecutor", "make_card", "make_routes"]

MakeDeps = Callable[[RequestContext], DepsT | Awaitable[DepsT]]

ARTIFACT = "answer"  # the id of the one artifact of a task
CHUNK_CHARS = 80  # of a reply, in an update: each is written to the store of tasks
AGAIN = "This context waits for an approval. Answer it, then send your message again."
INPUT_MODES = ["text/plain", "application/json", "image/*", "application/pdf"]


def make_card(
    name: str,
    description: str,
    url: str,
    *,
    version: str = "1.0.0",
    skills: Sequence[types.AgentSkill] = (),
    output_modes: Sequence[str] = ("text/plain", "application/json"),
) -> types.AgentCard:
    """The card of an agent whose `make_routes` are at `url`; without `skills` it has one, what the
    description says."""
    skill = types.AgentSkill(id=name, name=name, description=description, tags=[name])
    return types.AgentCard(
        name=name,
        description=description,
        version=version,
        supported_interfaces=[
            types.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=types.AgentCapabilities(streaming=True),
        default_input_modes=INPUT_MODES,
        default_output_modes=[*output_modes],
        skills=[*skills] or [skill],
    )


@overload
def make_routes(
    agent: Agent[None, Any],
    card: types.AgentCard,
    *,
    path: str = "/",
    tasks: TaskStore | None = None,
) -> list[Route]: ...
@overload
def make_routes(
    agent: Agent[DepsT, Any],
    card: types.AgentCard,
    *,
    deps: MakeDeps[DepsT],
    path: str = "/",
    tasks: TaskStore | None = None,
) -> list[Route]: ...
def make_routes(
    agent: Agent[Any, Any],
    card: types.AgentCard,
    *,
    deps: MakeDeps[Any] | None = None,
    path: str = "/",
    tasks: TaskStore | None = None,
) -> list[Route]:
    """Routes of Starlette or FastAPI: the card, and JSON-RPC at `path`. `deps` makes the deps of a
    run; `tasks` is where the SDK keeps tasks, in memory if it is not given."""
    executor = SessionExecutor(agent, deps)
    handler = DefaultRequestHandler(executor, tasks or InMemoryTaskStore(), card)
    return [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, path)]


class SessionExecutor(AgentExecutor, Generic[DepsT]):
    """Runs the tasks of a server of the SDK in sessions of an agent."""

    def __init__(self, agent: Agent[DepsT, Any], deps: MakeDeps[DepsT] | None = None) -> None:
        self._agent = agent
        self._make_deps = deps
        self._running: dict[str, TaskRun] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer the message of a task, or continue it with the answers to its approvals."""
        message, task_id = context.message, context.task_id or ""
        assert message is not None
        if context.current_task is None:
            await event_queue.enqueue_event(helpers.new_task_from_user_message(message))
        run = self._running[task_id] = TaskRun(make_updater(context, event_queue))
        try:
            await run.updater.start_work()
            async with await self._open_session(context) as session:
                await run.answer(session, message, is_continued=context.current_task is not None)
        except (LoopError, SessionBusy) as error:  # it may be sent again later
            await run.end(types.TaskState.TASK_STATE_REJECTED, describe_failure(error)[0])
        except Exception as error:  # noqa: BLE001 - the client has to hear of each end
            await run.end(types.TaskState.TASK_STATE_FAILED, *describe_failure(error))
        finally:
            del self._running[task_id]
            run.is_over.set()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Interrupt the run of a task, and wait for it; or end what waits for an approval."""
        if run := self._running.get(context.task_id or ""):
            run.interrupt()
            await run.is_over.wait()
            if not run.is_waiting:  # it was not over when it was interrupted
                return
        try:
            async with await self._open_session(context) as session:
                if session.approvals:
                    async with session.stream(suspend=True):
                        pass  # leaving it interrupts the turn
        except SessionBusy:
            pass  # another replica has it, and stops when it reads that the task is canceled
        await make_updater(context, event_queue).cancel()

    async def _open_session(self, context: RequestContext) -> Session[DepsT, Any]:
        deps: Any = self._make_deps(context) if self._make_deps is not None else None
        deps = await deps if inspect.isawaitable(deps) else deps
        return self._agent.session(make_session_id(context), deps=deps)


def make_session_id(context: RequestContext) -> str:
    """The context, which a client may choose; with the user who is logged in, if there is one, so
    that it is his: only such an id ends with `@` and a digest."""
    user, context_id = context.call_context.user, find_context_id(context)
    if not user.is_authenticated:
        return f"{context_id}@" if "@" in context_id else context_id
    return f"{context_id}@{sha256(user.user_name.encode()).hexdigest()[:16]}"


def find_context_id(context: RequestContext) -> str:
    """That of the task: the SDK makes a new one up for a message that names only its task."""
    task = context.current_task
    return (task.context_id if task is not None else context.context_id) or ""


def make_updater(context: RequestContext, event_queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(event_queue, context.task_id or "", find_context_id(context))


class TaskRun:
    """One run of a task, as updates of the task."""

    def __init__(self, updater: TaskUpdater) -> None:
        self.updater = updater
        self.is_over = asyncio.Event()
        self.is_waiting = False  # for answers to approvals
        self._stream: Stream[Any] | None = None
        self._is_interrupted = False
        self._reply = ""  # what the agent said since the last request
        self._sent = 0  # characters of it

    def interrupt(self) -> None:
        self._is_interrupted = True
        if self._stream is not None:
            self._stream.interrupt()

    async def answer(
        self, session: Session[Any, Any], message: types.Message, *, is_continued: bool
    ) -> None:
        if session.approvals and not is_continued:  # the task that asked may be lost
            await self._require_input(session.id, session.approvals, AGAIN)
            return
        prompt = None
        if session.approvals:
            answer_approvals(session, message)
        elif message.message_id not in find_known_ids(session):
            content = tuple(read_content(message))
            prompt = UserItem(content, metadata=make_metadata([message.message_id]))
        if prompt is None and not session.can_continue:
            await self._finish_again(session)
            return
        async with session.stream(prompt, suspend=True) as events:
            self._stream = events
            if self._is_interrupted:
                events.interrupt()
            await self._send_replies(events)
        if events.waiting:
            await self._require_input(session.id, events.waiting)
        else:
            await self._finish(events.result)

    async def end(
        self, state: types.TaskState, text: str = "", code: str = "", **more: Any
    ) -> None:
        message = self._make_message(types.Part(text=text)) if text else None
        await self.updater.update_status(
            state, message, metadata={**({"error": code} if code else {}), **more}
        )

    async def _send_replies(self, events: Stream[Any]) -> None:
        async for event in events:
            match unwrap_handoff(event):
                case RequestStarted():
                    await self._end_reply()
                case ReplyDiscarded():
                    self._reply, self._sent = "", 0
                case _:
                    self._reply += find_text(event)
                    if len(self._reply) - self._sent >= CHUNK_CHARS:
                        await self._send_artifact(types.Part(text=self._reply[self._sent :]))
                        self._sent = len(self._reply)

    async def _end_reply(self) -> None:
        """What was said before a call is no part of the answer, and a message of the task."""
        if self._reply:
            await self.updater.start_work(self._make_message(types.Part(text=self._reply)))
        self._reply, self._sent = "", 0

    async def _send_artifact(self, part: types.Part, is_last: bool = False) -> None:
        """The next part of a reply, or the whole one at the end, which replaces the parts."""
        is_first = is_last or not self._sent
        await self.updater.add_artifact(
            [part], ARTIFACT, ARTIFACT, append=not is_first, last_chunk=is_last
        )

    async def _require_input(
        self, session_id: str, waiting: Sequence[PendingApproval], *before: str
    ) -> None:
        self.is_waiting = True
        await self._end_reply()
        lines = [*before, *(f"{one.summary}: {one.reason}" for one in waiting)]
        asked = [describe_approval(session_id, one) for one in waiting]
        data = {"approvals": asked, "answer": ANSWER_SCHEMA}
        text = "\n".join([*lines, 'Answer "yes", or say why not.'])
        parts = types.Part(text=text), helpers.new_data_part(data)
        await self.updater.requires_input(self._make_message(*parts))

    async def _finish(self, result: Result[Any]) -> None:
        output = result.output
        if output is not None and not isinstance(output, str):
            value = msgspec.to_builtins(output, enc_hook=to_json_value)
            await self._send_artifact(helpers.new_data_part(value), is_last=True)
        elif result.text:
            await self._send_artifact(types.Part(text=result.text), is_last=True)
        usage = msgspec.to_builtins(result.usage)
        if result.reason == "end_turn":
            await self.end(types.TaskState.TASK_STATE_COMPLETED, usage=usage)
        elif result.reason == "aborted":
            await self.end(types.TaskState.TASK_STATE_CANCELED, usage=usage)
        else:
            text = result.detail or result.reason
            await self.end(types.TaskState.TASK_STATE_FAILED, text, result.reason, usage=usage)

    async def _finish_again(self, session: Session[Any, Any]) -> None:
        """The message was answered before: its answer is the last one."""
        last = session.history[-1] if session.history else None
        if isinstance(last, AssistantItem) and last.text:
            await self._send_artifact(types.Part(text=last.text), is_last=True)
        await self.end(types.TaskState.TASK_STATE_COMPLETED)

    def _make_message(self, *parts: types.Part) -> types.Message:
        return self.updater.new_agent_message([*parts])


# --- what a client sends -----------------------------------------------------------------


def read_content(message: types.Message) -> Iterator[UserContent]:
    for part in message.parts:
        if part.HasField("text"):
            yield Text(part.text)
        elif part.HasField("data"):
            yield Text(msgspec.json.encode(*read_data([part])).decode())
        elif part.HasField("raw") and part.media_type.startswith("text/"):
            yield Text(part.raw.decode(errors="replace"))
        elif part.HasField("raw") or part.HasField("url"):
            kind = Image if part.media_type.startswith("image/") else Document
            yield kind(part.media_type, data=part.raw, url=part.url)
        else:
            raise TreadleError(
                f"message {message.message_id!r:.80} has a part that agents do not read: send "
                "texts, data, images and documents"
            )


def read_data(parts: Sequence[types.Part]) -> list[Any]:
    """The values of the data parts, with integers: in their encoding every number is a float."""
    text = json.dumps(helpers.get_data_parts(parts))
    return cast(list[Any], json.loads(text, parse_float=read_number))


def read_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def answer_approvals(session: Session[Any, Any], message: types.Message) -> None:
    """Data answers the call that it names, or all; "yes" approves all, another text denies them."""
    waiting = {make_approval_id(session.id, one): one for one in session.approvals}
    answers = [one for one in read_data(message.parts) if isinstance(one, dict)]
    if not answers:
        text = helpers.get_message_text(message).strip()
        answers = [{"approved": text.lower() == "yes", "reason": text}]
    for answer in answers:
        named = answer.get("id")
        for approval_id in [*waiting] if named is None else [str(named)]:
            if approval := waiting.pop(approval_id, None):
                answer_approval(session, approval, answer)


def describe_approval(session_id: str, approval: PendingApproval) -> dict[str, Any]:
    return {
        "id": make_approval_id(session_id, approval),
        "tool": approval.call.name,
        "arguments": approval.arguments,
        "summary": approval.summary,
        "reason": approval.reason,
    }
