"""What a person hears of servers: which is away, and why, once; and which may not be started."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from treadle.apps.assembly import servers
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.servers import ServerProblems
from treadle.apps.settings.extensions import (
    CHANGE_UNKNOWN,
    CHANGED_SINCE_APPROVAL,
    approve_extensions,
    start_objections,
)
from treadle.apps.settings.folder_rules import trust_file
from treadle.permissions.trust import TrustStore
from treadle.tools.mcp import McpStatus
from treadle.tools.mcp.status import McpState
from treadle.workspace.options import WorkspaceOptions


def heard(*states: McpState) -> list[str]:
    told: list[str] = []
    trouble = ServerProblems(told.append)
    for state in states:
        trouble.on_status(McpStatus("db", state, 0, "it ended"))
    return told


def test_a_server_that_is_away_is_told_of_once_until_it_was_up_again():
    down = "MCP server db is down and will be restarted: it ended"
    assert heard("starting", "down", "starting", "down", "starting", "down") == [down]
    assert heard("starting", "up", "down", "starting", "up", "down") == [down, down]


def test_one_that_is_restarted_is_shown_with_its_last_problem():
    assert McpStatus("db", "starting", 0).summary == "db: starting, 0 tools"
    restarted = McpStatus("db", "starting", 0, "it ended").summary
    assert restarted == "db: restarting, 0 tools; the last time: it ended"


def test_one_that_is_given_up_is_told_of_as_such():
    told = heard("starting", "down", "starting", "failed")
    assert told[1:] == ["MCP server db does not start: it ended"]
    assert heard("starting", "login") == ["it ended"]  # which says by itself what is wanted


def test_nothing_is_said_of_one_that_is_well():
    assert heard("starting", "up", "up", "closed") == []


def test_a_folders_server_is_objected_to_once_it_is_not_what_was_approved():
    folder = Path.cwd()
    seen, unseen = {"command": "sh", "args": ["x.sh"]}, {"command": "sh", "args": ["-c", "./x*"]}
    Path("x.sh").touch()
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"seen": seen, "unseen": unseen}}))
    own = Path.home() / ".treadle/settings.json"
    own.parent.mkdir(exist_ok=True)
    own.write_text(json.dumps({"mcpServers": {"own": unseen}}))
    objection = start_objections(folder)
    assert objection("seen", seen, False) == CHANGED_SINCE_APPROVAL  # the folder is not trusted
    TrustStore(trust_file()).trust(folder)
    approve_extensions(folder)
    assert [objection("seen", seen, again) for again in (False, True)] == ["", ""]
    # It is started once, since the user said yes all the same.
    assert [objection("unseen", unseen, again) for again in (False, True)] == ["", CHANGE_UNKNOWN]
    assert [objection("own", unseen, again) for again in (False, True)] == ["", ""]
    assert objection("own", seen, False) == CHANGED_SINCE_APPROVAL  # that is not the user's
    Path("x.sh").write_text("true")
    assert objection("seen", seen, False) == CHANGED_SINCE_APPROVAL
    approve_extensions(folder)
    assert objection("seen", seen, True) == ""
    assert objection("seen", unseen, True) == CHANGED_SINCE_APPROVAL


class Named:
    def __init__(self, name: str, state: McpState) -> None:
        self.name, self.status = name, McpStatus(name, state, 0)


@pytest.mark.parametrize(
    ("state", "is_awaited"),
    [("closed", True), ("starting", True), ("down", True), ("login", True),
     ("up", False), ("slow", False), ("failed", False)],
)  # fmt: skip
def test_the_tools_of_a_server_that_starts_are_awaited(state: McpState, is_awaited: bool):
    stub: Any = Named("my db", state)
    made = servers.McpServers([], 0.0, ServerProblems(None))
    made.servers = (stub,)
    assert made.is_awaited("my db") == is_awaited
    assert made.is_awaited("mcp__my_db__query") == is_awaited
    assert not made.is_awaited("mcp__my_db2__query")
    assert not made.is_awaited("other")


async def test_a_long_wait_for_servers_says_for_which(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(servers, "SILENT_WAIT_SECONDS", 0.01)
    told: asyncio.Queue[str] = asyncio.Queue()
    workspace = LazyWorkspace(own_place, lambda: WorkspaceOptions(sandbox="off"))
    made = servers.make_servers(
        {"mute": {"command": "sleep", "args": ["1000"]}},
        workspace,
        user_servers=("mute",),
        trusted=True,
        startup_wait=600,
        notes=[],
        notify=None,
        on_wait=told.put_nowait,
        objection=lambda name, definition, again: "",
    )
    opening = asyncio.create_task(made.open())
    assert await told.get() == "waiting for MCP servers to start, up to 600 s: mute"
    opening.cancel()
    await asyncio.wait([opening])
    await made.aclose()
    await workspace.aclose()
