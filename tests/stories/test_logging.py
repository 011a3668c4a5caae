"""The logger `treadle`: what a program with a handler sees; without one, nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workspace.helpers import opened
from treadle import Agent
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import AccessDenied, Overloaded
from treadle.core.events import Event, RunStarted, TurnStarted
from treadle.core.transcript.entries import Entry, TurnBegan
from treadle.models import Fallback, Say, Scripted
from treadle.observe import Totals
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool
from treadle.tools.builtin import builtin_tools


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[tuple[str, str]]:
    records = [record for record in caplog.records if record.name == "treadle"]
    return [(r.levelname, r.getMessage()) for r in records if r.levelno >= level]


async def test_a_repeated_model_call_and_a_fallback_are_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "treadle")
    broken = Scripted([Overloaded("busy")] * 4, name="first")
    model = Fallback(broken, Scripted(["hello"], name="second"))
    await Agent(model, name="booking", clock=ManualClock()).run("go")
    *retries, fallback = lines(caplog)
    assert [level for level, _ in retries] == ["INFO"] * 3
    assert "attempt 1 failed, the next is in 1." in retries[0][1]
    assert fallback[0] == "WARNING"
    assert "booking, session " in fallback[1]
    assert "second is used instead of first: busy" in fallback[1]


async def test_an_observer_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture):
    class Broken(BaseObserver):
        def on_event(self, event: Event) -> None:
            raise KeyError("nothing here")

    await Agent(Scripted(["hello"]), observers=[Broken()]).run("go")
    [(level, text)] = lines(caplog)
    assert level == "WARNING"
    assert "observer Broken failed: KeyError" in text


async def test_a_turn_that_fails_is_logged_as_an_error(caplog: pytest.LogCaptureFixture):
    with pytest.raises(AccessDenied):
        await Agent(Scripted([AccessDenied("the key is wrong")])).run("go")
    [(level, text)] = lines(caplog)
    assert level == "ERROR"
    assert "the turn failed: AccessDenied: the key is wrong" in text


async def test_no_secret_of_the_environment_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_API_KEY", "sk-very-secret-123")
    with pytest.raises(AccessDenied):
        await Agent(Scripted([AccessDenied("sk-very-secret-123 is not valid")])).run("go")
    assert "sk-very-secret-123" not in caplog.text
    assert "[redacted] is not valid" in caplog.text


async def test_the_texts_of_a_conversation_are_not_logged_at_any_level(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG, "treadle")
    model = Scripted([Say("a private reply", calls=[("record", {"text": "private"})]), "private"])
    await Agent(model, [RecordingTool("record", "a private result")]).run("a private prompt")
    assert "record" in caplog.text
    assert "private" not in caplog.text


async def test_the_caller_reads_in_the_log_how_to_allow_a_built_in_tool(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    calls: list[tuple[str, dict[str, Any]]] = [("bash", {"command": "true"})] * 2
    async with opened(tmp_path, sandbox=False) as workspace:
        model = Scripted([Say(calls=calls), "done"])
        await Agent(model, [builtin_tools(workspace, ["bash"])]).run("go")
    [(level, text)] = lines(caplog)
    assert level == "WARNING"
    assert text.startswith("bash is denied: this agent has no policy")


def test_a_program_without_logging_prints_nothing():
    program = """
from treadle import Agent
from treadle.core.errors import AccessDenied
from treadle.models import Scripted
try:
    Agent(Scripted([AccessDenied("no")])).run_sync("go")
except AccessDenied:
    pass
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")


# --- the name of an agent ----------------------------------------------------------------


async def test_the_name_of_an_agent_is_in_its_events_and_in_its_session():
    witness, store = RecordingObserver(), MemoryStore()
    await Agent(Scripted(["hello"]), name="booking", observers=[witness]).run("go", session=store)
    assert [event.agent for event in witness.events_of(RunStarted)] == ["booking"]
    assert [event.agent for event in witness.events_of(TurnStarted)] == ["booking"]
    entries: list[Entry] = store.durable
    assert [entry.agent for entry in entries if isinstance(entry, TurnBegan)] == ["booking"]


async def test_a_model_that_the_run_chose_is_no_warning_and_no_failed_request(
    caplog: pytest.LogCaptureFixture,
):
    totals, other = Totals(), Scripted(["Yes."], name="other")
    with caplog.at_level("INFO", "treadle"):
        await Agent(Scripted([], name="usual"), observers=[totals]).run("Go", model=other)
    [(level, text)] = lines(caplog)
    assert level == "INFO"
    assert "other is used instead of usual" in text
    assert totals.failed_requests == 0
