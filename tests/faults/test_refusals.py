"""Refused, stalled and empty replies through the whole loop: told, and gone on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.program import run as run_program
from tests.patience import LIMITS
from treadle import Agent
from treadle.apps.console import exit_codes
from treadle.core.errors import ReplyTimedOut
from treadle.core.events import RetryScheduled, WarningRaised
from treadle.core.steps import Finished
from treadle.core.transcript.content import Image, Text
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import to_user_item
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.models.anthropic import Anthropic
from treadle.sessions import Journal, resume
from treadle.sessions.log.journal import read_entries
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import FakeReply, ProviderFault, ProviderServer, RequestViolation

SHOWN = (Text("look"), Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 16 + b"poison" * 20))


class Picky(ProviderServer):
    """A provider that refuses every request with a picture in it, and does not say which."""

    def __init__(self) -> None:
        super().__init__(lambda request: FakeReply("I see."))

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        return (
            [RequestViolation("", "could not process image")] if b'"image"' in request.body else []
        )


async def test_a_part_that_was_refused_once_is_not_sent_again_also_after_a_restart(tmp_path: Path):
    async with Picky() as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        witness = RecordingObserver()
        agent = Agent(model, observers=[witness])
        driver = agent.start(prompt=SHOWN, store=Journal.create(tmp_path / "session"))
        assert isinstance(await driver.next(), Finished)
        refused = [request.body for request in server.requests if b'"image"' in request.body]
        assert len(refused) == len(set(refused)) > 0  # none of them was sent again unchanged
        asked = len(server.requests)
        await driver.aclose()

        resumed = resume(tmp_path / "session")
        again = agent.start(prompt="and now?", state=resumed.state, store=resumed.journal)
        step = await again.next()
        await again.aclose()
        await model.aclose()
    assert isinstance(step, Finished)
    assert step.result.text == "I see."
    assert len(server.requests) == asked + 1
    assert len(witness.events_of(WarningRaised)) == 1  # one line for the person
    log = [
        entry.item for entry in read_entries(tmp_path / "session") if isinstance(entry, ItemAdded)
    ]
    assert log[0] == to_user_item(SHOWN)


@pytest.mark.parametrize("fault", ["stall_headers", "stall_in_text", "pings_only"])
async def test_fault_51_a_stream_that_stalls_is_asked_for_again_and_the_turn_ends(fault: str):
    requests, retries = 0, 0
    for seconds in LIMITS:  # until the second reply, which does not stall, is faster than that
        limits = Timeouts(first_byte=seconds, first_content=seconds, idle=seconds)
        witness = RecordingObserver()
        async with ProviderServer([FakeReply("word " * 20)], faults=[fault]) as server:
            model = Anthropic(
                "claude-sonnet-4-5", base_url=server.url, api_key="k", timeouts=limits
            )
            agent = Agent(model, observers=[witness], clock=ManualClock())
            result = await agent.run("go")
            await model.aclose()
        assert result.text.strip() == ("word " * 20).strip()
        requests, retries = len(server.requests), len(witness.events_of(RetryScheduled))
        if requests == 2:
            break
    assert (requests, retries) == (2, 1)


@pytest.mark.parametrize(
    ("fault", "limits"),
    [
        ("stall_headers", Timeouts(first_byte=0.1)),
        ("pings_only", Timeouts(first_content=0.1)),
        ("endless", Timeouts(total=0.1)),
    ],
)
async def test_fault_51_a_provider_that_only_keeps_the_line_open_is_asked_twice_and_no_more(
    fault: str, limits: Timeouts
):
    faults = [ProviderFault(fault, times=-1)]
    async with ProviderServer([FakeReply("word " * 20)], faults=faults) as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k", timeouts=limits)
        with pytest.raises(ReplyTimedOut, match=r"0\.1 s"):
            await Agent(model, clock=ManualClock()).run("go")
        await model.aclose()
    assert len(server.requests) == 2


def test_every_wait_for_a_provider_has_an_end_unless_somebody_says_otherwise():
    assert None not in msgspec.structs.astuple(DEFAULT_TIMEOUTS)


async def test_a_model_that_says_nothing_is_an_error_and_no_silent_success():
    async with ProviderServer([FakeReply(""), FakeReply("")], strict=False) as server:
        ran = await run_program(server, "-p", "go")
    assert (ran.code, ran.out, len(server.requests)) == (exit_codes.ERROR, "", 2)
    assert "gave an empty reply twice" in ran.err


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
async def test_what_is_left_out_of_a_request_is_told_on_every_output(form: str):
    class Refusing(ProviderServer):
        def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
            wrong = b"POISON" in request.body
            return [RequestViolation("", "invalid text")] if wrong else []

    async with Refusing(lambda request: FakeReply("Well.")) as server:
        ran = await run_program(server, "-p", "POISON", "--output-format", form)
    assert ran.code == 0
    line = "text of your message ('POISON') is left out of requests"
    assert line in ran.err
    assert form != "stream-json" or line in ran.out


async def test_a_model_given_as_an_object_goes_on_after_a_refused_picture():
    async with Picky() as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        result = await Agent(model).run(SHOWN)
    assert result.text == "I see."
