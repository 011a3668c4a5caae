"""A stored session in which calls wait for an approval: another process opens it and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ApprovalRequest, ConfigError, LoopError, PendingApproval, Session, tool
from treadle.contracts import (
    Allow,
    Ask,
    BasePolicy,
    BaseSource,
    Block,
    HookInput,
    PermissionRequest,
    Verdict,
)
from treadle.core.transcript.items import UserItem
from treadle.events import ApprovalRequired, ApprovalResolved, RunStarted
from treadle.models import Say, Scripted
from treadle.testing import MemoryStore, RecordingObserver

PLACES = ["sessions", "sessions.db"]


class Asks(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("it costs money")


class Allows(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Allow()


class Hotel:
    """One process after another on the same stored session; each has its own agent."""

    def __init__(self, store: object) -> None:
        self.store = store
        self.booked: list[str] = []
        self.model = Scripted(["Done."])

    def open(self, model: Scripted | None = None, **settings: object) -> Session[None, str]:
        @tool
        async def book(hotel: str) -> str:
            """Book a room."""
            self.booked.append(hotel)
            return f"booked {hotel}"

        settings = {"policy": Asks(), "store": self.store, **settings}
        agent: Agent[None, str] = Agent(model or self.model, [book], **settings)  # type: ignore[call-overload]
        return agent.session("order-42")

    async def leave_waiting(self, *hotels: str) -> tuple[str, ...]:
        """What the first process does: it ends while the calls wait. Their ids."""
        calls = [("book", {"hotel": hotel}) for hotel in hotels]
        async with self.open(Scripted([Say(calls=calls)])) as session:
            session.submit("Book")
            request = await session.next()
            assert isinstance(request, ApprovalRequest)
            return tuple(call.id for call in request.calls)

    @property
    def told(self) -> list[str]:
        """The results of the calls that the model reads."""
        return [item.text for item in self.model.requests[0].transcript[2:]]


@pytest.fixture
def hotel(tmp_path: Path) -> Hotel:
    return Hotel(tmp_path / "sessions.db")


def list_ids(approvals: tuple[PendingApproval, ...]) -> tuple[str, ...]:
    return tuple(approval.call.id for approval in approvals)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", ["run", "stream", "next"])
async def test_a_call_that_waits_is_seen_and_approved_before_the_first_step(
    tmp_path: Path, place: str, way: str
):
    hotel = Hotel(tmp_path / place)
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open() as session:
        [approval] = session.approvals
        assert (approval.call.id, approval.call.arguments) == (waiting, {"hotel": "Post"})
        assert approval.reason == "it costs money"
        session.approve(waiting)
        assert session.approvals == ()
        if way == "run":
            assert (await session.run()).text == "Done."
        elif way == "stream":
            async with session.stream() as events:
                kinds = {type(event) async for event in events}
            assert not kinds & {ApprovalRequired, ApprovalResolved}
        else:
            assert not isinstance(await session.next(), ApprovalRequest)
    assert hotel.booked == ["Post"]


async def test_a_call_that_waits_is_denied_with_the_reason(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open() as session:
        session.deny(waiting, "too dear")
        await session.run()
    assert hotel.told == ["denied: too dear"]
    assert hotel.booked == []


async def test_the_arguments_of_a_call_that_waits_can_be_edited(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open() as session:
        session.approve(waiting, arguments={"hotel": "Sacher"})
        await session.run()
    assert hotel.booked == ["Sacher"]


async def test_an_id_that_does_not_wait_is_an_error(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open() as session:
        for answer in (session.approve, session.deny):
            with pytest.raises(
                LoopError, match=f"no call 'nonsense' waits .* wait for one: {waiting}"
            ):
                answer("nonsense")
        session.approve(waiting)
        with pytest.raises(LoopError, match=f"no call '{waiting}' waits .* wait for one: none"):
            session.deny(waiting)
        await session.run()
    assert hotel.booked == ["Post"]


@pytest.mark.parametrize("is_approved", [True, False])
async def test_a_decision_survives_a_process_that_ends_before_the_run(
    hotel: Hotel, is_approved: bool
):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open() as session:
        session.approve(waiting) if is_approved else session.deny(waiting, "too dear")
    async with hotel.open() as session:
        assert session.approvals == ()
        await session.run()
    assert hotel.booked == (["Post"] if is_approved else [])
    assert hotel.told == ["booked Post" if is_approved else "denied: too dear"]


async def test_what_is_not_answered_is_asked_again(hotel: Hotel):
    first, second = await hotel.leave_waiting("Post", "Krone")
    async with hotel.open() as session:
        assert list_ids(session.approvals) == (first, second)
        session.approve(first)
        assert list_ids(session.approvals) == (second,)
        request = await session.next()
        assert isinstance(request, ApprovalRequest)
        assert list_ids(request.pending) == list_ids(session.approvals) == (second,)
        session.deny(second, "one is enough")
        await session.next()
    assert hotel.booked == ["Post"]


async def test_an_approver_is_asked_about_what_the_host_did_not_answer(hotel: Hotel):
    first, second = await hotel.leave_waiting("Post", "Krone")
    asked: list[str] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval.call.id)
        return True

    async with hotel.open(approve=approve) as session:
        session.deny(first)
        await session.run()
    assert asked == [second]
    assert hotel.booked == ["Krone"]


async def test_a_call_that_needs_no_approval_any_more_runs(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open(policy=Allows()) as session:
        assert session.approvals == ()
        with pytest.raises(LoopError, match="waits for a decision"):
            session.approve(waiting)
        await session.run()
    assert hotel.booked == ["Post"]


async def test_a_call_that_a_hook_blocks_now_cannot_be_approved(hotel: Hotel):
    class Blocks:
        points = frozenset({"permission_request"})

        async def run(self, given: HookInput[Any]) -> Block:
            return Block("not in May")

    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open(hooks=[Blocks()]) as session:
        with pytest.raises(LoopError, match="waits for a decision"):
            session.approve(waiting)
        await session.run()
    assert hotel.told == ["denied: not in May"]


async def test_the_answer_holds_for_a_run_with_another_output(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    async with hotel.open(Scripted(["3"])) as session:
        session.approve(waiting)
        assert (await session.run(output=int)).output == 3
    assert hotel.booked == ["Post"]


async def test_observers_hear_once_that_the_run_started(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    records = RecordingObserver()
    async with hotel.open(observers=[records]) as session:
        session.approve(waiting)
        await session.run()
    kinds = [type(event) for event in records.events]
    assert (kinds[0], kinds.count(RunStarted)) == (RunStarted, 1)


async def test_tools_that_cannot_be_opened_leave_the_session_closed_and_an_own_store_open():
    class Broken(BaseSource):
        name = "broken"

        async def open(self) -> None:
            raise OSError("no such server")

    store = MemoryStore("order-42")
    hotel = Hotel(lambda _: store)
    await hotel.leave_waiting("Post")
    with pytest.raises(OSError, match="no such server"):
        async with Agent(Scripted([]), [Broken()], store=store).session("order-42"):
            pass
    async with hotel.open() as session:
        assert len(session.approvals) == 1


@pytest.mark.parametrize("place", PLACES)
async def test_a_suspended_stream_ends_with_the_request_and_another_process_continues(
    place: str, tmp_path: Path
):
    booked: list[str] = []

    @tool(approval=True)
    async def book(hotel: str) -> str:
        """Book a room."""
        booked.append(hotel)
        return f"booked {hotel}"

    def make(*replies: Any) -> Agent:
        return Agent(Scripted(list(replies)), [book], store=tmp_path / place)

    first = make(Say(calls=[("book", {"hotel": "Post"}), ("book", {"hotel": "Adler"})]))
    async with first.stream("Book", session="s", suspend=True) as events:
        seen = [event async for event in events]
    assert sum(isinstance(event, ApprovalRequired) for event in seen) == 2
    assert isinstance(seen[-1], ApprovalRequired)
    assert [one.call.arguments for one in events.waiting] == [{"hotel": "Post"}, {"hotel": "Adler"}]
    with pytest.raises(LoopError, match="2 waiting calls"):
        events.result  # noqa: B018
    [stored] = await first.sessions.list()
    assert stored.state == "suspended (approval)"

    second = make("Done.")
    async with second.session("s") as session:
        post, adler = session.approvals
        session.approve(post.call.id)
        session.deny(adler.call.id, "too expensive")
        async with session.stream(suspend=True) as events:
            seen = [event async for event in events]
    assert events.result.output == "Done."
    assert booked == ["Post"]
    assert not events.waiting


async def test_a_message_to_a_suspended_session_waits_for_the_decision(tmp_path: Path):
    @tool(approval=True)
    async def book(hotel: str) -> str:
        """Book a room."""
        return f"booked {hotel}"

    model = Scripted([Say(calls=[("book", {"hotel": "Post"})]), "Done."])
    agent = Agent(model, [book], store=tmp_path)
    for message in ("Book", "Never mind"):
        async with agent.session("s") as session:
            async with session.stream(message, suspend=True) as events:
                _ = [event async for event in events]
            assert [one.call.name for one in events.waiting] == ["book"]
    stored = await agent.sessions.read("s")
    assert [one.item.text for one in stored.queued_messages] == ["Never mind"]

    async with agent.session("s") as session:
        session.deny(session.approvals[0].call.id, "no")
        result = await session.run()
    assert [item.text for item in result.transcript if isinstance(item, UserItem)] == [
        "Book",
        "Never mind",
    ]


@pytest.mark.parametrize("suspend", [True, False])
async def test_a_stream_that_nobody_reads_is_suspended_or_goes_on(tmp_path: Path, suspend: bool):
    @tool(approval=True)
    def book(hotel: str) -> str:
        """Book a room."""
        return f"booked {hotel}"

    model = Scripted([Say(calls=[("book", {"hotel": "Post"})]), "Not booked."])
    agent = Agent(model, [book], store=tmp_path)
    async with agent.stream("Book", session="s", suspend=suspend) as events:
        await events.wait()
        assert [one.call.name for one in events.waiting] == (["book"] if suspend else [])
        kinds = {type(event) async for event in events}
    assert ApprovalRequired in kinds
    assert suspend or events.result.text == "Not booked."


async def test_a_stream_that_may_suspend_goes_on_if_the_reader_answers(tmp_path: Path):
    @tool(approval=True)
    async def book(hotel: str) -> str:
        """Book a room."""
        return f"booked {hotel}"

    model = Scripted([Say(calls=[("book", {"hotel": "Post"})]), "Done."])
    agent = Agent(model, [book], store=tmp_path)
    async with agent.stream("Book", session="s", suspend=True) as events:
        async for event in events:
            if isinstance(event, ApprovalRequired):
                events.approve(event.call.id)
    assert events.result.output == "Done."
    with pytest.raises(ConfigError, match="give session="):
        agent.stream("Book", suspend=True)


@pytest.mark.parametrize("way", ["stream", "next"])
async def test_a_call_of_a_child_agent_suspends_the_session_as_well(tmp_path: Path, way: str):
    booked: list[str] = []

    @tool(approval=True)
    async def book(hotel: str) -> str:
        """Book a room."""
        booked.append(hotel)
        return f"booked {hotel}"

    def make(inner: list[Any], outer: list[Any]) -> Agent:
        helper = Agent(Scripted(inner), [book]).as_tool("helper", "Books.")
        return Agent(Scripted(outer), [helper], store=tmp_path / "s.db")

    ask = Say(calls=[("helper", {"prompt": "Book"})])
    first = make([Say(calls=[("book", {"hotel": "Post"})])], [ask])
    async with first.session("s") as session:
        if way == "stream":
            async with session.stream("Book", suspend=True) as events:
                async for _ in events:
                    pass
            [waiting] = events.waiting
        else:
            session.submit("Book")
            step = await session.next()
            assert isinstance(step, ApprovalRequest)
            [waiting] = step.pending
    [stored] = await first.sessions.list(state="suspended")
    assert stored.state == "suspended (approval)"
    later = make(["It is booked."], ["Done."])
    async with later.session("s") as session:
        [approval] = session.approvals
        assert approval.call == waiting.call
        session.approve(approval.call.id, session_id=approval.session_id)
        assert (await session.run()).output == "Done."
    assert booked == ["Post"]


async def test_a_session_that_is_left_at_an_approval_request_is_suspended(hotel: Hotel):
    [waiting] = await hotel.leave_waiting("Post")
    agent = Agent(Scripted([]), store=hotel.store)  # type: ignore[call-overload]
    [stored] = await agent.sessions.list(state="suspended")
    assert stored.state == "suspended (approval)"
    async with hotel.open() as session:
        assert isinstance(await session.next(), ApprovalRequest)
    assert [one.id for one in await agent.sessions.list(state="suspended")] == ["order-42"]
    async with hotel.open() as session:
        session.approve(waiting)
        await session.run()
    assert await agent.sessions.list(state="suspended") == []
    assert hotel.booked == ["Post"]


@pytest.mark.parametrize("way", ["decided", "interrupted", "failed"])
async def test_a_session_that_waits_for_no_decision_is_not_suspended(hotel: Hotel, way: str):
    def fail(approval: PendingApproval) -> bool:
        raise OSError("no terminal")

    async with hotel.open(
        Scripted([Say(calls=[("book", {"hotel": "Post"})])]), approve=fail
    ) as one:
        if way == "failed":
            with pytest.raises(OSError, match="no terminal"):
                await one.run("Book")
        else:
            one.submit("Book")
            request = await one.next()
            assert isinstance(request, ApprovalRequest)
            request.approve_all() if way == "decided" else one.interrupt()
    agent = Agent(Scripted([]), store=hotel.store)  # type: ignore[call-overload]
    assert [one.state for one in await agent.sessions.list()] == ["interrupted"]


async def test_a_suspended_run_can_go_on_in_the_same_session(tmp_path: Path):
    @tool(approval=True)
    async def book(hotel: str) -> str:
        """Book a room."""
        return f"booked {hotel}"

    model = Scripted([Say(calls=[("book", {"hotel": "Post"})]), "Done.", "Bye."])
    agent = Agent(model, [book], store=tmp_path)
    async with agent.session("s") as session:
        async with session.stream("Book", suspend=True) as events:
            async for _ in events:
                pass
        session.approve(events.waiting[0].call.id)
        assert (await session.run()).output == "Done."
    async with agent.session("s") as session:
        assert (await session.run("Thanks")).output == "Bye."
        assert [item.text for item in session.transcript][2:4] == ["booked Post", "Done."]
