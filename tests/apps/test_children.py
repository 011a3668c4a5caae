"""Child agents through the real program: where their sessions are found, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import Ran, run
from treadle.apps.console import exit_codes
from treadle.sessions import Library, search
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.provider.http import ReceivedRequest

LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def task(prompt: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("task", {"description": "look", "prompt": prompt}),))


async def family(*arguments: str) -> tuple[Ran, ProviderServer]:
    """A session with a child that has a child."""
    replies = [
        task("Ask around"),
        task("Look deep"),
        FakeReply("In the well."),
        FakeReply("A well."),
        LAST,
    ]
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "Begin", "--output-format", "json", *FREELY, *arguments)
    assert (ran.code, server.violations, len(server.requests)) == (0, [], 5)
    return ran, server


async def test_children_stand_below_their_parents_and_not_on_the_first_screen():
    ran, _ = await family()
    session = ran.lines[0]["session_id"]
    first = (await run(None, "sessions", "list", "--json")).lines
    assert [(row["id"], row["children"]) for row in first] == [(session, 2)]
    everything = (await run(None, "sessions", "list", "--all", "--json")).lines
    child, grandchild = everything[1:]
    assert [row["title"] for row in everything] == ["Begin", "Ask around", "Look deep"]
    assert (child["parent"], grandchild["parent"]) == (session, child["id"])
    assert [row["state"] for row in everything] == ["done"] * 3
    own = everything[0]["cost"] - child["cost"] - grandchild["cost"]
    assert 0 < own < everything[0]["cost"] == first[0]["cost"]
    lines = (await run(None, "sessions", "list", "--all")).out.splitlines()
    assert lines[0] == "runs of treadle -p:"
    assert [line[: len(line) - len(line.lstrip())] for line in lines[1:]] == ["", "  ", "    "]


async def test_a_session_is_shown_with_its_children_and_a_child_by_its_id():
    ran, _ = await family()
    session = ran.lines[0]["session_id"]
    shown = (await run(None, "sessions", "show", session)).out
    below = shown[shown.index("## Subagents") :].splitlines()[2:]
    assert ["Ask around" in below[0], "Look deep" in below[1], len(below)] == [True, True, 2]
    assert all("done" in line and "$0." in line for line in below)
    child = below[0].split()[0]
    assert "## Subagents" in (await run(None, "sessions", "show", child[:-1])).out
    leaf = below[1].split()[0]
    assert "In the well." in (await run(None, "sessions", "show", leaf)).out
    forked = await run(None, "sessions", "fork", leaf)
    assert (forked.code, f"fork that one, {session}" in forked.err) == (exit_codes.ERROR, True)


async def test_a_search_finds_what_a_child_said_and_names_the_session(monkeypatch):
    ran, _ = await family()
    session = ran.lines[0]["session_id"]
    monkeypatch.setattr(search, "find_ripgrep", lambda not_in: None)
    by_hand = await search.search(Library().root, "in the WELL")
    assert {(hit.session, bool(hit.child)) for hit in by_hand} == {(session, True)}
    found = (await run(None, "sessions", "search", "in the WELL", "--lines")).out.splitlines()
    assert found[0].startswith(f"{session}  ")
    assert f" {len(found) - 1} hits " in found[0]
    assert found[1:]
    assert all(line.startswith("    in subagent ") for line in found[1:])
    own = (await run(None, "sessions", "search", "That is all")).out
    assert own.startswith(f"{session}  ")
    assert "subagent" not in own


async def test_the_report_counts_what_the_whole_family_used():
    ran, server = await family()
    used = ran.lines[0]["usage"]
    assert used["requests"] == len(server.requests) == 5
    [row] = (await run(None, "sessions", "list", "--json")).lines
    assert used["cost"] == pytest.approx(row["cost"])
    [spent] = json.loads((await run(None, "cost", "--json")).out)["by_session"]
    assert (spent["cost"], spent["input"]) == (pytest.approx(used["cost"]), used["input"])


async def test_a_report_of_a_turn_that_was_put_off_counts_what_was_used_before():
    question = FakeReply(calls=(FakeCall("ask", {"question": "Which?"}),))
    async with ProviderServer([task("Look"), FakeReply("Seen."), question]) as server:
        ran = await run(server, "-p", "Begin", "--suspend", "--output-format", "json", *FREELY)
    [report] = ran.lines
    assert (ran.code, report["usage"]["requests"]) == (exit_codes.SUSPENDED, 3)


async def test_what_is_removed_takes_its_children_with_it():
    ran, _ = await family()
    assert (await run(None, "sessions", "remove", ran.lines[0]["session_id"])).code == 0
    root = Path.home() / ".local/share/treadle/sessions"
    assert list(root.rglob("journal*.jsonl")) == []
    assert (await run(None, "sessions")).out == "no sessions\n"


# --- in the background -------------------------------------------------------------------


def background(prompt: str, **more: str) -> FakeReply:
    given = {"description": "look", "prompt": prompt, "run_in_background": True, **more}
    return FakeReply(calls=(FakeCall("task", given),))


def by_first_message(**replies: list[FakeReply]) -> Callable[[ReceivedRequest], FakeReply]:
    """Replies by the first word of the first message of a conversation, in order."""

    def reply(request: ReceivedRequest) -> FakeReply:
        body: dict[str, Any] = dict(request.json)
        content = body["messages"][0]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        return replies[text.split()[0]].pop(0)

    return reply


async def test_a_run_waits_for_its_agents_in_the_background_and_answers_with_their_reports():
    replies = by_first_message(
        Begin=[background("Look"), FakeReply("I wait for it."), FakeReply("It saw a door.")],
        Look=[FakeReply(calls=(FakeCall("bash", {"command": "sleep 0.2"}),)), FakeReply("A door.")],
    )
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "Begin", *FREELY)
    assert (ran.code, ran.out, ran.err) == (0, "It saw a door.\n", "")
    assert "Background task t1 [task: general: look] is done" in str(server.requests[-1].json)
    assert server.violations == []


async def test_a_wait_that_is_too_long_ends_the_agents_and_says_so_and_the_model_knows_it_later():
    replies = by_first_message(
        Begin=[background("Look", name="scout"), FakeReply("I wait."), FakeReply("I see.")],
        Look=[FakeReply(calls=(FakeCall("bash", {"command": "sleep 60"}),))],
    )
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "Begin", *FREELY, TREADLE_BACKGROUND_WAIT="0.3")
        assert (ran.code, ran.out) == (exit_codes.BUDGET_EXCEEDED, "I wait.\n")
        lines = ran.err.splitlines()  # on a busy machine also what did not stop at once
        assert "treadle: stopped at the end of the run: [task: scout: look]" in lines
        [why] = [line for line in lines if "to continue: treadle -p" in line]
        assert "background agents were stopped after a wait of 0.3 s" in why
        assert "set TREADLE_BACKGROUND_WAIT to wait longer); to continue: treadle -p" in why
        await run(server, "-p", "--continue", "and now?", *FREELY)
    assert "is cancelled.\\nIt was stopped because the program ended: its outcome is unknown" in (
        json.dumps(server.requests[-1].json)
    )


async def test_a_command_in_the_background_ends_with_the_run_which_says_so():
    call = FakeCall("bash", {"command": "sleep 60", "run_in_background": True})
    async with ProviderServer([FakeReply(calls=(call,)), FakeReply("Started.")]) as server:
        ran = await run(server, "-p", "Begin", *FREELY)
    assert (ran.code, ran.out) == (0, "Started.\n")
    assert ran.err == "treadle: stopped at the end of the run: [bash: sleep 60]\n"
