"""Refused, stalled and empty replies through the whole loop: told, and gone on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.running import run
from treadle import Agent
from treadle.apps.cli import exits
from treadle.core.events import RetryScheduled, Warning
from treadle.core.loop.steps import Finished
from treadle.core.transcript.content import Image, Text
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import user
from treadle.models.anthropic import Anthropic
from treadle.models.healing import Healing
from treadle.models.wire.limits import DEFAULT_LIMITS, Limits
from treadle.sessions import Journal, resume
from treadle.sessions.journal import read
from treadle.testing.clock import ManualClock
from treadle.testing.observers import Witness
from treadle.testing.provider import Fault, Problem, ProviderServer, Reply

SHOWN = (Text("look"), Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 16 + b"poison" * 20))


class Picky(ProviderServer):
    """A provider that refuses every request with a picture in it, and does not say which."""

    def __init__(self) -> None:
        super().__init__(lambda request: Reply("I see."))

    def _problems(self, request: Any, *others: Any) -> list[Problem]:
        return [Problem("", "could not process image")] if b'"image"' in request.body else []


async def test_a_part_that_was_refused_once_is_not_sent_again_also_after_a_restart(tmp_path: Path):
    async with Picky() as server:
        model = Healing(Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k"))
        witness = Witness()
        agent = Agent(model, observers=[witness])
        driver = agent.start(input=SHOWN, store=Journal.create(tmp_path / "session"))
        assert isinstance(await driver.next(), Finished)
        refused = [request.body for request in server.requests if b'"image"' in request.body]
        assert len(refused) == len(set(refused)) > 0  # none of them was sent again unchanged
        asked = len(server.requests)
        await driver.aclose()

        resumed = resume(tmp_path / "session")
        again = agent.start(input="and now?", view=resumed.view, store=resumed.journal)
        step = await again.next()
        await again.aclose()
        await model.aclose()
    assert isinstance(step, Finished)
    assert step.result.text == "I see."
    assert len(server.requests) == asked + 1
    assert len(witness.of(Warning)) == 1  # one line for the person
    log = [entry.item for entry in read(tmp_path / "session") if isinstance(entry, ItemAdded)]
    assert log[0] == user(SHOWN)


@pytest.mark.parametrize(
    ("fault", "limits"),
    [
        (Fault("stall_headers"), Limits(first_byte=0.1)),
        (Fault("stall_in_text"), Limits(idle=0.1)),
        (Fault("pings_only"), Limits(first_content=0.1)),
    ],
)
async def test_fault_51_a_stream_that_stalls_is_asked_for_again_and_the_turn_ends(
    fault: Fault, limits: Limits
):
    witness = Witness()
    async with ProviderServer([Reply("word " * 20)], faults=[fault]) as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k", limits=limits)
        agent = Agent(model, observers=[witness], clock=ManualClock())
        result = await agent.run("go")
        await model.aclose()
    assert result.text.strip() == ("word " * 20).strip()
    assert len(server.requests) == 2
    assert len(witness.of(RetryScheduled)) == 1


def test_every_wait_for_a_provider_has_an_end_unless_somebody_says_otherwise():
    assert None not in msgspec.structs.astuple(DEFAULT_LIMITS)


async def test_a_model_that_says_nothing_is_an_error_and_no_silent_success():
    async with ProviderServer([Reply(""), Reply("")], strict=False) as server:
        ran = await run(server, "-p", "go")
    assert (ran.code, ran.out, len(server.requests)) == (exits.ERROR, "", 2)
    assert "gave an empty reply twice" in ran.err
