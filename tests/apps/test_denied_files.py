"""Deny rules of the settings, tried through the program: a sandboxed command is held to them."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
from pathlib import Path

from tests.apps.program import run
from tests.workspace.helpers import needs_bubblewrap
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer


@needs_bubblewrap
async def test_a_command_reads_and_changes_nothing_that_a_rule_denies():
    Path(".env").write_text("KEY=hunter2")
    Path("infra").mkdir()
    Path("infra/main.tf").write_text("ours")
    Path("change.sh").write_text("ls -a | xargs cat; echo evil > infra/main.tf")
    rules = {"permissions": {"deny": ["Read(.env)", "Edit(infra/**)"]}}
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(rules))
    call = FakeCall("bash", {"command": "sh change.sh"})
    async with ProviderServer([FakeReply("", calls=[call]), FakeReply("done")]) as server:
        ran = await run(server, "-p", "go", "--permission-mode", "auto")
    assert ran.code == 0
    result = server.requests[-1].body.decode()
    assert "deny rules hide from commands: .env" in result
    assert "hunter2" not in result
    assert Path("infra/main.tf").read_text() == "ours"
