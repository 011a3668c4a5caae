"""Responses in the published formats of every provider that we know, and what we read in them.

UPDATE_EXCHANGES=1 writes the expected files: look at the difference before it is committed.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from tests.models.exchanges import FOLDER, Exchange, ExchangeReader, Outcome, list_exchanges
from tests.models.wires import WIRES
from treadle.core.contracts.model import ModelToolCallRequested, ModelUsageUpdated

EXCHANGES = list_exchanges()
# What a set of recordings has to show in each format.
KINDS = ("text", "tool", "parallel_tools", "refusal", "cut", "whole_reply", "whole_error")


def describe(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON that a person can read."""
    described: dict[str, Any] = {"events": [describe_event(event) for event in outcome.events]}
    if outcome.reply is not None:
        described["reply"] = msgspec.to_builtins(outcome.reply)
    if outcome.error is not None:
        described["error"] = [type(outcome.error).__name__, str(outcome.error)]
    return described


def describe_event(event: object) -> list[Any]:
    name = type(event).__name__.removeprefix("Model")
    if isinstance(event, ModelToolCallRequested):
        return [name, event.call.id, event.call.name, event.call.raw]
    if isinstance(event, ModelUsageUpdated):
        return [name, msgspec.to_builtins(event.usage)]
    return [name, *msgspec.structs.astuple(event)]  # type: ignore[arg-type] # each is a Struct


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: f"{one.wire}-{one.name}")
async def test_a_response_of_a_provider_is_read_as_recorded(exchange: Exchange):
    body = exchange.path.read_bytes()
    reader = ExchangeReader(exchange.wire)
    outcome = await reader.read([body], exchange.media_type)
    text = msgspec.json.format(msgspec.json.encode(describe(outcome)), indent=1).decode() + "\n"
    if os.environ.get("UPDATE_EXCHANGES"):
        exchange.expected.write_text(text)
    assert text == exchange.expected.read_text(), "UPDATE_EXCHANGES=1 writes the file"
    in_bytes = await reader.read([bytes([byte]) for byte in body], exchange.media_type)
    assert describe(in_bytes) == describe(outcome)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: f"{one.wire}-{one.name}")
def test_a_recorded_reply_has_the_text_that_was_shown_and_the_calls_that_were_announced(
    exchange: Exchange,
):
    expected = msgspec.json.decode(exchange.expected.read_bytes())
    if "reply" not in expected:
        return
    parts = expected["reply"]["content"]
    shown = "".join([event[1] for event in expected["events"] if event[0] == "TextDelta"])
    said = "".join([part["text"] for part in parts if part["type"] == "text"])
    announced = [event[1] for event in expected["events"] if event[0] == "ToolCallRequested"]
    called = [part["id"] for part in parts if part["type"] == "tool_call"]
    assert said == shown
    assert announced == called


@pytest.mark.parametrize("wire", WIRES)
def test_the_recordings_of_a_format_have_every_kind(wire: str):
    names = {exchange.name for exchange in EXCHANGES if exchange.wire == wire}
    assert not set(KINDS) - names
    files = {path.name for path in (FOLDER / wire).glob("*.expected.json")}
    assert files == {f"{name}.expected.json" for name in names}, "a file without a recording"
