"""Whatever a program, a tool, a policy or a model gives to a session: the session can be opened
again, and nothing of its log is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from treadle import (
    Agent,
    Approval,
    ApprovalRequest,
    ConfigError,
    Denial,
    Session,
    Text,
    ToolOutput,
    Usage,
    tool,
)
from treadle.contracts import Ask, BasePolicy, Deny, PermissionRequest, Reply, Verdict
from treadle.models import Say, Scripted

ODD = [None, 5, b"no", ["a"], {"a": object()}, "\ud800", float("nan"), True, 2**80, object()]
NAMES = [type(value).__name__ for value in ODD]
PLACES = ["sessions", "sessions.db"]


class Decides(BasePolicy):
    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    async def decide(self, request: PermissionRequest) -> Verdict:
        return self._verdict


def make_agent(place: str, model: Any = None, tools: Any = (), **settings: Any) -> Agent[Any, Any]:
    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = model or Scripted([Say(calls=[("pay", {"amount": 5})]), "Done.", "Done.", "Done."])
    return Agent(model, tools or [pay], store=place, **settings)


async def check_opens(place: str) -> None:
    async with make_agent(place, Scripted(["Yes."] * 3)).session("odd") as session:
        assert not session.warnings
        assert (await session.run("Still there?")).text == "Yes."


Answer = Callable[[Session[Any, Any], ApprovalRequest, str, Any], object]
ANSWERS: dict[str, Answer] = {
    "deny": lambda session, request, call, odd: session.deny(call, odd),
    "deny_all": lambda session, request, call, odd: request.deny_all(odd),
    "decided_by": lambda session, request, call, odd: request.deny(call, decided_by=odd),
    "always": lambda session, request, call, odd: session.approve(call, always=odd),
    "edited": lambda session, request, call, odd: session.approve(call, arguments={"amount": odd}),
    "arguments": lambda session, request, call, odd: session.approve(call, arguments=odd),
    "id": lambda session, request, call, odd: session.approve(odd),
    "submit": lambda session, request, call, odd: session.submit(odd),
    "steer": lambda session, request, call, odd: session.steer(odd, metadata=odd),
    "metadata": lambda session, request, call, odd: session.submit("x", metadata={"a": odd}),
    "interrupt": lambda session, request, call, odd: session.interrupt(odd),
    "withdraw": lambda session, request, call, odd: session.withdraw(odd),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD, ids=NAMES)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_an_odd_answer_of_the_program(answer: Answer, odd: Any, place: str):
    async with make_agent(place, policy=Decides(Ask("money"))).session("odd") as session:
        session.submit("Pay")
        request = await session.next()
        assert isinstance(request, ApprovalRequest)
        with suppress(Exception):
            answer(session, request, request.calls[0].id, odd)
        request.approve_all()
        with suppress(Exception):
            await session.run()
    await check_opens(place)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD, ids=NAMES)
@pytest.mark.parametrize("make", [Denial, Deny, Ask, lambda odd: Approval(always=odd)])
async def test_an_odd_verdict(make: Callable[[Any], Any], odd: Any, place: str):
    def approve(_: object) -> Any:
        return make(odd)

    with suppress(Exception):
        policy = Decides(Ask("money") if make is Denial else make(odd))
        agent = make_agent(place, policy=policy, approve=approve)
        async with agent.session("odd") as session:
            await session.run("Pay")
    await check_opens(place)


def make_outputs(odd: Any) -> list[Any]:
    names = [field.name for field in msgspec.structs.fields(ToolOutput)]
    return [
        odd,
        Text(odd),
        (Text(odd),),
        *[ToolOutput(**{"content": "x", name: odd}) for name in names],
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD, ids=NAMES)
async def test_an_odd_output_of_a_tool(odd: Any, place: str):
    outputs = make_outputs(odd)

    @tool
    async def look(number: int) -> Any:
        """Look."""
        return outputs[number]

    calls = [("look", {"number": number}) for number in range(len(outputs))]
    with suppress(Exception):
        agent = make_agent(place, Scripted([Say(calls=calls), "Done."]), [look])
        async with agent.session("odd") as session:
            await session.run("Look")
    await check_opens(place)


class OddModel(Scripted):
    """Changes one field of its reply."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__([Say("One", calls=[("pay", {"amount": 5})]), "Done."])
        self._change = change

    async def stream(self, request: Any) -> Any:
        async for event in super().stream(request):
            if isinstance(event, Reply):
                event = msgspec.structs.replace(event, item=self._change(event.item))
            yield event


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("odd", ODD, ids=NAMES)
@pytest.mark.parametrize("field", ["content", "stop", "model", "usage", "input", "cost", "text"])
async def test_an_odd_reply_of_a_model(field: str, odd: Any, place: str):
    def change(item: Any) -> Any:
        if field == "text":
            return msgspec.structs.replace(item, content=(Text(odd), *item.content[1:]))
        if field in ("input", "cost"):
            return msgspec.structs.replace(item, usage=Usage(**{field: odd}))
        return msgspec.structs.replace(item, **{field: odd})

    with suppress(Exception):
        async with make_agent(place, OddModel(change)).session("odd") as session:
            await session.run("Pay")
    await check_opens(place)


@pytest.mark.parametrize("reason", [None, 5, b"no", ["a"]])
async def test_a_wrong_reason_is_an_error_where_it_is_given(reason: Any):
    async with make_agent("sessions", policy=Decides(Ask("money"))).session("odd") as session:
        session.submit("Pay")
        request = await session.next()
        assert isinstance(request, ApprovalRequest)
        with pytest.raises(ConfigError, match=r"reason is .*; expected a text"):
            session.deny(request.calls[0].id, reason)
        assert request.unresolved  # it still waits
    with pytest.raises(ConfigError, match=r"Denial\.reason is .*; expected a text"):
        Denial(reason)
    with pytest.raises(ConfigError, match=r"Approval\.always is .*; expected True or False"):
        Approval(always=reason)
