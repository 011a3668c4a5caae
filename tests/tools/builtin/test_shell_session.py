"""A command that is typed into while it runs: started by bash, written to by task_input."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import failed, hands, plain
from tests.workspace.helpers import BOTH, needs_bubblewrap
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import Access, ToolSpec
from treadle.permissions.findings import PolicyContext
from treadle.permissions.policy import RulePolicy
from treadle.permissions.ruleset.rules_file import parse_rules


def start(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, "run_in_background": True, "stdin": True, **more}


def type_in(text: str, wait: int = 10_000) -> tuple[str, dict[str, Any]]:
    return "task_input", {"task_id": "t1", "text": text, "wait": wait}


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_repl_keeps_its_state_between_inputs(folder: Path, sandbox: bool) -> None:
    repl = "python3 -c 'import code; code.interact(banner=\"\")'"
    async with hands(folder, sandbox=sandbox) as agent:
        started, _, value, everything, stopped, after = await agent.do(
            start(repl),
            type_in("x = 6 * 7"),
            type_in("print('value', x)"),
            ("task_output", {"task_id": "t1"}),
            ("task_stop", {"task_id": "t1"}),
            type_in("print(x)"),
        )
    assert "t1" in plain(started)
    assert "value 42" in plain(value)
    assert "value 42" in plain(everything)
    assert "ended" in plain(stopped)
    assert "takes no input" in failed(after)


async def test_a_shell_keeps_its_folder_and_says_when_it_ends(folder: Path) -> None:
    (folder / "sub").mkdir()
    async with hands(folder) as agent:
        _, where, bye = await agent.do(start("sh"), type_in("cd sub; pwd"), type_in("exit"))
    assert plain(where) == f"{folder}/sub"
    assert plain(bye) == "(no output yet)\n[the command has ended]"


async def test_much_output_is_shown_from_its_end(folder: Path) -> None:
    async with hands(folder) as agent:
        _, shown = await agent.do(start("sh"), type_in("seq 1 20000; echo the-end"))
    assert plain(shown).endswith("the-end")
    assert len(shown.text) < 21_000


async def test_a_command_without_stdin_takes_no_input(folder: Path) -> None:
    async with hands(folder) as agent:
        _, refused, missing, foreground = await agent.do(
            ("bash", {"command": "sleep 1000", "run_in_background": True}),
            type_in("x"),
            ("task_input", {"task_id": "t7", "text": "x"}),
            ("bash", {"command": "cat", "stdin": True}),
        )
    assert "started without an input" in failed(refused)
    assert "known tasks: t1" in failed(missing)
    assert "run_in_background" in failed(foreground)


async def judge(text: str, *, sandbox: Any = "", rules: Any = None, **given: Any) -> Verdict:
    context = PolicyContext("/r", "/h", parse_rules(rules or {}, root="/r", home="/h"))
    spec, access = ToolSpec("task_input", "", {}), Access(command=text, sandbox=sandbox)
    request = PermissionRequest("s", "c", spec, {}, "", access)
    return await RulePolicy(context, **{"sandboxed": True, **given}).decide(request)


async def test_what_is_typed_is_judged_like_a_command_whose_folder_is_not_known() -> None:
    assert isinstance(await judge("ls"), Ask), "also what only reads in a shell"
    assert isinstance(await judge("ls", mode="auto"), Allow)
    assert isinstance(await judge("ls", mode="auto", sandboxed=False), Ask)
    assert isinstance(await judge("ls", mode="auto", sandbox="off"), Ask)
    assert isinstance(await judge("ls", rules={"allow": ["task_input"]}), Allow)
    denied = {"allow": ["task_input"], "deny": ["Bash(rm:*)"]}
    assert isinstance(await judge("rm -rf src", rules=denied), Deny)
    refused = await judge("ls", mode="auto", sandboxed=False, interactive=False)
    assert isinstance(refused, Deny)
    assert "the rule task_input" in refused.reason


async def test_the_user_sees_what_is_typed_into_what(folder: Path) -> None:
    async with hands(folder) as agent:
        tool = next(one for one in agent.tools.tools() if one.spec.name == "task_input")
        shown = tool.summary({"task_id": "t1", "text": "print(1)"})
    assert shown == "[task_input: t1: print(1)]"


@needs_bubblewrap
async def test_a_command_gets_the_network_only_if_it_asks_for_it(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"echo > /dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        async with hands(folder, sandbox=True) as agent:
            without, with_network, outside = await agent.do(
                ("bash", {"command": command}),
                ("bash", {"command": command, "sandbox": "network"}),
                ("bash", {"command": command, "with_escalated_permissions": True}),
            )
            tool = next(one for one in agent.tools.tools() if one.spec.name == "bash")
    assert failed(without)
    assert plain(with_network) == "(no output)"
    assert not outside.is_error
    assert tool.summary({"command": "ls", "sandbox": "network"}) == "[bash with network: ls]"
    assert tool.summary({"command": "ls", "sandbox": "off"}) == "[bash outside the sandbox: ls]"


def start_terminal(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, "run_in_background": True, "tty": True}


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.usefixtures("no_leaks")
async def test_a_program_that_needs_a_terminal_gets_one_and_can_be_interrupted(
    folder: Path, sandbox: bool
) -> None:
    size = "import os, time; print(os.isatty(0), os.isatty(1), os.get_terminal_size().columns)"
    async with hands(folder, sandbox=sandbox) as agent:
        _, first, wide, _, interrupted, ended = await agent.do(
            start_terminal("python3 -q"),
            type_in(size),
            ("task_input", {"task_id": "t1", "text": size, "columns": 77, "wait": 10_000}),
            type_in("print('asleep'); time.sleep(1000)"),
            type_in("\x03"),
            type_in("\x04"),
        )
    assert "True True 120" in plain(first)
    assert "True True 77" in plain(wide)
    assert "KeyboardInterrupt" in plain(interrupted)
    assert "[the command has ended]" in plain(ended)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_shell_on_a_terminal_has_job_control_and_no_old_commands(
    folder: Path, sandbox: bool
) -> None:
    async with hands(folder, sandbox=sandbox) as agent:
        _, shown, replaced, tab, keys = await agent.do(
            start_terminal("bash --norc -i"),
            type_in("set -o | grep monitor; echo $HISTFILE"),
            type_in("echo !echo"),
            type_in("echo a\tb"),
            type_in("echo safe\x15rm -rf x"),
        )
    assert "monitor on" in " ".join(plain(shown).split())
    assert "/dev/null" in plain(shown)
    assert "event not found" in plain(replaced)
    assert "type spaces" in failed(tab)
    assert "control character" in failed(keys)
