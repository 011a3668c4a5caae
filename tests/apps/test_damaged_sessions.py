"""A damaged log is mentioned wherever a user meets its session, through the real program."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.apps.program import run
from treadle.core.transcript import AssistantItem, Text, ToolCall, ToolResultItem, to_user_item
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, TurnBegan
from treadle.sessions import Library
from treadle.testing.provider import FakeReply, ProviderServer


def find_journal() -> Path:
    [journal] = (Path(os.environ["HOME"]) / ".local/share/treadle").rglob("journal.jsonl")
    return journal


async def test_a_damaged_log_is_mentioned_by_every_command_that_shows_its_session() -> None:
    async with ProviderServer([FakeReply("first answer"), FakeReply("second answer")]) as server:
        assert (await run(server, "-p", "first")).code == 0
        listed = await run(None, "sessions", "list", "--json")
        assert [line["damaged"] for line in listed.lines] == [False]
        journal = find_journal()
        lines = journal.read_bytes().splitlines(keepends=True)
        damaged = [n for n, line in enumerate(lines) if re.search(rb'"type":"(user|notice)"', line)]
        for position in damaged:
            lines[position] = b"?" * (len(lines[position]) - 1) + b"\n"
        journal.write_bytes(b"".join(lines))
        session_id = journal.parent.name
        listed = await run(None, "sessions", "list", "--json")
        assert [line["damaged"] for line in listed.lines] == [True]
        assert "damaged" in (await run(None, "sessions")).out
        shown = await run(None, "sessions", "show", session_id)
        doctor = await run(None, "doctor")
        ran = await run(server, "-p", "--continue", "second")
    assert shown.code == 0
    assert "first answer" in shown.out
    assert f"line {damaged[0] + 1}: skipped" in shown.err
    assert f"1 damaged log: {session_id}" in doctor.out
    assert (ran.code, ran.out) == (0, "second answer\n")
    assert f"the session log is damaged: {journal}, line {damaged[0] + 1}" in ran.err
    assert server.violations == []
    sent = json.dumps(json.loads(server.requests[-1].body)["messages"])
    assert "The beginning of this conversation is not available." in sent


@pytest.mark.parametrize("kind", ["folder", "pipe"])
async def test_one_session_that_cannot_be_read_does_not_hide_the_others(kind: str) -> None:
    async with ProviderServer([FakeReply("first answer"), FakeReply("second answer")]) as server:
        assert (await run(server, "-p", "first")).code == 0
        readable = find_journal().parent
        odd = readable.parent / "261115-aaaaaa/journal.jsonl"
        odd.parent.mkdir()
        odd.mkdir() if kind == "folder" else os.mkfifo(odd)
        listed = await run(None, "sessions", "list", "--json", "--all")
        states = {line["id"]: line["state"] for line in listed.lines}
        assert states == {readable.name: "done", odd.parent.name: "unreadable"}
        found = await run(None, "sessions", "search", "first answer")
        assert readable.name in found.out
        assert (await run(None, "cost")).code == 0
        doctor = await run(None, "doctor")
        assert f"2 sessions in {readable.parents[1]}" in doctor.out
        assert f"1 damaged log: {odd.parent.name}" in doctor.out
        for words in (("sessions", "show", odd.parent.name), ("-p", "x", "--resume", "261115-a")):
            ran = await run(server, *words)
            assert ran.code not in (0, None)
            assert f"{odd} cannot be read: it is not a file. Move {odd.parent} away" in ran.err
            assert "Traceback" not in ran.err
        if kind == "folder":
            odd.rmdir()
        else:
            odd.unlink()
        odd.write_bytes((readable / "journal.jsonl").read_bytes())
        listed = await run(None, "sessions", "list", "--json", "--all")
        assert {line["state"] for line in listed.lines} == {"done"}
        assert {line["damaged"] for line in listed.lines} == {False}


async def test_the_call_that_was_open_is_named_though_the_result_of_an_earlier_one_is_lost():
    first, second = (ToolCall(n, "bash", f'{{"command":"echo {n}"}}') for n in ("c1", "c2"))
    entries: list[Entry] = [TurnBegan("turn-1"), ItemAdded(to_user_item("go"))]
    for call in (first, second):
        entries.append(ItemAdded(AssistantItem((call,), "tool_use", "m")))
        entries.append(Intent(call.id, "bash", call.id, "irreversible"))
        if call is first:
            entries.append(ItemAdded(ToolResultItem(call.id, "bash", (Text("lost"),))))
    journal = Library().create(Path.cwd())
    for entry in entries:
        journal.append(entry)
    await journal.aclose()
    path = journal.session_dir / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"tool_result"' not in line))
    async with ProviderServer([FakeReply("That is all.")]) as server:
        ran = await run(server, "-p", "--continue", "--permission-mode", "bypass")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert "entry 5 is missing" in ran.err
    expected = "echo c2. It may or may not have finished. It was not started again."
    assert f"treadle: This command was running when the program stopped: {expected}\n" in ran.err
