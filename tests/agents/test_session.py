"""`agent.session("id")`: a conversation that is stored as it goes on."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from treadle import Agent, OutputMismatch, ToolContext, UserItem, tool
from treadle.core.errors import ConfigError, DriverBusy, LoopError, SessionBusy, StoreError
from treadle.core.events import TextDelta
from treadle.core.steps import AfterToolResult, ApprovalRequest, AwaitingInput, Finished
from treadle.core.transcript import AssistantItem, Text, ToolCall, ToolResultItem, Transcript
from treadle.models import Pause, Say, Scripted
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

PLACES = ["sessions", "sessions.db", "sessions.sqlite3"]


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def said(transcript) -> list[str]:
    return [item.text for item in transcript]


async def test_a_store_in_memory_is_refused_and_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"give treadle\.testing\.MemoryStore\(ID\) .* the id"):
        await Agent(Scripted([]), store=":memory:").run("x", session="a")
    with pytest.raises(
        ConfigError, match="store is a URL of 'mysql'; expected a folder, a database"
    ):
        await Agent(Scripted([]), store="mysql://u@127.0.0.1/x").run("x", session="a")
    assert not list(Path.cwd().iterdir())
    await Agent(Scripted(["ok"]), store=MemoryStore("a")).run("x", session="a")
    assert list_files(tmp_path) == []


@pytest.mark.parametrize("place", PLACES)
async def test_a_session_that_this_process_has_open_says_so(tmp_path: Path, place: str):
    agent = Agent(Scripted([]), store=tmp_path / place)
    async with agent.session("order-42"):
        problem = rf"is open in another run of this process \(pid {os.getpid()}\); close it there"
        with pytest.raises(SessionBusy, match=problem):
            await agent.run("x", session="order-42")


@pytest.mark.parametrize("place", PLACES)
async def test_the_same_id_goes_on_where_it_was(tmp_path: Path, place: str):
    agent = Agent(Scripted(["Hello, Ada.", "You are Ada."]), store=tmp_path / place)
    async with agent.session("order-42") as session:
        await session.run("I am Ada.")
    async with agent.session("order-42") as session:
        assert said(session.transcript) == ["I am Ada.", "Hello, Ada."]
        result = await session.run("Who am I?")
    assert result.text == "You are Ada."
    assert result.session_id == "order-42"
    async with agent.session("order-43") as other:
        assert said(other.transcript) == []


async def test_without_a_place_the_program_lists_it(tmp_path: Path):
    async with Agent(Scripted(["Hello."])).session() as session:
        await session.run("Hi")
    program = [sys.executable, "-m", "treadle", "sessions", "list", "--json"]
    listed = await asyncio.to_thread(subprocess.run, program, capture_output=True, check=True)
    assert session.id.encode() in listed.stdout


async def test_a_run_and_a_stream_can_name_a_session(tmp_path: Path):
    agent = Agent(Scripted(["one", "two", "three"]), store=tmp_path / "s.db")
    await agent.run("first", session="a")
    async with agent.stream("second", session="a") as events:
        texts = [event.text async for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == "two"
    assert events.result.output == "two"
    result = await agent.run("third", session="a")
    assert said(result.transcript) == ["first", "one", "second", "two", "third", "three"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_session_is_open_once(tmp_path: Path, place: str):
    agent = Agent(Scripted(["one"]), store=tmp_path / place)
    async with agent.session("a") as session:
        with pytest.raises(SessionBusy):
            async with agent.session("a"):
                pass
        async with agent.session("b"):
            pass
        assert (await session.run("go")).text == "one"


async def test_step_by_step_with_an_approval_and_a_message(tmp_path: Path):
    class Asks:
        async def decide(self, request):
            from treadle.core.contracts.policy import Ask

            return Ask("sure?")

        async def save_rules(self, request, rules) -> None:
            return None

    record = RecordingTool()
    model = Scripted([Say(calls=[("record", {"n": 1})]), "done"])
    agent = Agent(model, [record], policy=Asks())
    steps = []
    async with agent.session("a", store=tmp_path) as session:
        while True:
            step = await session.next()
            steps.append(type(step))
            match step:
                case AwaitingInput():
                    session.submit("go")
                case ApprovalRequest():
                    [approval] = session.approvals
                    session.approve(approval.call.id, arguments={"n": 2})
                case Finished():
                    break
                case _:
                    pass
    assert steps == [AwaitingInput, ApprovalRequest, AfterToolResult, Finished]
    assert record.calls == [{"n": 2}]
    assert isinstance(step, Finished)
    assert step.result.text == "done"
    answer = model.requests[1].transcript[2]
    assert isinstance(answer, ToolResultItem)
    assert 'The user changed the arguments before the call ran: {"n":2}' in answer.model_text


@pytest.mark.parametrize("place", PLACES)
async def test_rewind_and_fork(tmp_path: Path, place: str):
    agent = Agent(Scripted(["one", "two", "three", "four"]), store=tmp_path / place)
    async with agent.session("a") as session:
        await session.run("first")
        await session.run("second")
        fork = await session.fork("b", turns_back=1)
        whole = await session.fork()
        await session.rewind()
        assert said(session.transcript) == ["first", "one"]
        await session.run("other")
        assert said(session.transcript) == ["first", "one", "other", "three"]
        with pytest.raises(ConfigError, match="has 2 turns; it cannot go back by 3"):
            await session.rewind(3)
        with pytest.raises(StoreError, match="there is a session b already"):
            await session.fork("b")
    async with agent.session(fork) as forked:
        assert said(forked.transcript) == ["first", "one"]
        assert forked.usage.output == 0
    async with agent.session(whole) as forked:
        assert said(forked.transcript) == ["first", "one", "second", "two"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_session_without_an_entry_can_be_forked(tmp_path: Path, place: str):
    agent = Agent(Scripted(["one"]), store=tmp_path / place)
    async with agent.session("a") as session:
        fork = await session.fork()
    async with agent.session(fork) as forked:
        assert (await forked.run("first")).text == "one"


@pytest.mark.parametrize("place", PLACES)
async def test_a_fork_runs_no_open_call_of_a_history_that_was_given(tmp_path: Path, place: str):
    call = ToolCall("c1", "record", "{}")
    history = Transcript([UserItem((Text("go"),)), AssistantItem((call,), "tool_use")])
    record = RecordingTool(effect="irreversible")
    agent = Agent(Scripted(["here", "there"]), [record], store=tmp_path / place)
    async with agent.session("a", history=history) as session:
        fork = await session.fork()
        async with agent.session(fork) as forked:
            assert (await forked.run("and now?")).text == "here"
        assert record.calls == []
        assert (await session.run()).text == "there"
    assert record.calls == [{}]


async def test_an_output_of_one_run_and_text_again(tmp_path: Path):
    answer = Say(calls=[("final_answer", {"n": 4})])
    agent = Agent(Scripted([answer, "text"]), store=tmp_path / "s.db")
    async with agent.session("a") as session:
        result = await session.run("count", output=dict[str, int])
        assert result.output == {"n": 4}
        assert (await session.run("talk")).output == "text"
        assert len(session.transcript) == 6


async def test_interrupt_and_go_on(tmp_path: Path):
    pause = Pause()
    agent = Agent(Scripted([["be", pause, "gun"], "done", "more"]), store=tmp_path)
    async with agent.session("a") as session:
        assert not session.can_continue
        running = asyncio.create_task(session.run("go"))
        await pause.reached.wait()
        session.interrupt()
        assert (await running).reason == "aborted"
        assert session.can_continue
        assert (await session.run()).text == "done"
        assert not session.can_continue
        session.submit("again")
        assert session.can_continue
        assert (await session.run()).text == "more"
        assert not session.can_continue
        with pytest.raises(LoopError, match="nothing to answer"):
            await session.run()


CRASHING = """
import asyncio, os, sys
from treadle import Agent, tool
from treadle.models import Say, Scripted

@tool
async def pay(amount: int) -> str:
    open("paid", "a").write("x")
    os.kill(os.getpid(), 9)

async def main():
    agent = Agent(Scripted([Say(calls=[("pay", {"amount": 5})])]), [pay], store=sys.argv[1])
    async with agent.session("order-42") as session:
        await session.run("Pay five")

asyncio.run(main())
"""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_settled", [True, False])
async def test_a_call_in_doubt_after_a_crash_is_settled_by_the_host(
    tmp_path: Path, place: str, is_settled: bool
):
    words = [sys.executable, "-c", CRASHING, str(tmp_path / place)]
    process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path)
    assert await process.wait() == -signal.SIGKILL
    paid: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    model = Scripted(["All is well."])
    async with Agent(model, [pay], store=tmp_path / place).session("order-42") as session:
        [doubt] = session.doubts
        assert (doubt.tool, doubt.arguments) == ("pay", {"amount": 5})
        assert re.fullmatch(
            rf"order-42/turn-1\.[0-9a-f]{{8}}/{doubt.call.id}", doubt.idempotency_key
        )
        if is_settled:
            with pytest.raises(ConfigError, match="result is 5; expected a text"):
                session.settle(doubt.call.id, 5)  # type: ignore[arg-type]
            session.settle(doubt.call.id, "The bank says that it was paid.")
            with pytest.raises(LoopError, match=rf"no call '{doubt.call.id}' is in doubt; .*none"):
                session.settle(doubt.call.id, "twice")
            assert session.doubts == ()
        assert session.can_continue
        result = await session.run()
        assert not session.can_continue
    assert result.text == "All is well."
    assert paid == []
    assert (tmp_path / "paid").read_text() == "x"
    told = model.requests[0].transcript[2].text
    assert told == "The bank says that it was paid." if is_settled else "outcome unknown" in told


async def test_an_own_store_and_a_function_that_makes_one(tmp_path: Path):
    stores: dict[str, MemoryStore] = {}

    async def open_memory(session_id: str) -> MemoryStore:
        return stores.setdefault(session_id, MemoryStore(session_id))

    agent = Agent(Scripted(["one", "two"]), store=open_memory)
    await agent.run("first", session="a")
    assert said((await agent.run("second", session="a")).transcript)[:2] == ["first", "one"]
    own = MemoryStore("b", list(stores["a"].entries))
    async with agent.session("b", store=own) as session:
        assert len(session.transcript) == 4
        with pytest.raises(ConfigError, match="holds one session"):
            await session.fork()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 90, 7, "a b"])
def test_an_id_that_cannot_be_a_name_is_refused(name):
    with pytest.raises(ConfigError, match="cannot be the id of a session"):
        Agent(Scripted([])).session(name)


async def test_wrong_use_says_what_to_do(tmp_path: Path):
    agent = Agent(Scripted(["one"]), store=tmp_path)
    session = agent.session("a")
    with pytest.raises(LoopError, match="enter the session first"):
        await session.run("x")
    async with session:
        with pytest.raises(LoopError, match="was entered before"):
            await session.__aenter__()
    with pytest.raises(LoopError, match="is closed: open it again"):
        await session.run("x")
    with pytest.raises(ConfigError, match="is not a Store"):
        await agent.session("a", store=lambda name: None).__aenter__()  # type: ignore[arg-type,return-value]
    (tmp_path / "text.db").write_text("this is not a database, but it is long enough" * 50)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        async with agent.session("a", store=tmp_path / "text.db"):
            pass
    async with agent:
        pass
    with pytest.raises(LoopError, match="this agent is closed"):
        await agent.run("x")


async def test_a_database_holds_many_sessions_and_belongs_to_the_user_alone(tmp_path: Path):
    place = tmp_path / "s.db"
    agent = Agent(Scripted(lambda request: "ok"), store=place)
    await asyncio.gather(*(agent.run("go", session=f"s{n}") for n in range(50)))
    assert len(await agent.sessions.list(limit=60)) == 50
    assert oct(place.stat().st_mode & 0o777) == "0o600"
    results = await asyncio.gather(*(agent.run("more", session=f"s{n}") for n in range(50)))
    assert all(len(result.transcript) == 4 for result in results)


async def test_a_secret_of_the_environment_is_not_stored(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-value")
    for place in PLACES:
        agent = Agent(Scripted(["sk-very-secret-value"]), store=tmp_path / place)
        await agent.run("say it: sk-very-secret-value", session="a")
    for path in list_files(tmp_path):
        assert b"very-secret" not in path.read_bytes(), path


async def test_deps_of_a_session_reach_the_tools(tmp_path: Path):
    @tool
    async def whose(context: ToolContext[str]) -> str:
        return f"of {context.deps}"

    model = Scripted([Say(calls=[("whose", {})]), "done"])
    agent = Agent(model, [whose], deps_type=str, store=tmp_path)
    async with agent.session("a", deps="Ada") as session:
        await session.run("go")
        assert "of Ada" in said(session.transcript)


async def test_a_damaged_session_tells_of_it(tmp_path: Path):
    agent = Agent(Scripted(["one", "two"]), store=tmp_path)
    await agent.run("first", session="a")
    journal = tmp_path / "a/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:-2], b"broken\n", lines[-1]]))
    async with agent.session("a") as session:
        assert session.warnings
        assert isinstance(session.transcript[0], UserItem)


def test_nothing_is_written_before_the_block(tmp_path: Path):
    Agent(Scripted([]), store=tmp_path / "s").session("a")
    assert list(tmp_path.iterdir()) == []


ROUNDS = """
import asyncio, gc, sys
from treadle import Agent, tool
from treadle.models import Say, Scripted
from treadle.sessions.queued_store import QueuedStore

@tool(effect="pure")
async def look(n: int) -> str:
    if n == 3:
        stores = [one for one in gc.get_objects() if isinstance(one, QueuedStore)]
        while any(store.unwritten_entries for store in stores):
            await asyncio.sleep(0.01)
        print("three", flush=True)
        await asyncio.sleep(60)
    return f"seen {n}"

async def main():
    replies = [Say(f"Look {n}", calls=[("look", {"n": n})]) for n in range(9)]
    async with Agent(Scripted(replies), [look], store=sys.argv[1]).session("a") as session:
        await session.run("Look around")

asyncio.run(main())
"""


@pytest.mark.parametrize("place", PLACES)
async def test_what_was_said_is_there_after_a_kill_in_the_middle_of_a_turn(
    tmp_path: Path, place: str
):
    words = [sys.executable, "-c", ROUNDS, str(tmp_path / place)]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    process.kill()
    await process.wait()
    async with Agent(Scripted([]), store=tmp_path / place).session("a") as session:
        texts = said(session.transcript)
    assert texts[:7] == ["Look around", "Look 0", "seen 0", "Look 1", "seen 1", "Look 2", "seen 2"]


async def test_a_second_run_at_once_is_refused_before_its_message_is_taken(tmp_path: Path):
    pause = Pause()
    agent = Agent(Scripted([[pause, "to A"], "to C"]), store=tmp_path)
    async with agent.session("a") as session:
        first = asyncio.create_task(session.run("A"))
        await pause.reached.wait()
        with pytest.raises(DriverBusy, match="session a is running"):
            await session.run("B")
        with pytest.raises(DriverBusy):
            async with session.stream("B"):
                pass
        pause.release()
        assert (await first).text == "to A"
        async with session.stream("C") as events:
            await events.wait()
        assert said(session.transcript) == ["A", "to A", "C", "to C"]
        for wrong in (1.5, True):
            with pytest.raises(ConfigError, match=f"it cannot go back by {wrong}"):
                await session.rewind(wrong)  # type: ignore[arg-type]
        assert said(session.transcript)[:2] == ["A", "to A"]


@pytest.mark.parametrize("way", ["run", "stream", "stream of the agent"])
async def test_an_answer_that_never_fits_ends_after_the_retries(tmp_path: Path, way: str):
    wrong = Say(calls=[("final_answer", {"wrong": 1})])
    model = Scripted([wrong] * 9)
    agent = Agent(model, store=tmp_path / "s.db")
    with pytest.raises(OutputMismatch):
        await count(agent, way)
    assert len(model.requests) == 2


async def count(agent: Agent[None, str], way: str) -> None:
    if way == "stream of the agent":
        async with agent.stream("count", output=int, output_retries=1, session="a") as events:
            await events.wait()
        return
    async with agent.session("a") as session:
        if way == "run":
            await session.run("count", output=int, output_retries=1)
        else:
            async with session.stream("count", output=int, output_retries=1) as events:
                await events.wait()


async def test_a_stream_that_cannot_begin_leaves_its_session_free(tmp_path: Path):
    agent = Agent(Scripted(["one"]), store=tmp_path)
    with pytest.raises(TypeError, match="a prompt is a text"):
        await agent.stream(3, session="a").__aenter__()  # type: ignore[call-overload]
    assert (await agent.run("go", session="a")).text == "one"


async def test_a_cancelled_opening_does_not_keep_the_lease_of_a_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
):
    from psycopg import AsyncConnection

    agent, execute = Agent(Scripted(["one"]), store=postgres_url), AsyncConnection.execute
    cancelled: list[str] = []

    async def cancel_at_lease(connection, query, *given, **named):
        if "INSERT INTO treadle_sessions" in query:
            cancelled.append(query)
            opening.cancel()
        return await execute(connection, query, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(AsyncConnection, "execute", cancel_at_lease)
        opening = asyncio.create_task(agent.session("a").__aenter__())
        await asyncio.wait([opening])
    assert opening.cancelled()
    assert len(cancelled) == 1
    assert (await agent.run("go", session="a")).text == "one"


async def test_a_session_on_a_server_can_be_opened_as_soon_as_it_is_closed(postgres_url: str):
    agent = Agent(Scripted([]), store=postgres_url)
    for _ in range(20):
        async with agent.session("a"):
            pass


HOLDING = """
import sys
from treadle.sessions import SqliteStore

store = SqliteStore(sys.argv[1], "a")
print("open", flush=True)
sys.stdin.read()
"""


async def test_a_session_that_another_process_has_open_names_that_process(tmp_path: Path):
    place = tmp_path / "sessions.db"
    words = [sys.executable, "-c", HOLDING, str(place)]
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    agent = Agent(Scripted(["one"]), store=place)
    with pytest.raises(SessionBusy, match=rf"is open in another process \(pid {process.pid} since"):
        await agent.run("x", session="a")
    await process.communicate(b"")  # closes its input
    async with agent.session("a"):
        with pytest.raises(SessionBusy, match=rf"run of this process \(pid {os.getpid()}\)"):
            await agent.run("x", session="a")


def test_a_session_that_is_entered_without_async_says_what_to_write():
    session = Agent(Scripted([])).session("a")
    with pytest.raises(TypeError, match=r"`async with agent\.session.*session_sync"):
        with session:  # type: ignore[attr-defined]
            pass
