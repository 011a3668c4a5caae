"""`agent.sessions` on every kind of store: list, exists, read, delete, export."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres import ON_POSTGRESQL
from treadle import Agent, ApprovalRequest, ChildStart, tool
from treadle.agents.child_agents import NothingPrepared
from treadle.core.errors import ConfigError, SessionBusy, SessionNotFound, StoreError
from treadle.core.transcript.usage import Usage
from treadle.models import Pause, Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.testing import MemoryStore

Store = str | Path


@pytest.fixture(params=["folder", "sessions.db", ON_POSTGRESQL])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return tmp_path / "kept" / str(request.param)


@tool(effect="irreversible", approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def make_agent(store: Store, *replies: ScriptElement) -> Agent:
    script = Scripted(list(replies) or (lambda request: "ok"))
    return Agent(script, [pay], store=store, subagents=[])


async def test_the_newest_session_is_first_and_pages_have_each_once(store: Store):
    agent = make_agent(store)
    assert await agent.sessions.list() == []
    for number in range(7):
        await agent.run(f"question {number}", session=f"order-{number}")
    await agent.run("another", session="note-1")
    await agent.run("again", session="order-3")
    everything = await agent.sessions.list()
    assert [one.id for one in everything[:3]] == ["order-3", "note-1", "order-6"]
    found = everything[0]
    assert (found.title, found.state, found.turns) == ("question 3", "done", 2)
    assert not found.is_open
    assert found.created <= found.updated <= time.time()
    pages: list[str] = []
    last = None
    while page := await agent.sessions.list(prefix="order-", limit=3, after=last):
        pages += [one.id for one in page]
        last = page[-1]
    numbers = (3, 6, 5, 4, 2, 1, 0)
    assert pages == [f"order-{n}" for n in numbers]
    since = await agent.sessions.list(since=everything[1].updated)
    assert [one.id for one in since] == ["order-3", "note-1"]


async def test_a_session_is_read_while_it_runs(store: Store):
    pause = Pause()
    agent = make_agent(store, ["hello ", pause, "world"], "more")
    running = asyncio.create_task(agent.run("hi", session="ada"))
    while not await agent.sessions.list(state="running"):  # noqa: ASYNC110 - in a database
        await asyncio.sleep(0.01)
    snapshot = await agent.sessions.read("ada")
    assert (snapshot.state, snapshot.is_open) == ("running", True)
    assert [item.text for item in snapshot.transcript] == ["hi"]
    with pytest.raises(SessionBusy):
        await agent.sessions.delete("ada")
    pause.release()
    result = await running
    snapshot = await agent.sessions.read("ada")
    assert (snapshot.state, snapshot.is_open) == ("done", False)
    assert list(snapshot.transcript) == list(result.transcript)
    assert snapshot.usage == result.usage
    assert [one.id for one in await agent.sessions.list(state="running")] == []


async def test_a_call_that_waits_for_an_approval_is_seen_by_another_process(store: Store):
    first = make_agent(store, Say(calls=[("pay", {"amount": 5})]))
    async with first.session("bill") as session:
        session.submit("pay it")
        assert isinstance(await session.next(), ApprovalRequest)
    other = make_agent(store, "done")
    assert [one.state for one in await other.sessions.list()] == ["suspended (approval)"]
    snapshot = await other.sessions.read("bill")
    assert [one.arguments for one in snapshot.approvals] == [{"amount": 5}]
    assert snapshot.doubts == ()
    assert (await other.sessions.read("bill")).approvals == snapshot.approvals  # nothing changed


async def test_what_waits_for_a_person_is_found_by_its_state(store: Store):
    agent = make_agent(store, "Hello.", Say(calls=[("pay", {"amount": 5})]))
    await agent.run("hi", session="done")
    async with agent.stream("pay it", session="bill", suspend=True) as events:
        await events.wait()
    for state in ("suspended", "suspended (approval)"):
        assert [one.id for one in await agent.sessions.list(state=state)] == ["bill"]
    assert [one.id for one in await agent.sessions.list(state="done")] == ["done"]
    with pytest.raises(ConfigError, match="state is 'suspnded'; expected one of running, "):
        await agent.sessions.list(state="suspnded")


@pytest.mark.parametrize("kind", ["as_tool", "as_handoff"])
async def test_a_call_of_a_child_agent_that_waits_is_seen_by_another_process(
    store: Store, kind: str
):
    def make_parent(*replies: Say | str) -> Agent[None, str]:
        child = make_agent("unused", Say(calls=[("pay", {"amount": 5})]))
        return Agent(Scripted(replies), [getattr(child, kind)("child", "c")], store=store)

    sessions, calling = make_parent().sessions, Say(calls=[("child", {"prompt": "p"})])
    async with make_parent(calling).session("bill") as session:
        async with session.stream("pay it", suspend=True) as events:
            async for _ in events:
                pass
        [asked] = events.waiting
        during = await sessions.read("bill")  # while it is open
    after = await sessions.read("bill")
    assert during.approvals == after.approvals == (asked,)
    assert after.approvals[0].session_id != "bill"
    async with make_parent().session("bill") as session:
        assert session.approvals == (asked,)  # reading has changed nothing


async def test_reading_a_session_prepares_no_child(store: Store):
    prepared: list[str] = []

    async def prepare(start: ChildStart) -> NothingPrepared:
        prepared.append(start.id)
        return NothingPrepared()

    calling = Say(calls=[("task", {"description": "d", "prompt": "p"})])
    replies: list[ScriptElement] = [calling, Say(calls=[("pay", {"amount": 5})])]
    agent = Agent(Scripted(replies), [pay], store=store, subagents=[], prepare_child=prepare)
    async with agent.stream("go", session="s", suspend=True) as events:
        await events.wait()
    [asked] = events.waiting
    assert asked.call.name == "pay"
    before = list(prepared)
    await agent.sessions.read("s")
    assert prepared == before


async def test_a_call_that_may_have_had_its_effect_is_in_the_doubts_of_a_session(store: Store):
    begun = asyncio.Event()

    @tool(effect="irreversible")
    async def pay(amount: int) -> str:
        """Pay."""
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    @tool(effect="pure")
    async def look(amount: int) -> str:
        """Look."""
        return "seen"

    calls = Say(calls=[("look", {"amount": 5}), ("pay", {"amount": 5})])
    child = Agent(Scripted([calls, "it may be paid"]), [pay, look], tool_timeout=0.01)
    parts: list[ScriptElement] = [
        calls,
        "may be",
        Say(calls=[("child", {"prompt": "p"})]),
        "?",
        calls,
    ]
    tools = [pay, look, child.as_tool("child", "c")]
    agent = Agent(Scripted(parts), tools, store=store, tool_timeout=0.01)
    await agent.run("pay", session="bill")  # a timeout
    await agent.run("let the other one pay", session="bill")
    begun.clear()
    async with agent.replace(tool_timeout=None).session("bill") as session:
        running = asyncio.create_task(session.run("pay"))
        await begun.wait()
        session.interrupt()
        await running
    doubts = (await agent.sessions.read("bill")).doubts
    assert [(one.tool, one.arguments) for one in doubts] == [("pay", {"amount": 5})] * 3
    assert [one.session_id == "bill" for one in doubts] == [True, False, True]
    assert all(one.is_answered and one.idempotency_key for one in doubts)


@pytest.mark.parametrize("kind", ["as_tool", "as_handoff"])
async def test_the_cost_of_a_session_has_that_of_its_children_which_are_not_listed(
    store: Store, kind: str
):
    def cost(dollars: float) -> Usage:
        return Usage(input=1, output=1, requests=1, cost=dollars)

    child = Agent(Scripted([Say("x", usage=cost(0.5))]), name="child")
    call = Say(calls=[("child", {"prompt": "p"})], usage=cost(0.25))
    model = Scripted(["one", "two", "three", call, "end"])
    agent = Agent(model, [getattr(child, kind)("child", "c")], store=store)
    for message in ("1", "2", "3", "go"):
        await agent.run(message, session="s")
    [listed] = await agent.sessions.list()
    read = await agent.sessions.read("s")
    assert listed.id == "s"
    assert listed.usage == read.usage
    assert listed.usage.known_cost == 0.75


@pytest.mark.parametrize("name", ["ada@example.org", "tenant:user-7", "ada+bills@example.org"])
async def test_an_address_or_a_key_with_a_colon_is_an_id(store: Store, name: str):
    child = Agent(Scripted(["x"]), name="child")
    model = Scripted(["hello", Say(calls=[("child", {"prompt": "p"})]), "end", "forked"])
    agent = Agent(model, [child.as_tool("child", "c")], store=store)
    await agent.run("hi", session=name)
    result = await agent.run("go", session=name)
    assert [one.id for one in await agent.sessions.list(prefix=name[:4])] == [name]
    assert list((await agent.sessions.read(name)).transcript) == list(result.transcript)
    async with agent.session(name, must_exist=True) as session:
        fork = await session.fork(f"{name}:fork", turns_back=1)
    assert (await agent.run("again", session=fork)).text == "forked"
    await agent.sessions.delete(fork)
    await agent.sessions.delete(name)
    assert await agent.sessions.list() == []


async def test_an_unknown_session_is_not_begun_by_looking(store: Store):
    agent = make_agent(store)
    await agent.run("hi", session="known")
    assert await agent.sessions.exists("known")
    assert not await agent.sessions.exists("unknown")
    for use in (agent.sessions.read, agent.sessions.delete, agent.sessions.export):
        with pytest.raises(SessionNotFound, match="there is no session 'unknown'"):
            await use("unknown")
    with pytest.raises(SessionNotFound, match="unknown"):
        async with agent.session("unknown", must_exist=True):
            pass
    async with agent.session("known", must_exist=True) as session:
        assert len(session.transcript) == 2
    assert [one.id for one in await agent.sessions.list()] == ["known"]
    with pytest.raises(ConfigError, match="cannot be the id of a session"):
        await agent.sessions.exists("../known")


async def test_a_deleted_session_is_gone_with_those_of_its_children(store: Store):
    task = Say(calls=[("task", {"description": "find", "prompt": "look"})])
    agent = make_agent(store, task, "found it", "done", "new")
    await agent.run("find it", session="parent")
    assert [one.id for one in await agent.sessions.list()] == ["parent"]
    assert count_sessions(store) == 2
    await agent.sessions.delete("parent")
    assert await agent.sessions.list() == []
    assert count_sessions(store) == 0
    assert (await agent.run("again", session="parent")).transcript[0].text == "again"


def count_sessions(store: Store) -> int:
    """With those of child agents."""
    if isinstance(store, str):
        import psycopg

        with psycopg.connect(store) as server:
            query = "SELECT count(DISTINCT session) FROM treadle_entries"
            return int(server.execute(query).fetchone()[0])  # type: ignore[index]
    if store.suffix == ".db":
        with sqlite3.connect(store) as database:
            query = "SELECT count(DISTINCT session) FROM entries"
            return int(database.execute(query).fetchone()[0])
    return len(list(store.rglob("journal.jsonl")))


async def test_a_session_that_forks_read_is_not_deleted(tmp_path: Path):
    agent = make_agent(tmp_path / "kept")
    async with agent.session("first") as session:
        await session.run("hi")
        await session.fork("second")
    with pytest.raises(StoreError, match="has 1 fork: second"):
        await agent.sessions.delete("first")
    await agent.sessions.delete("second")
    await agent.sessions.delete("first")
    assert await agent.sessions.list() == []


async def test_an_exported_session_has_all_of_it_but_no_secret(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    agent = make_agent(store)
    await agent.run("the key is sk-abcdef0123456789abcdef", session="one")
    monkeypatch.setenv("SHOP_API_KEY", "sk-abcdef0123456789abcdef")
    text = await agent.sessions.export("one")
    assert "## You" in text
    assert "ok" in text
    assert "sk-abcdef0123456789abcdef" not in text
    document = json.loads(await agent.sessions.export("one", "json"))
    assert document["session"]["id"] == "one"
    assert [line["n"] for line in document["entries"]] == list(
        range(1, len(document["entries"]) + 1)
    )
    with pytest.raises(ConfigError, match="format is 'pdf'"):
        await agent.sessions.export("one", "pdf")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"prefix": 3}, {"since": "now"}, {"after": "id"}, {"state": 1}]
)
async def test_a_wrong_argument_is_named(tmp_path: Path, wrong: dict[str, object]):
    agent = make_agent(tmp_path / "kept")
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        await agent.sessions.list(**wrong)  # type: ignore[arg-type]


async def test_only_the_callers_code_knows_the_sessions_of_an_own_store():
    make: Callable[[str], MemoryStore] = MemoryStore
    agent = Agent(Scripted(["ok"]), store=make)
    with pytest.raises(ConfigError, match="only your code knows"):
        await agent.sessions.list()
    with pytest.raises(SessionNotFound):
        async with agent.session("new", must_exist=True):
            pass


async def test_a_summary_of_a_database_is_that_of_a_journal(tmp_path: Path):
    found = []
    for place in ("folder", "sessions.db"):
        agent = make_agent(tmp_path / place, Say(calls=[("pay", {"amount": 1})]), "paid")
        await agent.run("pay one", session="s")
        [one] = await agent.sessions.list()
        found.append((one.title, one.state, one.turns, one.usage, one.is_open))
    assert found[0] == found[1]


async def test_looking_at_a_session_takes_no_lock(tmp_path: Path):
    agent = make_agent(tmp_path / "sessions.db")
    await agent.run("hi", session="one")
    lock = tmp_path / "sessions.db-lock"
    before = lock.read_bytes()
    [found] = await agent.sessions.list()
    assert not found.is_open
    assert lock.read_bytes() == before  # who takes it writes its name there
