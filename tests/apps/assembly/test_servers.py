"""What a person hears of servers: which is away, and why, once; and which may not be started."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest

from treadle.apps.assembly import servers
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.servers import FirstMessageWait, McpServers, ServerProblems
from treadle.apps.settings.extensions import (
    CHANGE_UNKNOWN,
    CHANGED_SINCE_APPROVAL,
    approve_extensions,
    start_objections,
)
from treadle.apps.settings.folder_rules import trust_file
from treadle.core.contracts.hook import HookInput
from treadle.permissions.trust import TrustStore
from treadle.tools.mcp import McpStatus
from treadle.tools.mcp.server import McpServer, McpState
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


# ------------------------------------------------------------------ the first message waits


class SlowServer:
    """A server that is up when the test says so."""

    name = "slow"

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self.waited: list[float | None] = []

    @property
    def status(self) -> McpStatus:
        return McpStatus("slow", "up" if self.up.is_set() else "starting", 0, "")

    async def wait_ready(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        try:
            await asyncio.wait_for(self.up.wait(), timeout)
        except TimeoutError:
            return False
        return True


def waiting(server: SlowServer, seconds: float, told: list[str]) -> FirstMessageWait:
    made = McpServers([], 0.0, ServerProblems(told.append))
    made.servers = (cast(McpServer, server),)
    return FirstMessageWait(made, seconds, told.append)


def message() -> HookInput:
    return HookInput("user_prompt_submit", "s", "t", {"prompt": "go"})


async def test_the_first_message_waits_for_a_server_and_says_so_after_a_moment(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(servers, "SILENT_WAIT_SECONDS", 0.0)
    server, told, said = SlowServer(), list[str](), asyncio.Event()
    wait = waiting(server, 60, told)

    def tell(text: str) -> None:
        told.append(text)
        said.set()

    monkeypatch.setattr(wait, "_notify", tell)
    task = asyncio.create_task(wait.run(message()))
    await said.wait()
    assert told == ["waiting for MCP servers to start, up to 60 s: slow"]
    server.up.set()
    assert await task is None
    await wait.run(message())
    assert server.waited == [60]  # later messages do not wait


async def test_a_server_that_is_too_late_is_named_and_the_message_goes_on():
    server, told = SlowServer(), list[str]()
    await waiting(server, 0.001, told).run(message())
    [text] = told
    assert "slow is still starting after 0.001 s; its tools are added when it is up" in text
