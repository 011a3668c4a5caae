"""Searches in a folder with denied files, and git in a folder that came from elsewhere."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.apps.program import run
from tests.workspace.helpers import needs_bubblewrap
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer


async def test_the_grep_tool_searches_a_folder_with_a_denied_file_and_says_what_it_left_out():
    Path(".env").write_text("KEY=hunter2")
    Path("a.py").write_text("KEY = 1")
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"deny": ["Read(.env)"]}}))
    call = FakeCall("grep", {"pattern": "KEY", "output_mode": "content"})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        ran = await run(server, "-p", "go")
    assert ran.code == 0
    result = server.requests[-1].body.decode()
    assert "a.py:1:KEY = 1" in result
    assert "not searched, because a rule denies it or it may contain secrets: .env" in result
    assert "hunter2" not in result


async def test_the_grep_tool_leaves_out_another_name_of_a_denied_file():
    Path(".env").write_text("KEY=hunter2")
    Path("other").hardlink_to(".env")
    Path("a.py").write_text("KEY = 1")
    call = FakeCall("grep", {"pattern": "KEY", "output_mode": "content"})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        await run(server, "-p", "go", "--deny", "Read(.env)")
    result = server.requests[-1].body.decode()
    assert "a.py:1:KEY = 1" in result
    assert "hunter2" not in result


@pytest.fixture
def foreign_repository() -> None:
    """The working directory is a repository whose configuration runs a program."""
    subprocess.run(["git", "init", "-q", "."], check=True)
    Path("evil").write_text("#!/bin/sh\ntouch ran\n")
    Path("evil").chmod(0o755)
    with Path(".git/config").open("a") as config:
        config.write("[core]\n\tfsmonitor = ./evil\n")


@pytest.mark.usefixtures("foreign_repository")
@pytest.mark.parametrize(
    ("mode", "sandbox"),
    [("plan", "off"), ("ask", "off"), ("auto", "off"), ("plan", "auto"), ("ask", "auto")],
)
async def test_git_of_a_foreign_folder_runs_nothing(mode, sandbox):
    call = FakeCall("bash", {"command": "git status"})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        await run(server, "-p", "go", "--permission-mode", mode, "--sandbox", sandbox)
    result = server.requests[-1].body.decode()
    assert "core.fsmonitor" in result
    assert not Path("ran").exists()


@pytest.fixture
def tracked_secret() -> None:
    """The working directory is a repository that tracks a `.env`."""
    Path(".env").write_text("KEY=hunter2")
    Path("a").write_text("plain")
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "add", "."], check=True)


@pytest.mark.usefixtures("tracked_secret")
@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize(
    "command", ["git diff --cached", "git show :0:.env", "git grep -c '' -- a"]
)
async def test_git_does_not_print_a_tracked_denied_file(command, sandbox):
    call = FakeCall("bash", {"command": command})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        await run(server, "-p", "go", "--deny", "Read(.env)", "--sandbox", sandbox)
    result = server.requests[-1].body.decode()
    assert "hunter2" not in result
    assert ("a:1" in result) == command.startswith("git grep")
    assert ("rule Read(.env)" in result) != command.startswith("git grep")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "is_error"),
    [
        ("grep -rn KEY .", False),
        ("grep -rn nothing .", False),
        ("grep -rn KEY sub/..", False),
        ("git grep -n KEY", False),
        ("git grep -n nothing", False),
        ("git grep --unknown KEY", True),
        ("grep -rn KEY . missing", True),
        ("grep -rn KEY .; false", True),
        ("grep -rn '[' .", True),
        ("ls missing", True),
    ],
)
@pytest.mark.usefixtures("tracked_secret")
async def test_a_search_that_meets_a_hidden_file_is_no_error_for_that(command, is_error):
    Path("a.py").write_text("KEY = 1\n")
    Path("sub").mkdir()
    call = FakeCall("bash", {"command": command})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        flags = (
            "--deny",
            "Read(.env)",
            "--permission-mode",
            "auto",
            "--output-format",
            "stream-json",
        )
        ran = await run(server, "-p", "go", *flags)
    result = server.requests[-1].body.decode()
    assert "hunter2" not in result
    errors = [line["is_error"] for line in ran.lines if "is_error" in line and "call_id" in line]
    assert errors == [is_error], ran.lines
