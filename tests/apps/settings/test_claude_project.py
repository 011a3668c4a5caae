"""A repository and a home with the files of Claude Code and Codex, as their documentation describes
them: everything is used, nothing is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.apps.program import run
from treadle.agents.agent_files import read_agent_files
from treadle.apps.assembly.parts import CodingAgent
from treadle.apps.settings.command_files import find_custom_commands
from treadle.apps.settings.extensions import discover_extensions, list_extension_files, load_skills
from treadle.apps.settings.folder_rules import load_rules
from treadle.apps.settings.load import load_settings
from treadle.core.contracts.model import ModelRequest
from treadle.core.transcript.items import ToolResultItem
from treadle.hooks.hook_config import read_hooks_file
from treadle.models import Say, Scripted
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

DATA = Path(__file__).parents[2] / "data"
MCP_SERVER = Path(__file__).parents[1] / "mcp_server.py"
OFF: dict[str, Any] = {"sandbox": "off", "settings": {"server_wait": "10m"}}


@pytest.fixture
def project(own_place: Path) -> Path:
    """The repository, in a home that has the user's own files."""
    shutil.copytree(DATA / "claude_home", own_place / "home", dirs_exist_ok=True)
    folder = own_place / "cwd"
    shutil.copytree(DATA / "claude_project", folder, dirs_exist_ok=True)
    (folder / "tools").mkdir(exist_ok=True)
    shutil.copy(MCP_SERVER, folder / "tools" / "stock_server.py")
    (own_place / "shop-docs").mkdir()
    (own_place / "shop-docs" / "prices.md").write_text("Prices end with 95 cents.")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def make_agent(folder: Path, script: Sequence[Any], **more: Any) -> tuple[CodingAgent, Scripted]:
    model = Scripted(list(script))
    return treadle.coding_agent(folder, model=model, trust=True, **{**OFF, **more}), model


def call(name: str, **arguments: Any) -> Say:
    return Say(calls=[(name, arguments)])


async def run_calls(folder: Path, *calls: Say, **more: Any) -> list[str]:
    """The results of these calls."""
    agent, _ = make_agent(folder, [*calls, "done"], **more)
    async with agent:
        result = await agent.run("go")
    return [item.text for item in result.transcript if isinstance(item, ToolResultItem)]


def notes_of(request: ModelRequest) -> str:
    return "\n".join(str(item) for item in request.transcript)


async def test_every_memory_file_and_import_is_in_the_prompt(project: Path):
    agent, model = make_agent(project, ["done"])
    async with agent:
        await agent.run("go")
    system = model.requests[0].system
    for words in (
        *("A small web shop", "(README)", "Short functions", "(naming)", "(local)", "(inner)"),
        *("(testing rule)", "(user)", "(user rule)", "(private import)", "(codex user)"),
    ):
        assert system.count(words) == 1, words
    assert "imported by no file" not in system


async def test_a_rule_with_paths_comes_with_the_first_file_that_it_is_about(project: Path):
    agent, model = make_agent(project, [call("read", file_path="src/api/orders.py"), "done"])
    async with agent:
        await agent.run("go")
    first, second = model.requests
    assert "(api rule)" not in first.system + notes_of(first)
    assert "(api rule)" in notes_of(second)
    assert "paths:" not in notes_of(second)
    assert "(react rule)" not in second.system + notes_of(second)


async def test_memory_files_of_the_folders_above_are_read_up_to_the_repository(project: Path):
    folder = project / "src" / "api"
    (folder / "AGENTS.md").write_text("Only for the API.")
    (folder / "AGENTS.override.md").write_text("Instead of it. (override)")
    agent, model = make_agent(folder, ["done"])
    async with agent:
        await agent.run("go")
    system = model.requests[0].system
    assert system.index("A small web shop") < system.index("(override)")
    assert "Only for the API" not in system


async def test_deny_rules_hold_first_of_all(project: Path):
    (project / ".env").write_text("KEY=1")
    (project / "secrets").mkdir()
    (project / "secrets" / "key.pem").write_text("pem")
    results = await run_calls(
        project,
        call("read", file_path=".env"),
        call("read", file_path="secrets/key.pem"),
        call("bash", command="curl http://localhost:1"),
        call("bash", command="sudo true"),
        call("write", file_path="docs/new.md", content="x"),
        permission_mode="bypass",
    )
    assert ["denied" in text for text in results] == [True] * 5
    assert not (project / "docs" / "new.md").exists()


async def test_deny_rules_hold_without_trust_and_nothing_else_of_the_folder_counts(project: Path):
    model = Scripted([call("bash", command="curl x"), call("bash", command="echo local"), "done"])
    agent = treadle.coding_agent(project, model=model, trust=False, **OFF)
    async with agent:
        result = await agent.run("go")
    curl, echo = [one for one in result.transcript if isinstance(one, ToolResultItem)]
    assert "denied" in curl.text
    assert "Bash(curl:*)" in curl.text
    assert not (project / "prompt.json").exists()
    assert "A small web shop" not in model.requests[0].system
    assert "(user)" in model.requests[0].system
    assert echo.text.startswith("local") or "approval" in echo.text
    assert not discover_extensions(project).env


async def test_allow_rules_of_the_project_count_once_it_is_trusted(project: Path):
    rules, _, warnings = load_rules(project)
    assert [rule.text for rule in rules().allow] == ["Bash(echo mine:*)"]
    assert any("Agent(Explore)" in line and "asked about instead" in line for line in warnings)
    (project / "Makefile").write_text("test:\n\t@touch tested\n")
    made, other = await run_calls(
        project,
        call("bash", command="make test"),
        call("bash", command="make clean"),
        permission_mode="ask",
    )
    assert "denied" not in made
    assert "needs the user's approval" in other
    assert (project / "tested").exists()


async def test_the_hooks_get_what_their_scripts_read(project: Path):
    results = await run_calls(
        project,
        call("bash", command="rm README.md"),
        call("bash", command="git commit -m x"),
        call("bash", command="echo fine"),
        call("bash", command="exit 3"),
        call("read", file_path="src/api/orders.py"),
        call("edit", file_path="src/api/orders.py", old_string="[]", new_string="[1]"),
        permission_mode="bypass",
    )
    assert "use git rm instead" in results[0]
    assert "denied" in results[1]
    assert "fine" in results[2]  # the hook that breaks (exit code 1) denies nothing
    assert (project / "edits.log").read_text() == "Edit orders.py True\n"
    failure = json.loads((project / "failure.json").read_text())
    assert failure["hook_event_name"] == "PostToolUseFailure"
    assert failure["tool_response"]["stdout"]
    prompt = json.loads((project / "prompt.json").read_text())
    assert (prompt["prompt"], prompt["permission_mode"]) == ("go", "bypassPermissions")
    assert json.loads((project / "stop.json").read_text())["last_assistant_message"] == "done"


async def test_a_hooks_own_log_is_no_changed_code(project: Path):
    def waiting() -> list[str]:
        return [one.name for one in discover_extensions(project).unapproved]

    trusted = await run(None, "trust", "--approve")
    assert trusted.code == 0, trusted.err
    assert waiting() == []
    (project / "edits.log").write_text("a line of the hook\n")
    assert waiting() == []
    (project / ".claude/hooks/log_edit.py").write_text("print('changed')\n")
    assert waiting() == [".claude/settings.json/PostToolUse/0"]


async def test_environment_and_folders_of_the_settings_reach_commands(project: Path):
    results = await run_calls(
        project,
        call("bash", command='echo "$SHOP_ENV $FROM_HOME [$GITHUB_TOKEN] $NODE_NO_WARNINGS"'),
        call("read", file_path=str(project.parent / "shop-docs" / "prices.md")),
        permission_mode="bypass",
    )
    assert "test yes [] 1" in results[0]
    assert "95 cents" in results[1]


def test_mode_and_model_are_taken_where_the_user_has_none(project: Path):
    settings = load_settings(project, environ={"ANTHROPIC_API_KEY": "x"}, is_trusted=lambda: True)
    assert (settings.permission_mode, settings.model) == ("plan", "opus")
    (Path.home() / ".claude/settings.json").unlink()
    settings = load_settings(project, environ={"ANTHROPIC_API_KEY": "x"}, is_trusted=lambda: True)
    assert (settings.permission_mode, settings.model) == ("ask", "sonnet")
    assert any("a project may only narrow" in note for note in settings.notes)
    assert load_settings(project, environ={}, is_trusted=lambda: True).model == ""


async def test_a_model_judges_the_prompt_of_a_hook(project: Path):
    (project / "shop.lock").write_text("locked")
    objection = '{"ok": false, "reason": "lock files are long"}'
    agent, model = make_agent(project, [call("read", file_path="shop.lock"), objection, "done"])
    async with agent:
        result = await agent.run("go")
    assert "Is this file needed?" in notes_of(model.requests[1])
    [item] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert "lock files are long" in item.text


def test_what_is_not_known_is_named_once_and_is_no_error(project: Path):
    settings = load_settings(project, environ={}, is_trusted=lambda: True)
    extensions = discover_extensions(project)
    notes = [*settings.notes, *extensions.notes, *extensions.unsupported]
    for words in (
        "alwaysThinkingEnabled",
        "GITHUB_TOKEN",
        "TeammateIdle",
        "'agent'",
    ):
        assert sum(words in note for note in notes) == 1, words


def test_the_switch_of_all_hooks_is_used_and_not_named_as_unused(project: Path):
    file = project / ".claude/settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "disableAllHooks": True}))
    settings = load_settings(project, environ={}, is_trusted=lambda: True)
    assert not any("disableAllHooks" in note for note in settings.notes)
    assert read_hooks_file(file, project, [], []) == []


def test_agents_and_skills_are_found_without_a_problem(project: Path):
    agents, problems = read_agent_files([project, Path.home()], home=Path.home())
    assert ({agent.name for agent in agents}, problems) == ({"code-reviewer", "test-runner"}, [])
    skills, notes = load_skills(project, trusted=True)
    assert ([skill.name for skill in skills], notes) == (["notes", "release"], [])


def test_commands_skills_and_prompts_can_be_typed(project: Path):
    commands, problems = find_custom_commands([project, Path.home()], home=Path.home())
    found = {command.name: command for command in commands}
    assert problems == []
    assert set(found) == {
        *("commit", "frontend:component", "explain", "prompts:draftpr", "release", "notes"),
    }
    assert "component Menu of the kind list" in found["frontend:component"].expand("Menu list")
    assert found["explain"].expand("'a b' c") == "Explain a b to a beginner."
    assert found["prompts:draftpr"].expand("FILES=a.py").endswith("for a.py.")
    assert "Run scripts/version.py with 2.0." in found["release"].expand("2.0")
    assert found["commit"].allowed_tools == ("Bash(git add:*)", "Bash(touch committed.txt)")


async def test_a_command_runs_headless_with_its_output_files_tools_and_model(project: Path):
    calls = FakeReply(calls=(FakeCall("bash", {"command": "touch committed.txt"}),))
    async with ProviderServer([FakeReply("first"), calls, FakeReply("second")]) as server:
        await run(None, "trust")
        waiting = await run(server, "-p", "/commit fix the cart", "--sandbox", "off")
        await run(None, "trust", "--approve")
        ran = await run(
            server, "-p", "/commit fix the cart", "--sandbox", "off", "--permission-mode", "ask"
        )
    assert (waiting.code, ran.code) == (0, 0), waiting.err + ran.err
    first, second = (json.loads(request.body) for request in server.requests[:2])
    assert "waits for your approval" in json.dumps(first["messages"])
    message = json.dumps(second["messages"])
    assert "mcp__stock__greet" in [one["name"] for one in second["tools"]]
    for words in ("?? .claude/", "Short functions", "Commit with the message"):
        assert words in message, words
    assert "haiku" in second["model"]
    assert (project / "committed.txt").exists()


async def test_servers_of_mcp_json_offer_their_tools(project: Path):
    agent, model = make_agent(project, ["done"])
    async with agent:
        await agent.run("go")
    names = [spec.name for spec in model.requests[0].tools]
    assert "mcp__stock__greet" in names
    assert names.index("mcp__stock__greet") > names.index("bash")


def test_the_trust_dialog_names_all_of_it(project: Path):
    listed = list_extension_files(project)
    for name in (".claude/settings.json", ".claude/rules", ".claude/CLAUDE.md", ".mcp.json"):
        assert name in listed
