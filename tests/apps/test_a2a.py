"""A2A: what the client of its SDK does with an agent, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn
from a2a import helpers, types
from a2a.client import Client, ClientConfig, create_client
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.utils.errors import TaskNotCancelableError
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from treadle import Agent, Image, RunContext, Text, ToolContext, UserItem, tool
from treadle.apps.a2a import TaskRun, make_card, make_routes
from treadle.contracts import ModelRequest
from treadle.errors import Overloaded
from treadle.models import Pause, Say, Scripted
from treadle.testing import ManualClock

State = types.TaskState
paid: list[int] = []


@tool(approval=True)
def pay(euros: int) -> str:
    "Pay."
    paid.append(euros)
    return f"paid {euros} euros"


@tool
def fail() -> str:
    "Fail."
    raise ValueError("secret of the code")


def make_agent(replies: Any, store: Path) -> Agent[None, str]:
    return Agent(Scripted(replies), [pay, fail], store=store, clock=ManualClock())


class UserHeader(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> Any:
        name = conn.headers.get("x-user")
        return (AuthCredentials(), SimpleUser(name)) if name else None


@asynccontextmanager
async def connect(
    agent: Agent[Any, Any], *, user: str = "", streaming: bool = True, **more: Any
) -> AsyncIterator[Client]:
    """A client of the SDK, with a server of the agent."""
    http = httpx.AsyncClient(headers={"x-user": user} if user else None, timeout=None)
    async with serve(agent, **more) as url, http:
        config = ClientConfig(streaming=streaming, httpx_client=http)
        client = await create_client(url, config)
        yield client
        await client.close()


@asynccontextmanager
async def serve(agent: Agent[Any, Any], **more: Any) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = Starlette(
        routes=make_routes(agent, make_card("Cashier", "Pays bills.", url), **more),
        middleware=[Middleware(AuthenticationMiddleware, backend=UserHeader())],
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving


def make_request(
    *parts: types.Part | str, message_id: str = "m1", task: types.Task | None = None, **more: Any
) -> types.SendMessageRequest:
    if task is not None:
        more = {"task_id": task.id, "context_id": task.context_id}
    message = types.Message(
        message_id=message_id,
        role=types.Role.ROLE_USER,
        parts=[types.Part(text=part) if isinstance(part, str) else part for part in parts],
        **more,
    )
    return types.SendMessageRequest(message=message)


async def send(client: Client, *parts: types.Part | str, **more: Any) -> types.Task:
    """The task after the last event, as the server has it."""
    events = [event async for event in client.send_message(make_request(*parts, **more))]
    last = events[-1]
    task_id = last.task.id or last.status_update.task_id
    return await client.get_task(types.GetTaskRequest(id=task_id))


def list_texts(messages: Sequence[types.Message]) -> list[str]:
    return [helpers.get_message_text(one) for one in messages]


def get_answer(task: types.Task) -> str:
    [artifact] = task.artifacts
    return helpers.get_artifact_text(artifact)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_message_is_a_task_that_ends_with_the_answer(tmp_path: Path, streaming: bool):
    async with connect(make_agent(["It is paid."], tmp_path), streaming=streaming) as client:
        task = await send(client, "Pay the bill")
        assert task.status.state == State.TASK_STATE_COMPLETED
        assert get_answer(task) == "It is paid."
        assert list_texts(task.history) == ["Pay the bill"]


async def test_a_stream_has_the_reply_in_pieces_and_then_whole(tmp_path: Path):
    pieces = [f"{number:40}" for number in range(10)]
    async with connect(make_agent([[*pieces]], tmp_path)) as client:
        events = [event async for event in client.send_message(make_request("Go"))]
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[:2] == ["task", "status_update"]
        updates = [one.artifact_update for one in events if one.HasField("artifact_update")]
        assert [one.append for one in updates] == [False, *[True] * (len(updates) - 2), False]
        assert [one.last_chunk for one in updates] == [*[False] * (len(updates) - 1), True]
        *before, whole = ["".join(helpers.get_text_parts(one.artifact.parts)) for one in updates]
        assert len(before) > 1
        assert "".join(before) == whole == "".join(pieces)
        assert events[-1].status_update.status.state == State.TASK_STATE_COMPLETED


async def test_the_answer_is_the_last_reply_and_earlier_ones_are_messages(tmp_path: Path):
    """Also if a request failed in the middle of its reply and was sent again."""
    long = "Let me see. " * 20
    replies = [Say(long, calls=[("fail", {})]), ["Half of it. " * 20, Overloaded("busy")], "Done."]
    async with connect(make_agent(replies, tmp_path)) as client:
        task = await send(client, "Go")
        assert get_answer(task) == "Done."
        assert list_texts(task.history) == ["Go", long]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("Yes", "paid 12 euros"),
        ("Not this one", "denied: Not this one"),
        ({"approved": True, "arguments": {"euros": 5}}, "paid 5 euros"),
        ({"id": "?", "approved": False, "reason": "too much"}, "denied: too much"),
        ({"approved": "true"}, "denied: The user said no."),
    ],
)
async def test_an_approval_requires_input_and_the_answer_continues_the_task(
    tmp_path: Path, streaming: bool, answer: Any, result: str
):
    """By a server that was started meanwhile, too."""
    tasks = InMemoryTaskStore()
    first = make_agent([Say(calls=[("pay", {"euros": 12})])], tmp_path)
    async with connect(first, tasks=tasks, streaming=streaming) as client:
        task = await send(client, "Pay")
        assert task.status.state == State.TASK_STATE_INPUT_REQUIRED
        [asked] = helpers.get_data_parts(task.status.message.parts)
        [approval] = asked["approvals"]
        assert (approval["tool"], approval["arguments"]) == ("pay", {"euros": 12})
        if isinstance(answer, dict) and "id" in answer:
            answer = {**answer, "id": approval["id"]}
        part = answer if isinstance(answer, str) else helpers.new_data_part(answer)
        model = Scripted(["Done."])
        async with connect(first.replace(model=model), tasks=tasks, streaming=streaming) as client:
            task = await send(client, part, task=task, message_id="m2")
            assert (task.status.state, get_answer(task)) == (State.TASK_STATE_COMPLETED, "Done.")
            assert model.requests[0].transcript[-1].text == result


async def test_an_approval_that_is_not_answered_still_waits(tmp_path: Path):
    calls = [("pay", {"euros": 1}), ("pay", {"euros": 2})]
    async with connect(make_agent([Say(calls=calls), "Done."], tmp_path)) as client:
        task = await send(client, "Pay")
        [asked] = helpers.get_data_parts(task.status.message.parts)
        for number, approval in enumerate(asked["approvals"]):
            assert task.status.state == State.TASK_STATE_INPUT_REQUIRED
            answer = helpers.new_data_part({"id": approval["id"], "approved": True})
            task = await send(client, answer, task=task, message_id=f"answer-{number}")
        assert task.status.state == State.TASK_STATE_COMPLETED


async def test_the_context_is_the_conversation_and_a_message_is_answered_once(tmp_path: Path):
    model = Scripted(lambda request: f"answer {len(request.transcript)}")
    async with connect(Agent(model, store=tmp_path)) as client:
        task = await send(client, "Hi")
        again = await send(client, "Hi", context_id=task.context_id)
        assert (get_answer(again), len(model.requests)) == ("answer 1", 1)
        await send(client, "And now?", message_id="m2", context_id=task.context_id)
        shown = [one.text for one in model.requests[1].transcript]
        assert shown == ["Hi", "answer 1", "And now?"]


async def test_another_task_of_a_context_that_waits_is_asked_again(tmp_path: Path):
    paid.clear()
    agent = make_agent([Say(calls=[("pay", {"euros": 1})]), "Paid."], tmp_path)
    async with connect(agent) as client:  # as after a restart that lost the first task
        await send(client, "Pay", context_id="chat-1")
    async with connect(agent) as client:
        other = await send(client, "And now?", message_id="m2", context_id="chat-1")
        assert other.status.state == State.TASK_STATE_INPUT_REQUIRED
        assert "send your message again" in helpers.get_message_text(other.status.message)
        assert not paid
        done = await send(client, "yes", message_id="m3", task_id=other.id)  # without its context
        assert (get_answer(done), paid) == ("Paid.", [1])


async def test_a_task_that_is_canceled_as_soon_as_it_asks_frees_its_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupted, ask, interrupt = asyncio.Event(), TaskRun._require_input, TaskRun.interrupt

    async def ask_and_wait(run: TaskRun, *arguments: Any) -> None:
        await ask(run, *arguments)
        await interrupted.wait()  # the run is not over yet when it is canceled

    def note_interrupt(run: TaskRun) -> None:
        interrupt(run)
        interrupted.set()

    monkeypatch.setattr(TaskRun, "_require_input", ask_and_wait)
    monkeypatch.setattr(TaskRun, "interrupt", note_interrupt)
    paid.clear()
    agent = make_agent([Say(calls=[("pay", {"euros": 1})]), "Fine."], tmp_path)
    async with connect(agent) as client:
        async for event in client.send_message(make_request("Pay", context_id="chat-1")):
            update = event.status_update
            if update.status.state == State.TASK_STATE_INPUT_REQUIRED:
                await client.cancel_task(types.CancelTaskRequest(id=update.task_id))
        after = await send(client, "And now?", message_id="m2", context_id="chat-1")
        assert (get_answer(after), paid) == ("Fine.", [])


async def test_a_context_of_one_user_is_not_that_of_another(tmp_path: Path):
    model = Scripted(lambda request: f"answer {len(request.transcript)}")
    agent = Agent(model, store=tmp_path)
    for user in ("ada", "bob", ""):
        async with connect(agent, user=user) as client:
            task = await send(client, "Hi", context_id="shared")
            assert get_answer(task) == "answer 1"


async def test_the_context_of_a_user_cannot_be_named_without_being_the_user(tmp_path: Path):
    model = Scripted(lambda request: f"answer {len(request.transcript)}")
    agent = Agent(model, store=tmp_path)
    async with connect(agent, user="ada") as client:
        await send(client, "Hi", context_id="chat-1")
    (own,) = [one.id for one in await agent.sessions.list()]
    for user in ("", "bob"):
        async with connect(agent, user=user) as client:
            for name in (own, f"{own}@"):
                task = await send(client, "Hi", message_id="m2", context_id=name)
                assert get_answer(task) == "answer 1"
    async with connect(agent) as client:  # without a login a name with @ is continued as any other
        task = await send(client, "And?", message_id="m3", context_id=own)
        assert get_answer(task) == "answer 3"


async def test_a_running_task_can_be_cancelled(tmp_path: Path):
    is_asked = asyncio.Event()

    async def wait(request: ModelRequest) -> str:
        is_asked.set()
        await asyncio.Event().wait()
        return ""

    async with connect(make_agent([wait, "Next."], tmp_path)) as client:
        events = client.send_message(make_request("Go"))
        task = (await anext(events)).task
        await is_asked.wait()
        canceled = await client.cancel_task(types.CancelTaskRequest(id=task.id))
        assert canceled.status.state == State.TASK_STATE_CANCELED
        assert [one async for one in events][-1].status_update.status == canceled.status
        task = await send(client, "Go on", message_id="m2", context_id=task.context_id)
        assert get_answer(task) == "Next."


async def test_a_task_that_waits_for_an_approval_can_be_cancelled(tmp_path: Path):
    """The call is not made, and the conversation goes on."""
    async with connect(
        make_agent([Say(calls=[("pay", {"euros": 77})]), "Next."], tmp_path)
    ) as client:
        task = await send(client, "Pay")
        canceled = await client.cancel_task(types.CancelTaskRequest(id=task.id))
        assert canceled.status.state == State.TASK_STATE_CANCELED
        task = await send(client, "Go on", message_id="m2", context_id=task.context_id)
        assert get_answer(task) == "Next."
        assert 77 not in paid
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(types.CancelTaskRequest(id=task.id))


async def test_a_client_that_goes_away_reads_the_answer_later(tmp_path: Path):
    pause = Pause()
    async with connect(make_agent([["Half ", pause, "whole."]], tmp_path)) as client:
        async with aclosing(cast(Any, client.send_message(make_request("Go")))) as events:
            task = (await anext(events)).task
            await pause.reached.wait()
        async for _ in client.subscribe(types.SubscribeToTaskRequest(id=task.id)):
            pause.release()
        assert get_answer(await client.get_task(types.GetTaskRequest(id=task.id))) == "Half whole."


async def test_parts_are_content_of_the_message(tmp_path: Path):
    model = Scripted(["Seen."])
    async with connect(Agent(model, store=tmp_path)) as client:
        image = types.Part(raw=b"\x00\x01", media_type="image/png")
        note = types.Part(raw=b"a note", media_type="text/plain")
        await send(client, "Look", image, note, helpers.new_data_part({"rows": 3}))
        [item] = model.requests[0].transcript
        assert isinstance(item, UserItem)
        assert item.content[1] == Image("image/png", b"\x00\x01")
        assert item.content[2:] == (Text("a note"), Text('{"rows":3}'))


async def test_an_output_type_is_data(tmp_path: Path):
    agent = Agent(Scripted(['{"cents": 1250}']), output_type=dict[str, int], store=tmp_path)
    async with connect(agent) as client:
        task = await send(client, "How much?")
        assert helpers.get_data_parts(task.artifacts[0].parts) == [{"cents": 1250}]


async def test_deps_are_made_of_the_request(tmp_path: Path):
    @tool
    def whoami(context: ToolContext[str]) -> str:
        "Who."
        return context.deps

    async def find_user(context: RequestContext) -> str:
        return context.call_context.user.user_name

    def instruct(context: RunContext[str]) -> str:
        return f"You serve {context.deps}."

    model = Scripted([Say(calls=[("whoami", {})]), "Done."])
    agent = Agent(model, [whoami], instructions=instruct, deps_type=str, store=tmp_path)
    async with connect(agent, user="ada", deps=find_user) as client:
        await send(client, "Who am I?")
        assert model.requests[1].transcript[-1].text == "ada"


async def test_errors_are_told_without_the_secrets_of_the_code(tmp_path: Path, caplog):
    agent = make_agent([Say(calls=[("fail", {})])], tmp_path).replace(tool_errors="raise")
    async with connect(agent) as client:
        task = await send(client, "Go")
        assert task.status.state == State.TASK_STATE_FAILED
        assert "secret" not in str(task)
        assert "secret of the code" in caplog.text


async def test_a_limit_fails_the_task_with_its_reason(tmp_path: Path):
    agent = make_agent([Say(calls=[("fail", {})])] * 3, tmp_path).replace(max_turns=1)
    async with connect(agent) as client:
        task = await send(client, "Go")
        assert task.status.state == State.TASK_STATE_FAILED
        assert helpers.get_message_text(task.status.message)


async def test_a_session_that_is_open_elsewhere_rejects_the_task(tmp_path: Path):
    agent = make_agent(["Hi."], tmp_path)
    async with connect(agent) as client:
        async with agent.session("chat-1"):
            task = await send(client, "Hi", context_id="chat-1")
        assert task.status.state == State.TASK_STATE_REJECTED
