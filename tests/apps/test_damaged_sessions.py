"""A damaged log is mentioned wherever a user meets its session, through the real program."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.apps.program import run
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
        [position] = [n for n, line in enumerate(lines) if b'"type":"user"' in line]
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
    assert f"line {position + 1}: skipped" in shown.err
    assert f"1 damaged log: {session_id}" in doctor.out
    assert (ran.code, ran.out) == (0, "second answer\n")
    assert f"the session log is damaged: {journal}, line {position + 1}" in ran.err
    assert server.violations == []
    sent = json.dumps(json.loads(server.requests[-1].body)["messages"])
    assert "The beginning of this conversation is not available." in sent
