"""Stories of child agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.patience import until
from treadle import Agent, Usage
from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.agent_files import read_agent_file, read_agent_files
from treadle.agents.agent_settings import Approver
from treadle.budgets import CostBudget, SharedBudget
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate
from treadle.core.contracts.hook import HookPoint
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.policy import Allow, AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.errors import AccessDenied, ApprovalPending, ConfigError
from treadle.core.events import ApprovalRequired, ChildEvent, TextDelta, ToolDetached, TurnFinished
from treadle.core.steps import (
    AfterToolResult,
    ApprovalRequest,
    AwaitingInput,
    DriverSnapshot,
    Finished,
    PendingApproval,
)
from treadle.core.transcript import NoticeItem, ToolCall, ToolResultItem, Transcript, UserItem
from treadle.core.transcript.entries import ItemAdded
from treadle.lib.text.frontmatter import FrontmatterError, parse_frontmatter, parse_list
from treadle.models import Pause, Say, Scripted
from treadle.sessions import Journal, resume
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


def task(prompt: str, **more: object) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt, **more}


def answers(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, ToolResultItem)]


def by_prompt(**replies: object):
    """A model that serves parent and children: it answers by what was said first."""
    left = {
        key: list(value) if isinstance(value, list) else [value] for key, value in replies.items()
    }

    def answer(request):
        first = request.transcript[0]
        assert isinstance(first, UserItem)
        return left[first.text.split()[0]].pop(0)

    return Scripted(answer)


async def test_a_child_works_on_its_own_and_its_last_words_are_the_result():
    model = by_prompt(
        parent=[Say(calls=[task("child: count the files")]), "There are three."],
        **{"child:": [Say(calls=[("record", {})]), "I found three files."]},
    )
    record = RecordingTool()
    result = await Agent(model, [record], subagents=[]).run("parent")
    assert answers(result.transcript) == ["I found three files."]
    assert len(record.calls) == 1
    assert len(model.requests[1].transcript) == 1  # nothing of the parent's history


async def test_several_children_run_side_by_side():
    pauses = [Pause(), Pause()]
    model = by_prompt(
        parent=[Say(calls=[task("one"), task("two")]), "Both done."],
        one=[[pauses[0], "first"]],
        two=[[pauses[1], "second"]],
    )
    running = asyncio.create_task(Agent(model, subagents=[]).run("parent"))
    await asyncio.gather(*(pause.reached.wait() for pause in pauses))
    for pause in reversed(pauses):
        pause.release()
    assert answers((await running).transcript) == ["first", "second"]


async def test_a_childs_events_are_seen_through_the_parent():
    witness = RecordingObserver()
    model = by_prompt(parent=[Say(calls=[task("child")]), "ok"], child=["hello"])
    await Agent(model, subagents=[], observers=[witness]).run("parent")
    children = witness.events_of(ChildEvent)
    assert any(isinstance(event.child, TextDelta) for event in children)
    assert sum(isinstance(event.child, TurnFinished) for event in children) == 1
    assert {event.call_id for event in children} == {"call_1"}
    assert len(witness.events_of(TurnFinished)) == 1


async def test_fault_77_a_child_that_dies_is_an_error_result_and_its_session_is_kept():
    stores: list[MemoryStore] = []

    async def open_store(parent: str, call_id: str) -> MemoryStore:
        stores.append(MemoryStore(f"{parent}/{call_id}"))
        return stores[-1]

    model = by_prompt(parent=[Say(calls=[task("child")]), "Pity."], child=[AccessDenied("no key")])
    result = await Agent(model, subagents=[], open_store=open_store).run("parent")
    assert answers(result.transcript)[0].startswith("error: the agent failed: no key")
    assert result.text == "Pity."
    assert any(isinstance(entry, ItemAdded) for entry in stores[0].durable)
    assert stores[0].is_closed


async def test_interrupting_the_parent_stops_the_child():
    pause = Pause()
    model = by_prompt(parent=[Say(calls=[task("child")])], child=[[pause, "never"]])
    driver = Agent(model, subagents=[]).start(prompt="parent")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.reason == "aborted"
    assert model.open_streams == 0
    await driver.aclose()


async def test_a_child_in_the_background_reports_later():
    pause, witness = Pause(), RecordingObserver()
    model = by_prompt(
        parent=[Say(calls=[task("child", run_in_background=True)]), "Started.", "It is done."],
        child=[[pause, "the report"]],
    )
    driver = Agent(model, subagents=[], observers=[witness]).start(prompt="parent")
    await driver.next()
    assert len(witness.events_of(ToolDetached)) == 1
    await driver.next()
    pause.release()
    await driver.tasks.wait()
    driver.submit("And?")
    await driver.next()
    notices = [item.text for item in driver.transcript if isinstance(item, NoticeItem)]
    assert "the report" in notices[0]
    await driver.aclose()


async def test_children_are_bounded_in_depth():
    answered: list[str] = []

    def answer(request):
        results = [i for i in request.transcript if isinstance(i, ToolResultItem)]
        answered.extend(item.text for item in results)
        return "up" if results else Say(calls=[task("deeper")])

    await Agent(Scripted(answer), subagents=[]).run("parent")
    assert any("nested at most 2 levels deep" in text for text in answered)


async def test_a_childs_tools_and_permissions_are_at_most_its_parents():
    look, act = RecordingTool("look"), RecordingTool("act", effect="irreversible")
    kinds = [
        AgentDefinition("reader", "reads", "Read.", tools=("look",)),
        AgentDefinition("planner", "plans", "Plan.", mode="plan"),
    ]
    model = by_prompt(
        parent=[
            Say(calls=[task("one", subagent_type="reader"), task("two", subagent_type="planner")]),
            "ok",
        ],
        one=[Say(calls=[("act", {})]), "read"],
        two=[Say(calls=[("act", {})]), "planned"],
    )
    await Agent(model, [look, act], subagents=kinds, instructions="Parent.").run("parent")
    assert act.calls == []
    reader = next(r for r in model.requests if r.system.startswith("Read."))
    assert [spec.name for spec in reader.tools] == ["look"]  # `task` is not in its list


async def test_money_is_kept_over_the_whole_tree():
    card = ModelCard("priced", max_output=100, input_price=0.0, output_price=1_000.0)
    used = Usage(0, 100, requests=1, cost=0.1)
    purse = SharedBudget(1.6)

    def answer(request):
        first = request.transcript[0].text
        results = sum(isinstance(i, ToolResultItem) for i in request.transcript)
        if first == "parent" and not results:
            return Say(calls=[task(f"child {n}") for n in range(4)], usage=used)
        if request.options.tool_choice == "none":
            return Say("closing", usage=used)
        return Say(calls=[("record", {})], usage=used)

    model = Scripted(answer, card=card)
    agent = Agent(model, [RecordingTool()], subagents=[], gates=[CostBudget(purse)])
    result = await agent.run("parent")
    assert result.reason == "budget_exceeded"
    assert purse.spent <= 1.6
    assert purse.reserved == pytest.approx(0.0)


class Lineages(BaseGate):
    """Notes which session asks, and who its parents are."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[str, ...]] = {}

    def admit(self, estimate: RequestEstimate) -> Admit:
        said = estimate.transcript[0]
        assert isinstance(said, UserItem)
        self.seen[said.text] = (estimate.session_id, *estimate.parent_ids)
        return Admit()


async def test_a_gate_is_told_the_parents_of_a_session():
    lineages = Lineages()
    model = by_prompt(
        parent=[Say(calls=[task("child")]), "c"],
        child=[Say(calls=[task("grandchild")]), "b"],
        grandchild="a",
    )
    result = await Agent(model, subagents=[], gates=[lineages]).run("parent")
    seen = lineages.seen
    assert seen["parent"] == (result.session_id,)
    assert seen["child"][1:] == seen["parent"]
    assert seen["grandchild"][1:] == seen["child"]


def test_definitions_are_read_from_files(tmp_path: Path):
    folder = tmp_path / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text(
        "---\nname: reviewer\ndescription: >-\n  Reads a change\n  and judges it.\n"
        "tools: Read, Grep\nmodel: inherit\n---\n\nYou review.\n"
    )
    (folder / "broken.md").write_text("---\nname: broken\nno colon here\n---\nBody\n")
    (folder / "silent.md").write_text("Just a body.\n")
    found, problems = read_agent_files([tmp_path])
    assert found == [
        AgentDefinition(
            "reviewer",
            "Reads a change and judges it.",
            "You review.",
            ("Read", "Grep"),
            origin=str(folder / "reviewer.md"),
        )
    ]
    assert len(problems) == 2
    assert "line 3" in problems[0]
    with pytest.raises(ConfigError, match="the agent is not used: it has no description"):
        read_agent_file(folder / "silent.md")


@pytest.mark.parametrize(
    ("text", "head", "body"),
    [
        ("no head", {}, "no head"),
        ("---\na: 1\n---\nx", {"a": "1"}, "x"),
        ("---\r\na: 'q: r'\r\n---\r\nx", {"a": "q: r"}, "x"),
        ("---\na: [x, 'y']\nb:\n  - c\n  - d\n---\n", {"a": ["x", "y"], "b": ["c", "d"]}, ""),
        ("---\na: |\n  one\n  two\n# remark\nb: c\n---\nz", {"a": "one\ntwo", "b": "c"}, "z"),
    ],
)
def test_the_head_of_a_file(text: str, head: object, body: str):
    assert parse_frontmatter(text) == (head, body)


def test_a_broken_head_says_where():
    with pytest.raises(FrontmatterError, match="no closing"):
        parse_frontmatter("---\na: 1\n")
    assert parse_list("a, b,") == ["a", "b"]
    assert parse_list(None) is None


# --- never more than the parent ----------------------------------------------------------


async def test_a_child_has_at_most_its_parents_rounds():
    model = by_prompt(
        parent=[Say(calls=[task("child")]), "ok"],
        child=[Say(calls=[("record", {"n": n})]) for n in range(9)],
    )
    result = await Agent(model, [record := RecordingTool()], subagents=[], max_turns=3).run(
        "parent"
    )
    assert len(record.calls) == 3
    assert answers(result.transcript)[0].startswith("[ended early: max_turns")


async def test_children_are_bounded_in_number_also_while_their_sessions_are_opened():
    opened = asyncio.Event()
    running = most = 0
    openings: list[str] = []

    async def open_store(parent: str, call_id: str) -> MemoryStore:
        openings.append(call_id)
        await opened.wait()
        return MemoryStore(call_id)

    async def answer(request):
        nonlocal running, most
        if request.transcript[0].text == "parent":
            results = [i for i in request.transcript if isinstance(i, ToolResultItem)]
            return "ok" if results else Say(calls=[task(f"child {n}") for n in range(12)])
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "done"

    agent = Agent(Scripted(answer), subagents=[], open_store=open_store)
    run = asyncio.create_task(agent.run("parent"))
    await until(lambda: len(openings) == 8)
    opened.set()
    results = answers((await run).transcript)
    assert most <= 8
    assert sum("agents already running" in text for text in results) == 4


async def test_the_session_of_a_child_that_cannot_be_made_is_closed():
    stores: list[MemoryStore] = []

    async def open_store(parent: str, call_id: str) -> MemoryStore:
        stores.append(MemoryStore(call_id))
        return stores[-1]

    kinds = [AgentDefinition("odd", "odd", "Be odd.", model="no-such-provider/nothing")]
    model = by_prompt(parent=[Say(calls=[task("child", subagent_type="odd")]), "Pity."])
    result = await Agent(model, subagents=kinds, open_store=open_store).run("parent")
    assert answers(result.transcript)[0].startswith("error: ")
    assert all(store.is_closed for store in stores)


async def test_the_model_of_a_child_is_closed_with_it(monkeypatch: pytest.MonkeyPatch):
    import treadle.agents.agent as agents

    made: list[Scripted] = []

    def named(model):
        if not isinstance(model, str):
            return model
        made.append(Scripted(["done"], name=model))
        return made[-1]

    monkeypatch.setattr(agents, "resolve_model", named)
    kinds = [AgentDefinition("other", "other", "Think.", model="other/model")]
    model = by_prompt(parent=[Say(calls=[task("child", subagent_type="other")]), "ok"])
    result = await Agent(model, subagents=kinds).run("parent")
    assert answers(result.transcript) == ["done"]
    assert [one.closed for one in made] == [True]
    assert not model.closed


async def test_hooks_learn_that_a_child_begins_and_stops():
    seen: list[tuple[str, object]] = []

    class Hears:
        points: frozenset[HookPoint] = frozenset({"subagent_start", "stop", "subagent_stop"})

        async def run(self, hook_input):
            seen.append((hook_input.point, hook_input.data.get("agent_type")))

    model = by_prompt(parent=[Say(calls=[task("child")]), "ok"], child=["done"])
    await Agent(model, subagents=[], hooks=[Hears()]).run("parent")
    started, *stopped = seen
    assert started == ("subagent_start", "general")
    assert stopped == [("subagent_stop", "general"), ("stop", None)]


async def test_an_approval_inside_a_child_is_asked_of_the_parents_approver():
    class Asks(AllowAll):
        async def decide(self, request):
            return Ask("sure?") if request.tool.name == "act" else Allow()

    asked: list[str] = []

    def approve(approval):
        asked.append(approval.call.name)
        return len(asked) == 1

    model = by_prompt(
        parent=[Say(calls=[task("child")]), "ok"],
        child=[Say(calls=[("act", {"n": 1})]), Say(calls=[("act", {"n": 2})]), "done"],
    )
    act = RecordingTool("act", effect="irreversible")
    agent = Agent(model, [act], subagents=[], policy=Asks(), approve=approve)
    await agent.run("parent")
    assert asked == ["act", "act"]
    assert act.calls == [{"n": 1}]


async def test_a_background_child_is_stopped_when_the_parent_is_closed(no_leaks: object):
    pause = Pause()
    model = by_prompt(
        parent=[Say(calls=[task("child", run_in_background=True)]), "Started."],
        child=[[pause, "never"]],
    )
    stores: list[MemoryStore] = []

    async def open_store(parent: str, call_id: str) -> MemoryStore:
        stores.append(MemoryStore(call_id))
        return stores[-1]

    driver = Agent(model, subagents=[], open_store=open_store).start(prompt="parent")
    await driver.next()
    await driver.next()
    await pause.reached.wait()
    await driver.aclose()
    assert model.open_streams == 0
    assert stores[0].is_closed


async def test_the_cost_and_usage_of_a_run_include_its_children_and_theirs():
    used = Usage(10, 1, requests=1, cost=0.25)
    model = by_prompt(
        parent=[Say(calls=[task("child"), task("other")], usage=used), Say("ok", usage=used)],
        child=[Say(calls=[task("grandchild")], usage=used), Say("b", usage=used)],
        other=[Say("c", usage=used)],
        grandchild=[Say("a", usage=used)],
    )
    agent = Agent(model, subagents=[])
    result = await agent.run("parent")
    assert (result.cost, result.usage.requests) == (1.5, 6)
    assert (result.turn.usage.cost, result.turn.child_usage.cost) == (0.5, 1.0)


async def test_the_cost_of_children_is_still_known_after_a_resume_and_in_a_snapshot(
    tmp_path: Path,
):
    used = Usage(10, 1, requests=1, cost=0.25)
    model = by_prompt(
        parent=[Say(calls=[task("child")], usage=used), Say("ok", usage=used)],
        child=[Say(calls=[task("grandchild")], usage=used), Say("b", usage=used)],
        grandchild=[Say("a", usage=used)],
    )
    agent = Agent(model, subagents=[])
    driver = agent.start(store=Journal.create(tmp_path / "s"))
    driver.submit("parent")
    assert isinstance(await driver.next(), AfterToolResult)
    middle = DriverSnapshot.from_json(driver.snapshot().to_json())
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    assert (driver.usage.cost, driver.total_usage.cost) == (0.5, 1.25)
    resumed = resume(tmp_path / "s")
    again = agent.start(state=resumed.state, store=resumed.journal)
    assert (again.usage.cost, again.total_usage.cost) == (0.5, 1.25)
    await again.aclose()
    copy = Agent(Scripted([Say("ok", usage=used)])).start(snapshot=middle, store=MemoryStore())
    assert copy.total_usage.cost == 1.0
    step = await copy.next()
    assert isinstance(step, Finished)
    assert (step.result.usage.cost, step.result.child_usage.cost) == (0.5, 0.75)


async def test_a_structured_run_counts_its_children_over_all_its_turns():
    used = Usage(10, 1, requests=1, cost=0.25)
    card = ModelCard("able", abilities=frozenset({"schema"}))
    replies = [Say(calls=[task("child")], usage=used), Say("a", usage=used), Say("no", usage=used)]
    model = Scripted([*replies, *replies[:2], Say('{"n": 1}', usage=used)], card=card)
    result = await Agent(model, subagents=[]).run("parent", output=dict[str, int])
    assert (result.output, result.cost) == ({"n": 1}, 1.5)


# --- approvals of a child ----------------------------------------------------------------


class AsksForRecord(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?") if request.tool.name == "record" else Allow()


def with_a_careful_child(approve: Approver | None = None) -> tuple[Agent, RecordingTool]:
    record = RecordingTool(effect="irreversible")
    model = by_prompt(
        parent=[Say(calls=[task("child")]), "parent is done"],
        child=[Say(calls=[("record", {"n": 1}), ("record", {"n": 2})]), "child is done"],
    )
    agent = Agent(model, [record], subagents=[], policy=AsksForRecord(), approve=approve)
    return agent, record


async def test_the_reader_of_a_stream_decides_on_the_calls_of_a_child():
    agent, record = with_a_careful_child()
    async with agent.stream("parent") as events:
        async for event in events:
            if isinstance(event, ChildEvent) and isinstance(event.child, ApprovalRequired):
                call = event.child.call
                if call.arguments == {"n": 1}:
                    assert events.approve(call.id)
                else:
                    assert events.deny(call.id, "not that one", session_id=event.child.session_id)
    assert events.result.text == "parent is done"
    assert record.calls == [{"n": 1}]


async def test_next_returns_the_approvals_of_a_child():
    agent, record = with_a_careful_child()
    driver = agent.start(prompt="parent")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    assert [call.arguments for call in request.calls] == [{"n": 1}, {"n": 2}]
    assert {approval.session_id for approval in request.pending} != {driver.session_id}
    with pytest.raises(ApprovalPending):
        await driver.next()
    request.approve(request.calls[0].id)
    assert driver.deny(request.calls[1].id, "not that one")
    assert isinstance(await driver.next(), AfterToolResult)
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "parent is done"
    assert record.calls == [{"n": 1}]


async def test_the_approvals_of_a_grandchild_come_up_too():
    record = RecordingTool(effect="irreversible")
    model = by_prompt(
        parent=[Say(calls=[task("child")]), "done"],
        child=[Say(calls=[task("grandchild")]), "b"],
        grandchild=[Say(calls=[("record", {})]), "a"],
    )
    driver = Agent(model, [record], subagents=[], policy=AsksForRecord()).start(prompt="parent")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve_all()
    assert isinstance(await driver.next(), AfterToolResult)
    assert len(record.calls) == 1


async def test_two_children_that_use_the_same_call_id_are_not_mixed_up():
    record = RecordingTool(effect="irreversible")

    def calls(name: str) -> Say:
        return Say(calls=[ToolCall("same", "record", f'{{"of": "{name}"}}')])

    model = by_prompt(
        parent=[Say(calls=[task("one"), task("two")]), "done"],
        one=[calls("one"), "1"],
        two=[calls("two"), "2"],
    )
    driver = Agent(model, [record], subagents=[], policy=AsksForRecord()).start(prompt="parent")
    first = await driver.next()
    assert isinstance(first, ApprovalRequest)
    first.deny_all()
    second = await driver.next()
    assert isinstance(second, ApprovalRequest)
    second.approve_all()
    assert isinstance(await driver.next(), AfterToolResult)
    assert record.calls == [second.calls[0].arguments]


async def test_interrupting_while_a_child_waits_for_an_approval_ends_both():
    agent, record = with_a_careful_child()
    driver = agent.start(prompt="parent")
    assert isinstance(await driver.next(), ApprovalRequest)
    driver.interrupt()
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    assert record.calls == []
    assert driver.approvals == ()
    await driver.aclose()


async def test_leaving_a_stream_while_a_child_waits_for_an_approval_ends_both():
    agent, record = with_a_careful_child()
    async with agent.stream("parent") as events:
        async for event in events:
            if isinstance(event, ChildEvent) and isinstance(event.child, ApprovalRequired):
                break
    assert events.result.reason == "aborted"
    assert record.calls == []


async def test_a_driver_that_is_closed_while_a_child_waits_leaves_nothing_running(no_leaks: object):
    agent, record = with_a_careful_child()
    driver = agent.start(prompt="parent")
    assert isinstance(await driver.next(), ApprovalRequest)
    await driver.aclose()
    assert record.calls == []


async def test_a_child_in_the_background_can_be_answered_later():
    record = RecordingTool(effect="irreversible")
    model = by_prompt(
        parent=[Say(calls=[task("child", run_in_background=True)]), "started", "fine"],
        child=[Say(calls=[("record", {})]), "child is done"],
    )
    driver = Agent(model, [record], subagents=[], policy=AsksForRecord()).start(prompt="parent")
    steps = []
    while not record.calls:
        match step := await driver.next():
            case ApprovalRequest():
                step.approve_all()
                await driver.tasks.wait()
            case AwaitingInput():
                await asyncio.sleep(0)
        steps.append(type(step))
    assert ApprovalRequest in steps
    await driver.aclose()


async def test_an_approver_decides_for_children_as_before():
    asked: list[str] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval.call.name)
        return True

    agent, record = with_a_careful_child(approve=approve)
    assert (await agent.run("parent")).text == "parent is done"
    assert (asked, len(record.calls)) == (["record", "record"], 2)
    agent, record = with_a_careful_child()
    assert (await agent.run("parent")).text == "parent is done"
    assert record.calls == []


async def test_only_a_definition_that_lists_task_gets_it(tmp_path: Path):
    (tmp_path / "file.md").write_text("---\nname: file\ndescription: d\n---\nWork.\n")
    (tmp_path / "boss.md").write_text(
        "---\nname: boss\ndescription: d\ntools: Look, Task\n---\nLead.\n"
    )
    kinds = [
        AgentDefinition("plain", "d", "Work."),
        AgentDefinition("all", "d", "Work.", tools=("*",)),
        read_agent_file(tmp_path / "file.md"),
        read_agent_file(tmp_path / "boss.md"),
    ]
    names = ["plain", "all", "file", "boss", "general", "fork"]
    calls = [task(name, subagent_type=name) for name in names]
    tools: dict[str, list[str]] = {}

    def answer(request):
        said = [item.text for item in request.transcript if isinstance(item, UserItem)][-1]
        tools.setdefault(said, [spec.name for spec in request.tools])
        return Say(calls=calls) if said == "parent" and len(request.transcript) == 1 else "ok"

    await Agent(Scripted(answer), [RecordingTool("look")], subagents=kinds).run("parent")
    both = ["look", "task"]
    assert tools == {"plain": ["look"], "file": ["look"]} | dict.fromkeys(
        ["parent", "all", "boss", "general", "fork"], both
    )


def test_agents_in_subfolders_are_found(tmp_path: Path):
    folder = tmp_path / ".claude/agents/team"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text(
        "---\nname: a\ndescription: d\ntools: [Read, 'Grep']\n---\nWork.\n"
    )
    [definition], problems = read_agent_files([tmp_path])
    assert (definition.name, definition.tools, problems) == ("a", ("Read", "Grep"), [])
