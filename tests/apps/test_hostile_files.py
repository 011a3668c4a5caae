"""What stands in a folder where a text file is looked for, and is none: the program, as it is run.

None of it may hold the program, fill the memory or reach a model; each is one sentence.
"""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.program import Ran, environment, finish, run
from tests.patience import PATIENCE
from treadle.apps.console import exit_codes
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
SETTINGS, LOCAL, CONFIG = (
    f".treadle/{name}" for name in ("settings.json", "settings.local.json", "config.toml")
)
BECOMING: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "outside": lambda path: path.symlink_to(Path.home() / "secret.json"),
    "folder": os.mkdir,
    "huge": lambda path: path.write_bytes(b" " * (2 << 20)),
}
SAID = {
    "pipe": "is a named pipe",
    "endless": "a symlink",
    "outside": "through a symlink",
    "folder": "is a folder",
    "huge": "larger than",
}


def stands(name: str, kind: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    (Path.home() / "secret.json").write_text('{"mcpServers": {"stolen": {"command": "x"}}}')
    BECOMING[kind](Path(name))


async def ends(*arguments: str, server: ProviderServer | None = None) -> Ran:
    async with asyncio.timeout(PATIENCE):
        ran = await run(server, *arguments)
    assert "Traceback" not in ran.err
    assert "stolen" not in ran.out + ran.err
    return ran


def told(ran: Ran, name: str, kind: str) -> bool:
    return any(name in line and SAID[kind] in line for line in (ran.out + ran.err).splitlines())


@pytest.mark.parametrize("kind", BECOMING)
async def test_settings_that_are_no_file_stop_with_a_sentence(kind: str):
    stands(SETTINGS, kind)
    async with ProviderServer([LAST]) as server:
        ran = await ends("-p", "hi", server=server)
    assert ran.code == exit_codes.USAGE_ERROR
    assert told(ran, SETTINGS, kind)
    assert server.requests == []


@pytest.mark.parametrize("kind", BECOMING)
async def test_a_file_of_servers_that_is_none_is_told_and_stops_nobody(kind: str):
    stands(".mcp.json", kind)
    async with ProviderServer([LAST]) as server:
        ran = await ends("-p", "hi", "--verbose", server=server)
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert told(ran, ".mcp.json", kind)


@pytest.mark.parametrize(
    ("name", "kind"), [(SETTINGS, "endless"), (LOCAL, "pipe"), (".mcp.json", "endless")]
)
async def test_whoever_looks_what_a_folder_brings_is_told(name: str, kind: str):
    stands(name, kind)
    ran = await ends("trust")
    assert told(ran, name, kind)
    if name != ".mcp.json":
        assert ran.code == exit_codes.USAGE_ERROR
        assert told(await ends("permissions"), name, kind)
        assert told(await ends("doctor"), name, kind)


@pytest.mark.parametrize("kind", ["pipe", "outside"])
async def test_a_projects_own_settings_wait_for_trust_and_are_read_with_care(kind: str):
    stands(CONFIG, kind)
    assert (await ends("config")).code == 0
    await ends("trust")
    ran = await ends("config")
    assert ran.code == exit_codes.USAGE_ERROR
    assert told(ran, CONFIG, kind)


@pytest.mark.parametrize("kind", ["pipe", "endless", "huge"])
async def test_memory_skills_and_agents_that_are_no_files_are_left_out(kind: str):
    names = ("AGENTS.md", ".treadle/skills/x/SKILL.md", ".claude/agents/x.md")
    for name in names:
        stands(name, kind)
    await ends("trust")
    async with ProviderServer([LAST]) as server:
        ran = await ends("-p", "hi", "--verbose", server=server)
    assert ran.code == 0
    missing = [name for name in names if not told(ran, name, kind)]
    assert missing == (["AGENTS.md"] if kind == "huge" else [])  # of that, the beginning is read
    assert b"stolen" not in server.requests[0].body


@pytest.mark.parametrize("path", ["", f"{os.pathsep}/nowhere", "."])
async def test_no_module_of_the_current_folder_becomes_part_of_the_program(path: str):
    for name in ("__future__", "msgspec", "httptools", "asyncio", "json", "tomllib"):
        Path(f"{name}.py").write_text("open('ran', 'w')\nraise SystemExit(9)\n")
    async with ProviderServer([FakeReply(calls=(FakeCall("ls", {}),)), LAST]) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "treadle", "-p", "hi"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(server, PYTHONPATH=path),
        )
        ran = await finish(process)
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert not Path("ran").exists()


async def test_a_folder_that_is_a_link_to_itself_is_borne():
    Path(".treadle").symlink_to(".treadle")
    async with ProviderServer([LAST]) as server:
        assert (await ends("-p", "hi", server=server)).code == 0
    assert (await ends("config")).code == 0


async def test_at_home_a_file_may_be_a_link_to_elsewhere(own_place: Path):
    (own_place / "dotfiles").mkdir()
    (own_place / "dotfiles/settings.json").write_text('{"permissions": {"deny": ["Read(.env)"]}}')
    (own_place / "dotfiles/config.toml").write_text("max_turns = 7\n")
    own = Path.home() / ".treadle"
    own.mkdir()
    for name in ("settings.json", "config.toml"):
        (own / name).symlink_to(own_place / "dotfiles" / name)
    for folder in (Path.cwd(), Path.home()):
        os.chdir(folder)
        assert "Read(.env)" in (await ends("permissions")).out
        assert (await ends("config", "max_turns")).out == "7\n"


async def test_a_link_that_leads_out_is_not_attached_but_a_path_that_was_typed_is(own_place: Path):
    secret = own_place / "home" / "secret.json"
    stands("innocent.txt", "outside")
    async with ProviderServer([LAST] * 3) as server:
        ran = await ends("-p", "see @innocent.txt", server=server)
        await run(server, "-p", f"see @{secret}")
        await run(server, "-p", "see @innocent.txt", "--add-dir", str(secret.parent))
    bodies = [request.body.decode() for request in server.requests]
    assert ["stolen" in body for body in bodies] == [False, True, True]
    assert f"innocent.txt is not attached: it is a symlink to {secret}" in ran.err


# ------------------------------------------------------------------ while a session goes on


async def test_what_a_command_puts_in_the_place_of_memory_does_not_reach_the_model():
    (Path.home() / "secret.json").write_text("PRIVATE-KEY")
    Path("AGENTS.md").write_text("Be nice.\n")
    await ends("trust")
    turned = FakeReply(calls=(FakeCall("bash", {"command": "ln -sf ~/secret.json AGENTS.md"}),))
    async with ProviderServer([turned, LAST]) as server:
        ran = await ends("-p", "go", *FREELY, server=server)
    assert ran.code == 0
    assert b"PRIVATE-KEY" not in server.requests[1].body
    assert b"through a symlink" in server.requests[1].body


@pytest.mark.parametrize("name", ["AGENTS.md", "a.txt"])
async def test_a_pipe_in_the_place_of_a_file_holds_nobody(name: str):
    Path(name).write_text("hello\n")
    await ends("trust")
    read = FakeReply(calls=(FakeCall("read", {"file_path": name}),))
    turned = FakeReply(calls=(FakeCall("bash", {"command": f"rm {name}; mkfifo {name}"}),))
    async with ProviderServer([read, turned, LAST]) as server:
        ran = await ends("-p", "go", *FREELY, server=server)
    assert (ran.code, ran.out) == (0, "That is all.\n")
    said = json.dumps(json.loads(server.requests[2].body)["messages"])
    assert f"{name} (no longer a file)" in said
