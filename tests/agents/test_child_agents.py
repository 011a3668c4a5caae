"""Stories of child agents that are continued, resumed, narrowed and defined in files."""

# ruff: noqa: ASYNC240 (tests look at files)

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import ON_POSTGRESQL
from treadle import Agent, Usage
from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.agent_files import read_agent_file
from treadle.agents.child_agents import ChildAgents
from treadle.agents.child_settings import find_unknown, match_tools
from treadle.agents.subagents import MAX_CHILDREN, ChildStart
from treadle.core.contracts.hook import AddContext, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import ConfigError
from treadle.core.events import Event, ToolStarted
from treadle.core.steps import Finished
from treadle.core.transcript import NoticeItem, ToolCall, ToolResultItem, Transcript, UserItem
from treadle.core.transcript.entries import Intent
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


def task(prompt: str, **more: object) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt, **more}


def answers(transcript: Transcript) -> list[str]:
    return [item.model_text for item in transcript if isinstance(item, ToolResultItem)]


def messages(request: ModelRequest) -> list[str]:
    return [item.text for item in request.transcript if isinstance(item, UserItem)]


def by_last_message(**replies: Any) -> Scripted:
    """A model that answers by the last message of the user: a reply, or replies in order."""
    left = {
        key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()
    }

    def answer(request: ModelRequest) -> Any:
        return left[messages(request)[-1].split()[0]].pop(0)

    return Scripted(answer)


# --- continued by name -------------------------------------------------------------------


async def test_a_child_is_continued_by_its_name_and_knows_what_it_did():
    model = by_last_message(
        parent=[
            Say(calls=[task("look", name="scout")]),
            Say(calls=[task("again", continue_agent="Scout")]),
            "ok",
        ],
        look="I saw a door.",
        again="It is still there.",
    )
    result = await Agent(model, subagents=[]).run("parent")
    assert answers(result.transcript) == ["I saw a door.", "It is still there."]
    continued = next(one for one in model.requests if messages(one)[-1] == "again")
    assert messages(continued) == ["look", "again"]


async def test_a_child_is_started_under_the_names_of_claude_code_too():
    call = ("Agent", {"description": "look", "prompt": "look", "subagent_type": "Explore"})
    model = by_last_message(parent=[Say(calls=[call]), "ok"], look="I saw a door.")
    result = await Agent(model, subagents=[]).run("parent")
    [answer] = answers(result.transcript)
    assert answer.startswith("I saw a door.")
    assert "the tool is named `task`" in answer


async def test_a_child_without_a_name_has_its_kind_and_a_number():
    model = by_last_message(
        parent=[
            Say(calls=[task("one"), task("two")]),
            Say(calls=[task("more", continue_agent="general-2")]),
            Say(calls=[task("more", continue_agent="general-3")]),
            "ok",
        ],
        one="1",
        two="2",
        more="3",
    )
    result = await Agent(model, subagents=[]).run("parent")
    *_, third, fourth = answers(result.transcript)
    assert third == "3"
    assert fourth == (
        "error: there is no agent 'general-3'; there are general-1 (a piece of work); "
        "general-2 (a piece of work)"
    )


async def test_an_agent_that_was_refused_cannot_be_continued_and_one_that_failed_can():
    model = by_last_message(
        parent=[
            Say(calls=[task("wrong", name="a", subagent_type="unknown"), task("fail", name="b")]),
            Say(calls=[task("more", continue_agent="a")]),
            Say(calls=[task("again", continue_agent="b")]),
            "ok",
        ],
        fail=AssertionError("the model died"),
        again="done",
    )
    result = await Agent(model, subagents=[]).run("parent")
    *_, third, fourth = answers(result.transcript)
    assert third == "error: there is no agent 'a'; there are b (a piece of work)"
    assert fourth == "done"


async def test_two_children_cannot_have_the_same_name():
    model = by_last_message(
        parent=[Say(calls=[task("one", name="a")]), Say(calls=[task("two", name="a")]), "ok"],
        one="1",
    )
    result = await Agent(model, subagents=[]).run("parent")
    assert "there is an agent 'a' already: continue it" in answers(result.transcript)[1]


async def test_a_child_at_work_in_the_background_reads_the_message_at_its_next_step():
    pause = Pause()
    model = by_last_message(
        parent=[
            Say(calls=[task("work", name="w", run_in_background=True)]),
            Say(calls=[task("hurry", continue_agent="w")]),
            "ok",
        ],
        work=[[pause, "first words"]],
        hurry="done quickly",
    )
    driver = Agent(model, subagents=[]).start(prompt="parent")
    await driver.next()
    await pause.reached.wait()
    await driver.next()
    pause.release()
    await driver.tasks.wait()
    assert "w is at work; the message waits for its next step" in answers(driver.transcript)[1]
    assert any(messages(request) == ["work", "hurry"] for request in model.requests)
    await driver.aclose()


class SlowEnd:
    """A prepared child whose end takes until `release` is set."""

    def __init__(self) -> None:
        self.changes: dict[str, Any] = {}
        self.is_ending, self.release = asyncio.Event(), asyncio.Event()

    async def prepare(self, start: ChildStart) -> SlowEnd:
        return self

    async def finish(self, *, succeeded: bool) -> str:
        self.is_ending.set()
        await self.release.wait()
        return ""

    async def abandon(self) -> None:
        return None


class CallWatcher(BaseObserver):
    def __init__(self) -> None:
        self.is_started = asyncio.Event()

    def on_event(self, event: Event) -> None:
        if isinstance(event, ToolStarted):
            self.is_started.set()


async def test_a_message_to_a_child_that_is_ending_is_read_in_another_turn():
    end = SlowEnd()
    model = by_last_message(
        parent=[
            Say(calls=[task("work", name="w", run_in_background=True)]),
            Say(calls=[task("more", continue_agent="w")]),
            "ok",
        ],
        work="done",
        more="done again",
    )
    driver = Agent(model, subagents=[], prepare_child=end.prepare).start(prompt="parent")
    await driver.next()
    await end.is_ending.wait()
    watcher = CallWatcher()
    driver.watch(watcher)
    step = asyncio.create_task(driver.next())
    await watcher.is_started.wait()
    end.release.set()
    await step
    assert answers(driver.transcript)[1] == "done again"
    assert messages(model.requests[-1]) == ["work", "more"]
    await driver.aclose()


async def test_a_report_says_that_a_message_did_not_reach_the_child():
    pause, children = Pause(), ChildAgents()
    model = by_last_message(
        parent=[
            Say(calls=[task("work", name="w", run_in_background=True)]),
            Say(calls=[task("hurry", continue_agent="w")]),
            "ok",
        ],
        work=[[pause, "never"]],
    )
    driver = Agent(model, subagents=[]).start(prompt="parent", children=children)
    await driver.next()
    await pause.reached.wait()
    await driver.next()
    [child] = children.running.values()
    assert child.driver is not None
    child.driver.interrupt()
    await driver.tasks.wait()
    assert "1 message that you sent did not reach it" in driver.tasks.list()[0].output
    assert child.driver.queued_messages == ()
    await driver.aclose()


# --- of one session ----------------------------------------------------------------------


async def test_children_of_sessions_with_one_id_in_two_places_are_stored_apart(tmp_path: Path):
    def make(place: str) -> Agent:
        replies: list[Any] = [Say(calls=[task(f"secret of {place}")]), "told", "ok"]
        return Agent(Scripted(replies), subagents=[], store=tmp_path / place)

    async with make("a").session("main") as first, make("b").session("main") as second:
        await second.run("parent")
        await first.run("parent")
    for place in ("a", "b"):
        [log] = (tmp_path / place).glob("main/children/*/journal.jsonl")
        assert f"secret of {place}" in log.read_text()


async def test_sessions_with_one_id_and_without_a_store_do_not_share_a_child():
    def answer(request: ModelRequest) -> Any:
        if len(request.transcript) > 1:
            return "ok"
        if messages(request) == ["parent"]:
            call = '{"description": "look", "prompt": "look", "name": "scout"}'
            return Say(calls=[ToolCall("same", "task", call)])
        return f"answer {len(model.requests)}"

    model = Scripted(answer)
    agent, found = Agent(model, subagents=[]), []
    for _ in range(2):
        driver = agent.start("parent", session_id="main")
        while not isinstance(await driver.next(), Finished):
            pass
        found += answers(driver.transcript)
        await driver.aclose()
    assert found == ["answer 2", "answer 5"]


async def test_the_limit_of_children_at_once_is_that_of_one_session():
    working, all_work = 0, asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        nonlocal working
        if len(request.transcript) > 1:
            return "ok"
        if messages(request) == ["parent"]:
            return Say(calls=[task("work")])
        working += 1
        if working == MAX_CHILDREN + 1:
            all_work.set()
        await all_work.wait()
        return "done"

    agent = Agent(Scripted(answer), subagents=[])
    runs = await asyncio.gather(*[agent.run("parent") for _ in range(MAX_CHILDREN + 1)])
    assert [answers(run.transcript) for run in runs] == [["done"]] * len(runs)


@pytest.mark.parametrize("place", ["folder", "sessions.db", ON_POSTGRESQL])
async def test_a_child_of_a_session_is_continued_in_another_process(
    tmp_path: Path, place: str, request: pytest.FixtureRequest
):
    store = (
        request.getfixturevalue("postgres_url") if place == "postgresql" else str(tmp_path / place)
    )

    def make(*replies: Any) -> Agent:
        return Agent(Scripted(list(replies)), subagents=[], store=store)

    first = make(Say(calls=[task("look", name="scout")]), "I saw a door.", "ok")
    async with first.session("s") as session:
        await session.run("parent")
    second = make(Say(calls=[task("again", continue_agent="scout")]), "Still there.", "ok")
    async with second.session("s") as session:
        result = await session.run("go on")
    assert answers(result.transcript)[-1] == "Still there."
    child = second.config.model.requests[1]  # type: ignore[attr-defined]
    assert messages(child) == ["look", "again"]
    if place == "folder":
        assert len(list((tmp_path / place / "s" / "children").iterdir())) == 1
    assert not list(Path.cwd().iterdir())


async def test_a_grandchild_is_stored_below_its_parent(tmp_path: Path):
    model = by_last_message(
        parent=[Say(calls=[task("child")]), "ok"],
        child=[Say(calls=[task("grandchild")]), "b"],
        grandchild="a",
    )
    async with Agent(model, subagents=[], store=tmp_path).session("s") as session:
        await session.run("parent")
    assert len(list(tmp_path.glob("s/children/*/children/*/journal.jsonl"))) == 1


@pytest.mark.parametrize("place", ["folder", "sessions.db"])
async def test_the_child_of_a_fork_whose_opening_is_cancelled_can_be_opened(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
):
    children = ChildAgents(tmp_path / place, [("origin", tmp_path / place)])

    async def cancel(location: object, session_id: str) -> tuple[()]:
        opening.cancel()
        await asyncio.sleep(0)
        return ()

    with monkeypatch.context() as patch:
        patch.setattr("treadle.sessions.open_store.read_session", cancel)
        opening = asyncio.create_task(children.open_store("fork", "call_1", lambda call_id: True))
        await asyncio.wait([opening])
    assert opening.cancelled()
    store = await children.open_store("fork", "call_1")
    assert store is not None
    await store.aclose()


@pytest.mark.parametrize("place", ["folder", "sessions.db"])
async def test_the_children_of_a_child_are_continued_in_a_fork_of_a_fork(
    tmp_path: Path, place: str
):
    first = by_last_message(
        parent=[Say(calls=[task("child", name="a")]), "ok"],
        child=[Say(calls=[task("grandchild", name="b")]), "done"],
        grandchild="I saw a door.",
    )
    async with Agent(first, subagents=[], store=tmp_path / place).session("s") as session:
        await session.run("parent")
        await session.fork("fork")
    async with Agent(Scripted([]), store=tmp_path / place).session("fork") as session:
        await session.fork("second")
    again = by_last_message(
        more=[Say(calls=[task("ask it", continue_agent="a")]), "ok"],
        ask=[Say(calls=[task("which one?", continue_agent="b")]), "a door"],
        which="A red door.",
    )
    async with Agent(again, subagents=[], store=tmp_path / place).session("second") as session:
        result = await session.run("more")
    assert answers(result.transcript)[-1] == "a door"
    [of_grandchild] = [one for one in again.requests if "grandchild" in messages(one)]
    assert messages(of_grandchild) == ["grandchild", "which one?"]


@pytest.mark.parametrize("place", ["folder", "sessions.db"])
async def test_a_fork_continues_a_child_as_it_was_when_the_fork_was_made(
    tmp_path: Path, place: str
):
    def make(*replies: Any) -> Agent:
        return Agent(Scripted(list(replies)), subagents=[], store=tmp_path / place)

    replies = Say(calls=[task("look", name="scout")]), "I saw a door.", "ok"
    later = Say(calls=[task("the secret is 42", continue_agent="scout")]), "Noted.", "ok"
    async with make(*replies, *later).session("s") as session:
        await session.run("parent")
        await session.fork("fork")
        await session.run("go on")
    agent = make(Say(calls=[task("again", continue_agent="scout")]), "Still there.", "ok")
    async with agent.session("fork") as session:
        result = await session.run("go on")
    assert answers(result.transcript)[-1] == "Still there."
    assert messages(agent.config.model.requests[1]) == ["look", "again"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["folder", "sessions.db"])
async def test_a_new_child_of_a_fork_is_not_the_one_of_a_later_call_with_the_same_id(
    tmp_path: Path, place: str
):
    def make(prompt: str, answer: str) -> Agent:
        call = ToolCall("call_7", "task", f'{{"description": "d", "prompt": "{prompt}"}}')
        replies: list[Any] = ["hello", Say(calls=[call]), answer, "ok"]
        return Agent(Scripted(replies), subagents=[], store=tmp_path / place)

    async with make("work", "of the origin").session("s") as session:
        await session.run("hi")
        await session.fork("fork")
        await session.run("parent")
    async with make("other work", "of the fork").session("fork") as session:
        await session.run("hi again")
        result = await session.run("parent")
    assert answers(result.transcript) == ["of the fork"]


# --- resumed after a crash ---------------------------------------------------------------


class Crash:
    """Stores whose durable entries are those of the next process."""

    def __init__(self) -> None:
        self.parent = MemoryStore("p")
        self.children: dict[str, MemoryStore] = {}

    async def open_store(self, parent_id: str, call_id: str) -> Store:
        key = f"{parent_id}/{call_id}"
        return self.children.setdefault(key, MemoryStore(key))

    def restart(self) -> Crash:
        after = Crash()
        after.parent = MemoryStore("p", self.parent.durable)
        for key, store in self.children.items():
            after.children[key] = MemoryStore(store.session_id, store.durable)
        return after

    def agent(self, model: Scripted, **settings: Any) -> Agent:
        return Agent(model, subagents=[], open_store=self.open_store, **settings)


async def resume_after(crash: Crash, model: Scripted, **settings: Any) -> Transcript:
    view = fold_entries(crash.parent.durable)
    driver = crash.agent(model, **settings).start(state=view, store=crash.parent)
    while not isinstance(step := await driver.next(), Finished):
        pass
    await driver.aclose()
    assert step.result.reason == "end_turn"
    return driver.transcript


async def test_a_child_that_a_crash_interrupted_continues_where_it_was():
    crash, pause = Crash(), Pause()
    model = Scripted([Say(calls=[task("work")]), Say(calls=[("record", {})]), [pause, "never"]])
    record = RecordingTool(effect="irreversible")
    driver = crash.agent(model, tools=[record]).start(store=crash.parent)
    driver.submit("parent")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    left = crash.restart()  # what is on disk now
    driver.interrupt()
    await step
    await driver.aclose()
    again = Scripted(["the work is done", "ok"])
    transcript = await resume_after(left, again, tools=[RecordingTool(effect="irreversible")])
    assert answers(transcript) == ["the work is done"]
    assert messages(again.requests[0]) == ["work"]
    assert len(record.calls) == 1  # its result was in the log of the child


async def test_a_child_that_was_stopped_by_a_process_that_then_died_continues_where_it_was():
    crash, pause = Crash(), Pause()
    model = Scripted([Say(calls=[task("work")]), Say(calls=[("record", {})]), [pause, "never"]])
    record = RecordingTool()
    driver = crash.agent(model, tools=[record]).start(store=crash.parent)
    driver.submit("parent")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    left = crash.restart()
    driver.interrupt()
    await step
    await driver.aclose()
    left.children = crash.restart().children  # the end of the child was written, not the parent's
    again = Scripted(["the work is done", "ok"])
    transcript = await resume_after(left, again, tools=[record])
    assert answers(transcript) == ["the work is done"]
    assert len(record.calls) == 1


async def test_a_grandchild_that_a_crash_interrupted_continues_with_its_parents():
    crash, pause = Crash(), Pause()
    model = Scripted([Say(calls=[task("child")]), Say(calls=[task("deep")]), [pause, "never"]])
    driver = crash.agent(model).start(store=crash.parent)
    driver.submit("parent")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    left = crash.restart()
    driver.interrupt()
    await step
    await driver.aclose()
    again = Scripted(["dug", "the child is done", "ok"])
    assert answers(await resume_after(left, again)) == ["the child is done"]
    assert [messages(request) for request in again.requests] == [["deep"], ["child"], ["parent"]]


async def test_a_child_that_had_finished_before_the_crash_is_not_run_again():
    crash = Crash()
    driver = crash.agent(Scripted([Say(calls=[task("work")]), "the work is done", "ok"])).start(
        store=crash.parent
    )
    driver.submit("parent")
    while not isinstance(await driver.next(), Finished):
        pass
    await driver.aclose()
    entries = crash.parent.durable
    end = next(n for n, entry in enumerate(entries) if isinstance(entry, Intent))
    crash.parent.durable = entries[: end + 1]  # its result is not on disk
    again = Scripted(["ok"])
    assert answers(await resume_after(crash.restart(), again)) == ["the work is done"]
    assert len(again.requests) == 1


async def test_a_message_to_a_child_that_a_crash_interrupted_is_not_sent_twice():
    crash, pause = Crash(), Pause()
    replies: list[Any] = [
        Say(calls=[task("work", name="w")]),
        "first",
        Say(calls=[task("more", continue_agent="w")]),
        [pause, "never"],
    ]
    driver = crash.agent(Scripted(replies)).start(store=crash.parent)
    driver.submit("parent")
    await driver.next()
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    left = crash.restart()
    driver.interrupt()
    await step
    await driver.aclose()
    again = Scripted(["second", "ok"])
    assert answers(await resume_after(left, again)) == ["first", "second"]
    assert messages(again.requests[0]) == ["work", "more"]


async def test_a_child_without_a_session_is_in_doubt_after_a_crash():
    store, pause = MemoryStore("p"), Pause()
    model = Scripted([Say(calls=[task("work")]), [pause, "never"]])
    driver = Agent(model, subagents=[]).start(store=store)
    driver.submit("parent")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    entries = list(store.durable)
    driver.interrupt()
    await step
    await driver.aclose()
    crash = Crash()
    crash.parent = MemoryStore("p", entries)
    transcript = await resume_after(crash, Scripted(["ok"]))
    assert "outcome unknown" in answers(transcript)[0]
    assert "no session that could be continued" in answers(transcript)[0]


async def test_a_stored_child_that_had_not_begun_begins_after_a_crash(tmp_path: Path):
    store, place, entered = MemoryStore("p"), tmp_path / "children", asyncio.Event()

    async def hang(*_: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    agent = Agent(Scripted([Say(calls=[task("work")])]), subagents=[], prepare_child=hang)  # type: ignore[arg-type]
    driver = agent.start("parent", store=store, children=ChildAgents(place))
    step = asyncio.create_task(driver.next())
    await entered.wait()
    entries = list(store.durable)
    driver.interrupt()
    await step
    await driver.aclose()
    again = Agent(Scripted(["the work is done", "ok"]), subagents=[])
    left = MemoryStore("p", entries)
    resumed = again.start(state=fold_entries(entries), store=left, children=ChildAgents(place))
    while not isinstance(await resumed.next(), Finished):
        pass
    await resumed.aclose()
    assert answers(resumed.transcript) == ["the work is done"]


# --- never more than the parent ----------------------------------------------------------


class SessionHook:
    points: frozenset[HookPoint] = frozenset({"session_start", "user_prompt_submit", "pre_compact"})

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        self.seen.append((hook_input.point, hook_input.caller))
        return AddContext("from the hook")


class Greeting:
    name = "greeting"
    for_children = False
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if any(isinstance(item, NoticeItem) and item.kind == "hi" for item in context.transcript):
            return None
        return context.transcript.append(NoticeItem("hi", kind="hi"))


async def test_session_hooks_and_notices_do_not_repeat_in_children():
    hook = SessionHook()
    model = by_last_message(parent=[Say(calls=[task("child")]), "ok"], child="done")
    await Agent(model, subagents=[], hooks=[hook], mutators=[Greeting()]).run("parent")
    assert hook.seen == [("session_start", "library"), ("user_prompt_submit", "library")]
    child = next(one for one in model.requests if messages(one) == ["child"])
    assert len(child.transcript) == 1


async def test_a_definition_has_its_own_budget_out_of_the_parents():
    card = ModelCard("priced", max_output=100, input_price=0.0, output_price=1_000.0)
    used = Usage(0, 100, requests=1, cost=0.1)
    kind = AgentDefinition("cheap", "cheap", "Be cheap.", max_cost=0.35)

    def answer(request: ModelRequest) -> Say:
        if messages(request)[0] == "parent":
            is_first = len(request.transcript) == 1
            calls = [task("child", subagent_type="cheap")] if is_first else []
            return Say("" if calls else "ok", calls=calls, usage=used)
        if request.options.tool_choice == "none":
            return Say("closing", usage=used)
        return Say(calls=[("record", {"n": len(request.transcript)})], usage=used)

    model = Scripted(answer, card=card)
    result = await Agent(model, [RecordingTool()], subagents=[kind]).run("parent")
    assert answers(result.transcript)[0].startswith("[ended early: budget_exceeded")
    assert result.reason == "end_turn"
    assert 0.2 < (result.cost or 0) <= 0.2 + 0.35  # two requests of the parent, and the child's


async def test_a_mode_of_a_definition_counts_if_it_allows_less(tmp_path: Path):
    act = RecordingTool("act", effect="irreversible")
    kinds = [
        AgentDefinition("careful", "careful", "Ask.", mode="ask"),
        AgentDefinition("bold", "bold", "Go.", mode="bypass"),
    ]

    async def run(kind: str, mode: str) -> int:
        act.calls.clear()
        model = by_last_message(
            parent=[Say(calls=[task("child", subagent_type=kind)]), "ok"],
            child=[Say(calls=[("act", {})]), "done"],
        )
        context = build_policy_context(tmp_path)
        policy = RulePolicy(context, mode=mode, interactive=False)  # type: ignore[arg-type]
        await Agent(model, [act], subagents=kinds, policy=policy).run("parent")
        return len(act.calls)

    assert await run("careful", "bypass") == 0
    assert await run("bold", "ask") == 0
    assert await run("bold", "bypass") == 1


async def test_the_kinds_that_look_cannot_act():
    act, look = RecordingTool("act", effect="irreversible"), RecordingTool("look")
    model = by_last_message(
        parent=[
            Say(calls=[task("one", subagent_type="Explore"), task("two", subagent_type="plan")]),
            "ok",
        ],
        one=[Say(calls=[("act", {}), ("look", {})]), "found"],
        two=[Say(calls=[("act", {})]), "planned"],
    )
    result = await Agent(model, [act, look], subagents=[]).run("parent")
    corrected = "[corrected: subagent_type `Explore` is `explore`]"
    assert answers(result.transcript) == [f"found\n{corrected}", "planned"]
    assert (act.calls, len(look.calls)) == ([], 1)
    child = next(one for one in model.requests if messages(one) == ["one"])
    assert "task" not in [spec.name for spec in child.tools]


async def test_a_definition_replaces_the_kind_of_its_name_and_lists_task_to_get_it():
    kinds = [AgentDefinition("general", "mine", "Mine.", tools=("Look", "Agent"))]
    model = by_last_message(parent=[Say(calls=[task("child")]), "ok"], child="done")
    await Agent(model, [RecordingTool("look"), RecordingTool("act")], subagents=kinds).run("parent")
    child = next(one for one in model.requests if messages(one) == ["child"])
    assert [spec.name for spec in child.tools] == ["look", "task"]
    assert child.system.startswith("Mine.")


# --- files -------------------------------------------------------------------------------

OURS = (
    *("read", "write", "edit", "apply_patch", "bash", "web_fetch", "todo", "task", "task_output"),
    *("mcp__git__log", "mcp__git__show", "mcp__web__get"),
)
ALIASES = {"todo": ("todo_write",), "task_output": ("bash_output",), "task": ("agent",)}
SPECS = [ToolSpec(name, "", {}, aliases=ALIASES.get(name, ())) for name in OURS]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (("Read", "WRITE"), {"read", "write"}),
        (("WebFetch", "web_fetch", "web-fetch", "webfetch"), {"web_fetch"}),
        (("Edit",), {"edit", "apply_patch"}),
        (("MultiEdit",), {"edit", "apply_patch"}),
        (("Bash(git diff:*)",), {"bash"}),
        (("TodoWrite", "BashOutput"), {"todo", "task_output"}),
        (("Agent",), {"task"}),
        (("mcp__git",), {"mcp__git__log", "mcp__git__show"}),
        (("mcp__git__*",), {"mcp__git__log", "mcp__git__show"}),
        (("mcp__web__get",), {"mcp__web__get"}),
        (("*",), set(OURS)),
        (("NoSuchTool",), set()),
    ],
)
def test_names_of_tools_are_understood_whatever_their_form(
    wanted: tuple[str, ...], expected: set[str]
):
    assert match_tools(wanted, SPECS) == expected


def test_names_that_mean_no_tool_are_found():
    assert find_unknown(("Read", "Teleport", "mcp__later__x", "*"), SPECS) == ["Teleport"]


def read(tmp_path: Path, head: str) -> AgentDefinition:
    file = tmp_path / "one.md"
    file.write_text(f"---\nname: one\ndescription: does one thing\n{head}\n---\nDo it.\n")
    return read_agent_file(file)


def test_everything_that_a_file_can_say_is_read(tmp_path: Path):
    one = read(
        tmp_path,
        "tools:\n  - Read\n  - WebFetch\ndisallowedTools: Bash, Write\nmodel: haiku\n"
        "permissionMode: acceptEdits\nmaxTurns: 7\nmax_cost: 0.25\nisolation: worktree\n"
        "background: true\ncolor: blue",
    )
    assert one == AgentDefinition(
        "one",
        "does one thing",
        "Do it.",
        ("Read", "WebFetch"),
        "haiku",
        "accept-edits",
        7,
        str(tmp_path / "one.md"),
        ("Bash", "Write"),
        0.25,
        worktree=True,
        background=True,
    )


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ("mode: fast", "mode is 'fast'; it must be one of plan, ask"),
        ("max_cost: much", "max_cost is 'much'; it must be a number of USD"),
        ("max_cost: nan", "max_cost is 'nan'"),
        ("max_turns: -1", "max_turns is '-1'; it must be a whole number"),
        ("worktree: maybe", "worktree is 'maybe'; it must be true or false"),
    ],
)
def test_a_wrong_value_in_a_file_is_named(tmp_path: Path, head: str, problem: str):
    with pytest.raises(ConfigError, match="one.md: " + problem):
        read(tmp_path, head)


async def test_a_kind_that_needs_a_worktree_says_that_there_are_none():
    kinds = [AgentDefinition("apart", "apart", "Be apart.", worktree=True)]
    model = by_last_message(parent=[Say(calls=[task("child", subagent_type="apart")]), "ok"])
    result = await Agent(model, subagents=kinds).run("parent")
    assert "need a git worktree, and there are none here" in answers(result.transcript)[0]


def test_a_wrong_mode_of_a_definition_is_an_error_of_the_agent():
    kinds = [AgentDefinition("odd", "odd", "Be odd.", mode="plann")]
    with pytest.raises(ConfigError, match="the mode of 'odd' is 'plann'; expected one of plan"):
        Agent(Scripted([]), subagents=kinds)


async def test_what_a_child_has_spent_is_durable_in_the_parents_log_before_its_effect():
    parent = MemoryStore("parent")
    stores = {"parent": parent}
    durable: list[Usage] = []

    class Pays(RecordingTool):
        async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
            durable.append(fold_entries(parent.durable).child_usage)
            return await super().call(arguments, context)

    used = Usage(input=1, requests=1, cost=0.01)
    model = by_last_message(
        go=[Say(calls=[task("child")]), "done"],
        child=[Say(calls=[("record", {})], usage=used), Say("paid", usage=used)],
    )
    agent = Agent(
        model,
        [Pays(effect="irreversible")],
        subagents=[],
        store=lambda session_id: stores.setdefault(session_id, MemoryStore(session_id)),
    )
    await agent.run("go", session="parent")
    assert durable == [used]


async def test_a_definition_brings_a_model_tools_and_an_output_type():
    seen: list[str] = []

    def look(city: str) -> str:
        """Look at a city."""
        seen.append(city)
        return "24 degrees"

    own = Scripted([Say(calls=[("look", {"city": "Graz"})]), '{"degrees": 24}'])
    scout = AgentDefinition(
        "scout", "Looks.", "Look.", ["record", look], own, output_type=dict[str, int]
    )
    model = Scripted([Say(calls=[task("Graz", subagent_type="scout")]), "done"])
    result = await Agent(model, [RecordingTool()], subagents=[scout]).run("x")
    assert seen == ["Graz"]
    names = {spec.name for spec in own.requests[0].tools}
    assert names == {"record", "look", "final_answer"}
    assert answers(result.transcript) == ['{"degrees": 24}']
    with pytest.raises(ConfigError, match="a name, a function or a tool"):
        AgentDefinition("scout", "Looks.", "Look.", [3])  # type: ignore[list-item]
