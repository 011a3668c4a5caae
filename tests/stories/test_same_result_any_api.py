"""Property: whatever happens in a run, every door gives the same transcript and every law holds.

A plan is a list of replies; each holds calls that succeed, fail, are unknown, malformed, need
an approval, are denied, say something to the agent while it works, or interrupt it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Agent
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolContext
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, AwaitingInput, Finished, PendingApproval
from treadle.core.transcript import AssistantItem, Item, ToolCall, Transcript, to_user_item
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.models import Say, Scripted
from treadle.testing.stores import MemoryStore
from treadle.tools.function import tool

Call = tuple[str, dict[str, Any] | str]
Plan = list[tuple[str, list[Call]]]

SAFE_CALLS: list[st.SearchStrategy[Call]] = [
    st.integers(0, 9).map(lambda n: ("look", {"n": n})),
    st.integers(0, 9).map(lambda n: ("act", {"n": n})),
    st.just(("fail", {})),
    st.just(("nobody", {})),
    st.just(("look", '{"n": ')),
    st.just(("look", {"n": "many"})),
    st.booleans().map(lambda yes: ("ask", {"yes": yes})),
    st.just(("forbidden", {})),
    st.integers(0, 9).map(lambda n: ("steer", {"text": f"also {n}"})),
]
STOP: st.SearchStrategy[Call] = st.just(("stop", {}))


def plans(calls: list[st.SearchStrategy[Call]]) -> st.SearchStrategy[Plan]:
    reply = st.tuples(
        st.sampled_from(["", "Let me see.", "Ünïcode 🎉"]), st.lists(st.one_of(calls), max_size=4)
    )
    return st.lists(reply, max_size=5)


class Rules:
    async def decide(self, request: PermissionRequest) -> Verdict:
        match request.tool.name:
            case "ask":
                return Ask("it asks")
            case "forbidden":
                return Deny("never")
        return Allow()

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


@tool(effect="pure")
async def look(n: int) -> str:
    await asyncio.sleep(0)
    return f"saw {n}"


@tool
async def act(n: int) -> str:
    return f"did {n}"


@tool(effect="pure")
async def fail() -> str:
    raise ValueError("it failed")


@tool
async def ask(yes: bool) -> str:
    return f"asked {yes}"


@tool
async def forbidden() -> str:
    raise AssertionError("a denied call was run")


@tool
async def steer(text: str, context: ToolContext) -> str:
    context.services["driver"].steer(text)
    return "told"


@tool
async def stop(context: ToolContext) -> str:
    context.services["driver"].interrupt()
    return "stopped"


class Reachable(Agent):
    """An agent whose tools can reach the driver that is running them."""

    def start(self, *words: Any, **options: Any) -> Driver:
        driver = super().start(*words, **options)
        self.config.services["driver"] = driver
        return driver


def approves(approval: PendingApproval) -> bool:
    return approval.call.arguments == {"yes": True}


def agent(plan: Plan, said: int = 0) -> Reachable:
    replies = [Say(text, calls=calls) for text, calls in plan if text or calls]
    model = Scripted(_renumbered([*replies, *["The end."] * 12], said))
    return Reachable(
        model,
        [look, act, fail, ask, forbidden, steer, stop],
        policy=Rules(),
        approve=approves,
    )


def _renumbered(replies: list[Any], said: int) -> list[Any]:
    """The replies that are left after `said` of them, with call ids that depend on their place."""
    numbered = []
    for place, reply in enumerate(replies):
        if isinstance(reply, Say):
            calls = [
                _call(f"call_{place}_{index}", *call)  # type: ignore[misc]
                for index, call in enumerate(reply.calls)
            ]
            reply = Say(reply.text, calls=calls)
        numbered.append(reply)
    return numbered[said:]


def _call(call_id: str, name: str, arguments: dict[str, Any] | str) -> ToolCall:
    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCall(call_id, name, raw)


async def by_run(plan: Plan) -> list[Item]:
    return list((await agent(plan).run("go")).transcript)


async def by_stream(plan: Plan) -> list[Item]:
    async with agent(plan).stream("go") as events:
        kinds = [type(event).__name__ async for event in events]
    assert kinds[-1] == "TurnFinished"
    assert kinds.count("TurnFinished") == 1
    return list(events.driver.transcript)


async def by_history(plan: Plan) -> list[Item]:
    return list((await agent(plan).run(history=[to_user_item("go")])).transcript)


async def by_session(plan: Plan) -> list[Item]:
    async with agent(plan).session(store=MemoryStore) as session:
        await session.run("go")
        return list(session.transcript)


async def by_step(plan: Plan, store: MemoryStore | None = None) -> list[Item]:
    driver = agent(plan).start(prompt="go", store=store)
    await drive(driver)
    return list(driver.transcript)


async def drive(driver: Driver) -> None:
    """To the end of the turn; every law holds after every step."""
    while True:
        step = await driver.next()
        assert find_violations(driver.transcript) == []
        if isinstance(step, ApprovalRequest):
            for approval in step.pending:
                if approves(approval):
                    step.approve(approval.call.id)
                else:
                    step.deny(approval.call.id)
        elif isinstance(step, (Finished, AwaitingInput)):
            return


@settings(max_examples=60)
@given(plans([*SAFE_CALLS, STOP]))
async def test_all_doors_give_the_same_lawful_transcript(plan: Plan):
    stepped = await by_step(plan)
    assert find_violations(stepped) == []
    assert await by_run(plan) == stepped
    assert await by_stream(plan) == stepped
    assert await by_history(plan) == stepped
    assert await by_session(plan) == stepped


@settings(max_examples=40)
@given(plans(SAFE_CALLS))
async def test_stopping_after_every_item_and_going_on_gives_the_same_end(plan: Plan):
    store = MemoryStore()
    whole = await by_step(plan, store)
    for cut, entry in enumerate(store.entries):
        if not isinstance(entry, ItemAdded):
            continue
        view = fold_entries(store.entries[: cut + 1])
        replies = sum(isinstance(item, AssistantItem) for item in view.transcript)
        driver = agent(plan, said=replies).start(state=view)
        await drive(driver)
        assert list(driver.transcript) == whole


@settings(max_examples=40)
@given(plans([*SAFE_CALLS, STOP]), st.integers(1, 40))
async def test_an_interruption_at_any_point_leaves_a_session_that_goes_on(plan: Plan, after: int):
    """The `after`-th event interrupts the run; then a new message is answered."""
    chosen = agent(plan)
    driver = chosen.start(prompt="go")

    class Finger:
        left = after

        def on_event(self, event: object) -> None:
            self.left -= 1
            if self.left == 0:
                driver.interrupt()

        def on_item(self, position: int, item: Item) -> None:
            return None

    driver.watch(Finger())
    await drive(driver)
    assert find_violations(driver.transcript) == []
    before = Transcript(driver.transcript)
    driver.submit("And now?")
    await drive(driver)
    assert list(driver.transcript)[: len(before)] == list(before)
    assert find_violations(driver.transcript) == []
