"""Cases of recorded sessions: the tools answer as they did, and the first difference is named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from treadle import Agent, Result, tool
from treadle.contracts import Allow, BasePolicy, Deny, PermissionRequest, Verdict
from treadle.evals import Case, contains, evaluate, same_calls
from treadle.models import Say, Scripted
from treadle.testing import ChangingSource
from treadle.tools.late_tools import StableToolList


class Shop:
    """Tools that remember what was really called."""

    def __init__(self) -> None:
        self.refunds: list[int] = []
        self.reads: list[int] = []
        self.tools = [tool(self.refund, effect="irreversible"), tool(self.read, effect="pure")]

    def refund(self, order: int) -> str:
        """Pay an order back."""
        self.refunds.append(order)
        return f"paid {order} back"

    def read(self, order: int) -> str:
        """Read an order."""
        self.reads.append(order)
        return f"order {order}, version {len(self.reads)}"


READ = Say(calls=[("read", {"order": 1})])
PAY = Say(calls=[("refund", {"order": 1})])


async def record(shop: Shop, folder: Path) -> tuple[Agent, Case]:
    agent = Agent(Scripted([READ, PAY, "Order 1 is paid back."]), shop.tools, store=folder)
    await agent.run("Refund order 1", session="refund")
    return agent, await Case.from_session(agent, "refund", checks=[contains])


async def test_tools_answer_as_recorded_and_nothing_happens_again(tmp_path: Path):
    shop = Shop()
    agent, case = await record(shop, tmp_path)
    model = Scripted([READ, READ, PAY, "Order 1 is paid back."])
    report = await evaluate(agent.replace(model=model), [case])
    assert report.passed, str(report)
    assert (shop.refunds, shop.reads) == ([1], [1])
    results = [item.text for item in model.requests[-1].transcript if hasattr(item, "call_id")]
    assert results == ["order 1, version 1"] * 2 + ["paid 1 back"]


@pytest.mark.parametrize(
    ("replies", "difference"),
    [
        (
            [Say(calls=[("refund", {"order": 2})]), "Order 1 is paid back."],
            'call 1 was refund {"order":1}; now it is refund {"order":2}',
        ),
        (["Order 1 is paid back."], 'call 1 was refund {"order":1}; now it is none'),
        (
            [PAY, PAY, "Order 1 is paid back."],
            'call 2 was none; now it is refund {"order":1}',
        ),
    ],
    ids=["other", "missing", "more"],
)
async def test_the_first_different_effect_is_named(
    tmp_path: Path, replies: list[str | Say], difference: str
):
    shop = Shop()
    agent, case = await record(shop, tmp_path)
    report = await evaluate(agent.replace(model=Scripted(replies)), [case])
    assert report.cases[0].reason == f"recorded calls: {difference}"
    assert shop.refunds == [1]


async def test_a_pure_tool_reads_what_was_not_recorded_if_the_policy_allows_it(tmp_path: Path):
    class NotTwo(BasePolicy):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Allow() if request.arguments["order"] != 2 else Deny("not this one")

    shop = Shop()
    agent, case = await record(shop, tmp_path)
    reads = Say(calls=[("read", {"order": 2}), ("read", {"order": 3})])
    model = Scripted([reads, PAY, "Order 1 is paid back."])
    changed = agent.replace(model=model, policy=NotTwo())
    report = await evaluate(changed, [case], checks=[same_calls])
    assert shop.reads == [1, 3]
    assert report.cases[0].reason == (
        'same_calls: call 1 was read {"order":1}; now it is read {"order":2}'
    )


async def test_a_tool_that_is_called_through_another_one_has_no_effect_either(tmp_path: Path):
    shop = Shop()
    agent, case = await record(shop, tmp_path)
    late = ChangingSource([])
    stable = StableToolList(late)
    stable.tools()  # the list is known: what comes now is called by use_tool
    late.set_tools(shop.tools)
    by_name = ("use_tool", {"name": "refund", "arguments": {"order": 1}})
    model = Scripted([Say(calls=[by_name]), PAY, "Order 1 is paid back."])
    changed = agent.replace(model=model, tools=[stable], mutators=[stable])
    report = await evaluate(changed, [case])
    assert report.cases[0].reason == (
        'recorded calls: call 2 was none; now it is refund {"order":1}'
    )
    assert shop.refunds == [1]


async def test_a_check_that_does_not_end_is_an_error_that_names_it():
    ended = threading.Event()

    def never_ends(result: Result, case: Case) -> None:
        ended.wait()

    try:
        agent = Agent(Scripted(["Hi"]))
        case = Case("hello", "Hi", checks=[never_ends])
        report = await evaluate(agent, [case], check_timeout=0.01)
    finally:
        ended.set()
    assert report.cases[0].reason == (
        "RuntimeError: the check never_ends raised TimeoutError: it did not finish within 0.01 s"
    )
