"""The sandbox, tried through the program: deny rules, and what is said without it."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, Ran, environment, finish, run, start
from tests.workspace.helpers import BOTH, needs_bubblewrap
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
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        ran = await run(server, "-p", "go", "--permission-mode", "auto")
    assert ran.code == 0
    result = server.requests[-1].body.decode()
    assert "deny rules hide from commands: .env" in result
    assert "hunter2" not in result
    assert Path("infra/main.tf").read_text() == "ours"


@needs_bubblewrap
@pytest.mark.parametrize("where", ["home", "above"])
async def test_in_the_home_folder_nothing_is_moved_away(where: str):
    home = Path.home()
    files = [".ssh/id_ed25519", ".bashrc", ".npmrc", ".gitconfig", "project/.git/config"]
    for name in files:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine")
    folder = home if where == "home" else home.parent
    call = FakeCall("bash", {"command": "ls"})
    async with ProviderServer([FakeReply("", calls=(call,)), FakeReply("done")]) as server:
        checked = await finish(await start(None, "doctor", cwd=folder))
        ran = await finish(await start(server, "-p", "go", cwd=folder))
    assert ran.out == "done\n"
    assert "it contains the home folder" in checked.out
    assert [(home / name).read_text() for name in files] == ["mine"] * len(files)
    assert not (home / ".local/state/treadle/set_aside").exists()


WITHOUT_SANDBOX = "commands run without a sandbox: bubblewrap is not installed"


async def run_without_bubblewrap(*arguments: str) -> Ran:
    calls = [FakeReply(calls=(FakeCall("bash", {"command": "pwd"}),)) for _ in range(2)]
    async with ProviderServer([*calls, FakeReply("done")]) as server:
        return await run(server, "-p", "go", *arguments, PATH="/nowhere")


async def test_without_bubblewrap_a_run_says_so_once():
    ran = await run_without_bubblewrap()
    assert ran.err.count(WITHOUT_SANDBOX) == 1
    assert WITHOUT_SANDBOX not in (await run_without_bubblewrap("--sandbox", "off")).err


async def test_without_bubblewrap_stream_json_has_one_warning():
    ran = await run_without_bubblewrap("--output-format", "stream-json")
    [warning] = [line for line in ran.lines if line["type"] == "warning"]
    assert warning["text"].startswith(WITHOUT_SANDBOX)
    assert warning["session_id"] == ran.lines[-1]["session_id"]


@pytest.mark.parametrize("limit", [200, 100])
@pytest.mark.parametrize("sandbox", BOTH)
async def test_commands_work_with_few_descriptors(limit: int, sandbox: bool):
    call = FakeCall("bash", {"command": "cd /; ulimit -n; exit 3"})
    async with ProviderServer([FakeReply(calls=(call,)), FakeReply("done")]) as server:
        options = ("--permission-mode", "bypass", "--sandbox", "auto" if sandbox else "off")
        program = shlex.join([*PROGRAM, "-p", "go", *options])
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"ulimit -n {limit}; exec {program}"),
            env=environment(server),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        ran = await finish(process)
    assert (ran.code, ran.out) == (0, "done\n")
    result = server.requests[-1].body.decode()
    assert f"{limit}\\n[exit code 3]" in result
    assert "still" in result  # the working directory was reported


@needs_bubblewrap
async def test_doctor_says_what_a_command_could_do_in_a_sandbox_that_confines_nothing(
    own_place: Path,
):
    checked = await run(None, "doctor")
    assert "commands run in bubblewrap, without network" in checked.out
    program = own_place / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    program.chmod(0o755)
    checked = await run(None, "doctor", PATH=f"{program.parent}:/usr/bin:/bin")
    assert checked.code == 1
    assert "bubblewrap does not confine: a command read a file outside of the folder" in checked.out
    assert list(Path.home().glob(".treadle-doctor-*")) == []
