"""`treadle.coding_agent`: the agent of the command line, in a program."""
# ruff: noqa: ASYNC240 (files are how a test and the agent meet)

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.apps.program import run
from tests.workspace.helpers import needs_bubblewrap
from treadle import Agent, Finished, tool
from treadle.apps.assembly.parts import CodingAgent
from treadle.core.errors import ConfigError, OutputMissing, UnknownModel
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.permissions import AllowAll
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.stores import MemoryStore
from treadle.tools import StaticSource

MCP_SERVER = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "mcp_server.py")]}
OFF: dict[str, Any] = {"sandbox": "off"}
PATIENT = {"server_wait": "10m"}  # a server starts slowly on a busy machine


def calling(name: str, **arguments: Any) -> Scripted:
    return Scripted([Say(calls=[(name, arguments)]), "done"])


def answers(result: treadle.Result[Any]) -> list[ToolResultItem]:
    return [item for item in result.transcript if isinstance(item, ToolResultItem)]


def home_files() -> list[str]:
    """The files there. Folders may stay: crash records are kept in them while a command runs."""
    home = Path.home()
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


# --- one way -----------------------------------------------------------------------------


async def test_a_program_and_the_command_line_send_the_same_request(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    async with ProviderServer([FakeReply("hello")] * 2) as server:
        ran = await run(server, "-p", "go", "--model", "claude-sonnet-4-5")
        assert ran.code == 0, ran.err
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        async with treadle.coding_agent(".", model="claude-sonnet-4-5") as agent:
            result = await agent.run("go")
    assert result.text == "hello"
    first, second = (json.loads(request.body) for request in server.requests)
    assert second["tools"] == first["tools"]
    assert second["system"] == first["system"]
    assert second["messages"] == first["messages"]


async def test_it_is_an_agent_that_runs_streams_and_steps(folder: Path):
    async with treadle.coding_agent(folder, model=Scripted(["one", "two", "three"])) as agent:
        assert isinstance(agent, Agent)
        assert (await agent.run("a")).text == "one"
        async with agent.stream("b") as events:
            assert [event async for event in events]
        driver = agent.start(prompt="c")
        step = await driver.next()
        assert isinstance(step, Finished)
        assert step.result.text == "three"
        await driver.aclose()
        assert agent.folder == folder


def test_it_needs_no_event_loop_to_be_made_and_run_sync_can_be_repeated(folder: Path):
    (folder / "a.txt").write_text("alpha")
    script: list[Any] = [Say(calls=[("bash", {"command": "cat a.txt"})]), "one"] * 2
    agent = treadle.coding_agent(folder, model=Scripted(script), permission_mode="bypass", **OFF)
    for _ in range(2):
        result = agent.run_sync("go")
        assert "alpha" in answers(result)[0].text


# --- what is written, what is closed -----------------------------------------------------


async def test_nothing_is_written_to_the_home_of_the_user(folder: Path):
    long = {"command": "seq 1 100000"}
    model = Scripted([Say(calls=[("bash", long)]), "done"])
    agent = treadle.coding_agent(folder, model=model, permission_mode="bypass", sandbox="off")
    async with agent:
        answer = answers(await agent.run("go"))[0]
        kept = Path(answer.full_output)
        assert kept.read_text().endswith("100000\n")
    assert not kept.exists()
    assert home_files() == []


async def test_closing_it_ends_commands_servers_and_the_model(folder: Path, no_leaks: None):
    class Closes(Scripted):
        is_closed = False

        async def aclose(self) -> None:
            self.is_closed = True

    background = {"command": "sleep 600", "run_in_background": True}
    model = Closes([Say(calls=[("bash", background)]), "started"])
    async with treadle.coding_agent(
        folder,
        model=model,
        permission_mode="bypass",
        mcp={"shop": MCP_SERVER},
        settings=PATIENT,
        **OFF,
    ) as agent:
        await agent.run("go", background_wait=0)
        names = [one.spec.name for one in agent.config.source.tools()]
        assert any(name.startswith("mcp__shop__") for name in names)
    assert model.is_closed


async def test_a_required_sandbox_that_is_missing_fails_at_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(folder))
    agent = treadle.coding_agent(folder, model=Scripted([]), sandbox="required")
    with pytest.raises(treadle.TreadleError, match="sandbox"):
        async with agent:
            pass
    await agent.aclose()


# --- permissions -------------------------------------------------------------------------


async def test_without_an_approver_a_command_that_needs_approval_is_denied(folder: Path):
    async with treadle.coding_agent(
        folder, model=calling("bash", command="touch made"), **OFF
    ) as agent:
        [answer] = answers(await agent.run("go"))
    assert answer.outcome == "denied"
    assert "approval" in answer.text
    assert not (folder / "made").exists()


async def test_an_approver_is_asked(folder: Path):
    asked = []

    async def approve(approval: Any) -> bool:
        asked.append(approval.call.name)
        return True

    model = calling("bash", command="touch made")
    async with treadle.coding_agent(folder, model=model, approve=approve, **OFF) as agent:
        await agent.run("go")
    assert asked == ["bash"]
    assert (folder / "made").exists()


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        ({"allow": ["Bash(touch:*)"]}, True),
        ({"allow": ["Bash(touch:*)"], "deny": ["Bash(touch made)"]}, False),
        ({"allow": ["Bash(touch:*)"], "ask": ["Bash(touch made)"]}, False),
        ({"permission_mode": "plan", "allow": ["Bash(touch:*)"]}, False),
        ({"permission_mode": "bypass"}, True),
        ({"settings": {"permission_mode": "bypass"}}, True),
    ],
)
async def test_rules_and_the_mode_decide(folder: Path, arguments: dict[str, Any], runs: bool):
    model = calling("bash", command="touch made")
    async with treadle.coding_agent(folder, model=model, sandbox="off", **arguments) as agent:
        await agent.run("go")
    assert (folder / "made").exists() is runs


async def test_the_mode_can_change_while_it_runs(folder: Path):
    model = Scripted([Say(calls=[("bash", {"command": "touch made"})]), "no"] * 2)
    async with treadle.coding_agent(folder, model=model, **OFF) as agent:
        await agent.run("go")
        assert not (folder / "made").exists()
        assert agent.permission_mode == "ask"
        agent.change_permission_mode("bypass")
        await agent.run("go")
    assert (folder / "made").exists()


async def test_a_session_knows_nothing_of_one_with_its_id_in_another_place(
    folder: Path, tmp_path: Path
):
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("one")
    first = [("bash", {"command": "cd sub"}), ("read", {"file_path": str(folder / "a.txt")})]
    write = {"file_path": str(folder / "a.txt"), "content": "two"}
    second = [("bash", {"command": "pwd"}), ("write", write)]
    rounds: list[Any] = [Say(calls=[one]) for one in first]
    again: list[Any] = [Say(calls=[one]) for one in second]
    model = Scripted([*rounds, "done", *again, "done"])
    async with treadle.coding_agent(folder, model=model, permission_mode="bypass", **OFF) as agent:
        async with agent.session("a", store=tmp_path / "one") as session:
            await session.run("go")
        async with agent.session("a", store=tmp_path / "two") as session:
            where, written = answers(await session.run("go"))
    assert where.text == str(folder)
    assert written.is_error  # it has not read the file


async def test_own_tools_run_without_approval(folder: Path):
    @tool
    def book_seat(row: int) -> str:
        """Book a seat."""
        return f"booked {row}"

    def plain(text: str) -> str:
        """A function without a decorator."""
        return text.upper()

    calls: list[Any] = [("book_seat", {"row": 3}), ("plain", {"text": "hi"})]
    model = Scripted([Say(calls=calls), "done"])
    async with treadle.coding_agent(folder, model=model, tools=[book_seat, plain]) as agent:
        texts = [answer.text for answer in answers(await agent.run("go"))]
    assert texts == ["booked 3", "HI"]


async def test_a_deny_rule_holds_for_an_own_tool(folder: Path):
    @tool
    def book_seat() -> str:
        """Book a seat."""
        return "booked"

    model = calling("book_seat")
    async with treadle.coding_agent(
        folder, model=model, tools=[book_seat], deny=["book_seat"]
    ) as agent:
        [answer] = answers(await agent.run("go"))
    assert answer.outcome == "denied"


# --- the files of the folder -------------------------------------------------------------


def untrusted_files(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Always answer in verse.")
    (folder / ".treadle").mkdir()
    hook = {"hooks": [{"type": "command", "command": "echo ran >> hook.log"}]}
    (folder / ".treadle" / "settings.json").write_text(
        json.dumps({"permissions": {"allow": ["Bash(touch:*)"]}, "hooks": {"PostToolUse": [hook]}})
    )
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": MCP_SERVER}}))
    agents = folder / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "poet.md").write_text("---\nname: poet\ndescription: writes verse\n---\nWrite verse.")


@pytest.mark.parametrize("trust", [None, False, True])
async def test_files_of_the_folder_count_only_if_it_is_trusted(folder: Path, trust: bool | None):
    untrusted_files(folder)
    model = calling("bash", command="touch made")
    async with treadle.coding_agent(
        folder, model=model, trust=trust, settings=PATIENT, **OFF
    ) as agent:
        await agent.run("go")
        names = [one.spec.name for one in agent.config.source.tools()]
        notes = "\n".join(agent.notes)
    first = model.requests[0]
    [task] = [spec for spec in first.tools if spec.name == "task"]
    is_trusted = bool(trust)
    assert ("answer in verse" in first.system) is is_trusted
    assert any(name.startswith("mcp__shop__") for name in names) is is_trusted
    assert ("writes verse" in task.description) is is_trusted
    assert (folder / "made").exists() is is_trusted
    assert (folder / "hook.log").exists() is is_trusted
    assert ("AGENTS.md ignored" in notes) is not is_trusted
    assert home_files() == []


async def test_a_denied_file_reaches_the_model_by_no_file_of_the_folder(folder: Path):
    untrusted_files(folder)
    (folder / "AGENTS.md").write_text("Hello @.env and @notes.txt\n@keys/a.txt\n@style.md")
    (folder / "keys").mkdir()
    for name in (".env", "notes.txt", "keys/a.txt"):
        (folder / name).write_text(f"the secret of {name}")
    (folder / "style.md").write_text("Be plain.")
    model = Scripted(["done"])
    async with treadle.coding_agent(
        folder,
        model=model,
        trust=True,
        deny=["Read(.env)", "Read(keys/**)"],
        ask=["Read(notes.txt)"],
        settings=PATIENT,
        **OFF,
    ) as agent:
        await agent.run("go")
        notes = "\n".join(agent.notes)
    assert "the secret" not in model.requests[0].system
    assert "Be plain." in model.requests[0].system
    for words in (
        "@.env: the rule Read(.env) denies reading it",
        "@keys/a.txt: the rule Read(keys/**) denies reading it",
        "@notes.txt: the rule Read(notes.txt) asks before it is read",
    ):
        assert words in notes


@pytest.mark.parametrize("allow", [[], ["Read(.env)"]])
async def test_a_file_of_secrets_is_imported_only_if_a_rule_allows_to_read_it(
    folder: Path, allow: list[str]
):
    (folder / "CLAUDE.md").write_text("Hello\n@.env")
    (folder / ".env").write_text("KEY=hunter2")
    model = Scripted(["done"])
    options: dict[str, Any] = {"trust": True, "allow": allow, **OFF}
    async with treadle.coding_agent(folder, model=model, **options) as agent:
        await agent.run("go")
    assert ("hunter2" in model.requests[0].system) is bool(allow)
    assert ("@.env: .env may contain secrets" in "\n".join(agent.notes)) is not bool(allow)


def test_a_rule_of_the_folder_that_opens_the_sandbox_is_named_and_not_used(folder: Path):
    (folder / ".treadle").mkdir()
    (folder / ".treadle" / "settings.json").write_text(
        '{"permissions": {"allow": ["Sandbox(off)", "Bash(make)"]}}'
    )
    agent = treadle.coding_agent(folder, model=Scripted([]), trust=True, **OFF)
    [note] = [note for note in agent.notes if "permissions" in note or "Sandbox" in note]
    assert "settings.json:1: Sandbox(off) is not used: a project cannot open the sandbox" in note


async def test_a_folder_that_the_user_trusted_before_is_trusted(folder: Path):
    (folder / "AGENTS.md").write_text("Always answer in verse.")
    ran = await run(None, "trust", str(folder))
    assert ran.code == 0, ran.err
    model = Scripted(["done"] * 2)
    async with treadle.coding_agent(folder, model=model) as agent:
        await agent.run("go")
    async with treadle.coding_agent(folder, model=model, trust=False) as agent:
        await agent.run("go")
    first, second = model.requests
    assert "answer in verse" in first.system
    assert "answer in verse" not in second.system


async def test_instructions_are_added_to_the_prompt_of_the_program(folder: Path):
    model = Scripted(["done"])
    async with treadle.coding_agent(folder, model=model, instructions="Never use tabs.") as agent:
        await agent.run("go")
    [request] = model.requests
    assert "Never use tabs." in request.system
    assert str(folder) in request.system


async def test_the_users_own_settings_apply_where_no_argument_is_given(folder: Path):
    file = Path.home() / ".treadle" / "config.toml"
    file.parent.mkdir()
    file.write_text('permission_mode = "plan"\nmax_turns = 7\n')
    agent = treadle.coding_agent(folder, model=Scripted([]))
    assert agent.permission_mode == "plan"
    agent = treadle.coding_agent(folder, model=Scripted([]), permission_mode="auto")
    assert agent.permission_mode == "auto"


# --- sessions ----------------------------------------------------------------------------


async def test_many_sessions_of_one_agent_do_not_mix(folder: Path):
    (folder / "sub").mkdir()
    script: list[Any] = [Say(calls=[("bash", {"command": "cd sub"})]), "moved"]
    model = Scripted([*script, Say(calls=[("bash", {"command": "pwd"})]), "done"])
    async with treadle.coding_agent(folder, model=model, permission_mode="bypass", **OFF) as agent:
        await agent.run("go", session=MemoryStore("one"))
        [answer] = answers(await agent.run("go", session=MemoryStore("two")))
    assert answer.text.strip() == str(folder)


async def test_a_continued_history_goes_on_in_the_folder_of_its_last_command(folder: Path):
    (folder / "sub").mkdir()
    script: list[Any] = [Say(calls=[("bash", {"command": "cd sub"})]), "moved"]
    again: list[Any] = [Say(calls=[("bash", {"command": "pwd"})]), "done"]
    options: dict[str, Any] = {"permission_mode": "bypass", "sandbox": "off"}
    async with treadle.coding_agent(folder, model=Scripted(script), **options) as agent:
        history = (await agent.run("go")).transcript
    async with treadle.coding_agent(folder, model=Scripted(again), **options) as agent:
        driver = agent.start("where?", history=history)
        while not isinstance(step := await driver.next(), Finished):
            pass
        await driver.aclose()
    last = [item for item in step.result.items if isinstance(item, ToolResultItem)][-1]
    assert last.text.strip() == str(folder / "sub")


async def test_a_session_on_disk_is_continued_by_another_agent(folder: Path, tmp_path: Path):
    (folder / "sub").mkdir()
    script: list[Any] = [Say(calls=[("bash", {"command": "cd sub"})]), "moved"]
    again: list[Any] = [Say(calls=[("bash", {"command": "pwd"})]), "You said go."]
    options: dict[str, Any] = {"permission_mode": "bypass", **OFF, "store": tmp_path / "chats.db"}
    async with treadle.coding_agent(folder, model=Scripted(script), **options) as agent:
        await agent.run("go", session="work")
    model = Scripted(again)
    async with treadle.coding_agent(folder, model=model, **options) as agent:
        async with agent.session("work") as session:
            result = await session.run("What did I say, and where are you?")
    assert result.text == "You said go."
    assert answers(result)[-1].text.strip() == str(folder / "sub")
    assert len(model.requests[0].transcript) > 2
    assert home_files() == []


async def test_an_invalid_file_of_a_trusted_folder_is_a_note(folder: Path):
    (folder / ".mcp.json").write_text('{"mcpServers": 3}')
    agent = treadle.coding_agent(folder, model=Scripted([]), trust=True)
    assert any("no MCP server of this folder is started" in note for note in agent.notes)


async def test_a_hook_that_ends_the_turn_ends_only_the_turn_that_it_is_in(folder: Path):
    settings = Path.home() / ".treadle" / "settings.json"
    settings.parent.mkdir()
    entry = {"hooks": [{"type": "command", "command": "echo '{\"continue\": false}'"}]}
    settings.write_text(json.dumps({"hooks": {"PostToolUse": [entry]}}))
    model = Scripted([Say(calls=[("ls", {})]), Say(calls=[("ls", {})])])
    async with treadle.coding_agent(folder, model=model, trust=True, **OFF) as agent:
        idle = agent.start()
        assert (await agent.run("go")).reason == "aborted"
        with pytest.raises(OutputMissing, match="aborted"):
            await agent.run("go", output=int)
        await idle.aclose()


async def test_a_hook_that_ends_the_turn_of_a_child_ends_that_of_its_parent(folder: Path):
    settings = Path.home() / ".treadle" / "settings.json"
    settings.parent.mkdir()
    entry = {
        "matcher": "ls",
        "hooks": [{"type": "command", "command": "echo '{\"continue\": false}'"}],
    }
    settings.write_text(json.dumps({"hooks": {"PostToolUse": [entry]}}))
    task = ("task", {"description": "look", "prompt": "look"})
    model = Scripted([Say(calls=[task]), Say(calls=[("ls", {})])])
    async with treadle.coding_agent(folder, model=model, trust=True, **OFF) as agent:
        result = await agent.run("go")
    assert result.reason == "aborted"
    assert len(model.requests) == 2


@pytest.mark.parametrize("sandbox", ["off", pytest.param("required", marks=needs_bubblewrap)])
async def test_a_rule_about_a_name_holds_in_an_added_folder(
    folder: Path, tmp_path: Path, sandbox: str
):
    added = tmp_path / "added"
    (added / "sub").mkdir(parents=True)
    (added / "sub/a.foo").write_text("hush-hush")
    path = str(added / "sub/a.foo")
    calls = [("read", {"file_path": path}), ("bash", {"command": f"cat {path}"})]
    calls.append(("grep", {"pattern": "hush", "path": str(added)}))
    if sandbox == "required":
        calls.append(("bash", {"command": f"cd {added}; cat $(echo sub)/*"}))
    options: dict[str, Any] = {"permission_mode": "bypass", "sandbox": sandbox}
    options |= {
        "add_dir": [added],
        "deny": ["Read(*.foo)"],
        "model": Scripted([Say(calls=calls), "x"]),
    }
    async with treadle.coding_agent(folder, **options) as agent:
        result = await agent.run("go")
    texts = [item.text for item in answers(result)]
    assert len(texts) == len(calls)
    assert not [text for text in texts if "hush-hush" in text]


# --- wrong arguments ---------------------------------------------------------------------


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"folder": "no/such/folder"}, r"coding_agent\(folder='no/such/folder'\): there is no such"),
    ({"folder": 3}, r"coding_agent\(folder=3\): it must be a path"),
    ({"permission_mode": "yolo"}, r"coding_agent\(permission_mode=...\) cannot be 'yolo'; .* plan"),
    ({"sandbox": "maybe"}, r"coding_agent\(sandbox=...\) cannot be 'maybe'; .*required, auto, off"),
    ({"max_cost": -1}, r"coding_agent\(max_cost=...\) cannot be -1"),
    ({"max_turns": "many"}, r"coding_agent\(max_turns=...\) cannot be 'many'"),
    ({"allow": ["Bash("]}, r"coding_agent\(allow=...\): 'Bash\(' is not a rule"),
    ({"deny": ["Frobnicate(x)"]}, r"coding_agent\(deny=...\): 'Frobnicate\(x\)'"),
    ({"ask": [""]}, r"coding_agent\(ask=...\): '' is not a rule"),
    ({"allow": "Bash(ls)"}, r"coding_agent\(allow='Bash\(ls\)'\): it must be a list of rules"),
    ({"mcp": {"shop": {"comand": "x"}}}, r"shop"),
    ({"mcp": {"shop": 3}}, r"coding_agent\(mcp=...\).*'shop' has to be an object"),
    ({"mcp": "no-such.json"}, r"coding_agent\(mcp='no-such.json'\): there is no such file"),
    ({"mcp": 3}, r"coding_agent\(mcp=3\): it must be servers"),
    ({"add_dir": ["no/such"]}, r"coding_agent\(add_dir=...\): there is no folder no/such"),
    ({"settings": {"permision_mode": "ask"}}, r"unknown setting 'permision_mode'; did you mean"),
    ({"settings": 3}, r"coding_agent\(settings=3\)"),
    ({"instructions": 3}, r"coding_agent\(instructions=3\): it must be a text"),
    ({"trust": "yes"}, r"coding_agent\(trust='yes'\): it must be a bool"),
    ({"retry": 3}, r"retry is 3; expected a Retry"),
    ({"tools": [3]}, r"3 is not a tool"),
    ({"tools": 3}, r"coding_agent\(tools=3\): it must be a list"),
    ({"hooks": "x"}, r"coding_agent\(hooks='x'\): it must be a list"),
    ({"add_dir": "/tmp"}, r"coding_agent\(add_dir='/tmp'\): it must be a list"),
    ({"model": 3}, r"coding_agent\(model=3\): it must be a name such as"),
    ({"model": Scripted}, r"coding_agent\(model=.*Scripted.*\): it must be"),
    ({"name": 3}, r"name is 3; expected a text"),
    ({"approve": 3}, r"approve is 3; expected a function"),
    ({"thinking": "deep"}, r"coding_agent\(thinking=...\) cannot be 'deep'"),
]


@pytest.mark.parametrize(("arguments", "problem"), WRONG)
def test_a_wrong_argument_is_named_at_once(arguments: dict[str, Any], problem: str):
    with pytest.raises(ConfigError, match=problem):
        treadle.coding_agent(**{"folder": ".", "model": Scripted([]), **arguments})


def test_an_own_tool_with_the_name_of_a_built_in_one_is_refused():
    def bash(command: str) -> str:
        """Mine."""
        return command

    with pytest.raises(ConfigError, match="'bash' is the name of a built-in tool"):
        treadle.coding_agent(model=Scripted([]), tools=[bash])


def test_an_own_source_that_offers_a_built_in_name_is_refused():
    source = StaticSource([tool(lambda: "x", name="bash")])
    with pytest.raises(ConfigError, match="'bash' is the name of a built-in tool; use another"):
        treadle.coding_agent(tools=[source], model=Scripted([]))


def test_an_argument_of_another_library_gets_its_name_here():
    make: Any = treadle.coding_agent
    for name, here in {"cwd": "folder", "mcp_servers": "mcp", "can_use_tool": "approve"}.items():
        with pytest.raises(TypeError, match=f"no argument '{name}'; here it is {here}"):
            make(**{name: None})


async def test_a_server_of_the_program_that_does_not_start_is_a_warning_in_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    servers = {"broken": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}}
    model = Scripted(["ok"])
    with caplog.at_level("WARNING", "treadle"):
        async with treadle.coding_agent(folder, model=model, mcp=servers, **OFF) as agent:
            await agent.run("x")
    assert any("MCP server broken" in record.getMessage() for record in caplog.records)


def test_a_deny_rule_that_is_asked_about_instead_is_a_warning_in_the_log(
    folder: Path, caplog: pytest.LogCaptureFixture
):
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["Agent(x)"]}}')
    with caplog.at_level("WARNING", "treadle"):
        treadle.coding_agent(folder, model=Scripted([]), **OFF)
    assert any("Agent is asked about instead" in one.getMessage() for one in caplog.records)


def test_servers_without_the_extra_are_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.core.extras.is_installed", lambda extra: False)
    with pytest.raises(treadle.MissingExtra, match=r"extra 'mcp' .* needs it for docs") as raised:
        treadle.coding_agent(folder, model=Scripted([]), mcp={"docs": MCP_SERVER})
    assert raised.value.extra == "mcp"


def test_two_servers_whose_tools_would_have_one_name_are_an_error(folder: Path):
    servers = {"a b": MCP_SERVER, "a_b": MCP_SERVER}
    with pytest.raises(ConfigError, match="rename one of them"):
        treadle.coding_agent(folder, model=Scripted([]), mcp=servers)


def test_an_unknown_model_is_an_error_at_once():
    with pytest.raises(UnknownModel, match="sonett"):
        treadle.coding_agent(model="sonett")


def test_a_copy_with_other_settings_is_an_agent(folder: Path):
    agent = treadle.coding_agent(folder, model=Scripted([]))
    assert isinstance(agent, CodingAgent)
    assert isinstance(agent.replace(policy=AllowAll()), Agent)


async def test_the_name_and_the_retries_reach_the_agent(folder: Path):
    file = Path.home() / ".treadle" / "config.toml"
    file.parent.mkdir()
    file.write_text('retry_attempts = 2\nretry_max_wait = "20s"\n')
    agent = treadle.coding_agent(folder, model=Scripted([]), name="reviewer")
    assert agent.config.name == "reviewer"
    assert agent.config.retry == treadle.Retry(attempts=2, max_wait=20.0)
    own = treadle.Retry(attempts=5)
    assert treadle.coding_agent(folder, model=Scripted([]), retry=own).config.retry == own


async def test_a_budget_holds_for_all_that_the_agent_does(folder: Path):
    model = Scripted(["one", "two"])
    async with treadle.coding_agent(folder, model=model, max_tokens=1) as agent:
        assert (await agent.run("go")).reason == "budget_exceeded"
    assert model.requests == []


async def test_the_program_calls_a_model_of_the_settings(folder: Path, monkeypatch: Any):
    call = FakeReply(calls=(FakeCall("read", {"file_path": "a.txt"}),))
    (folder / "a.txt").write_text("alpha")
    async with ProviderServer([call, FakeReply("It says alpha.")]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        async with treadle.coding_agent(folder) as agent:  # the key decides
            result = await agent.run("What does a.txt say?")
    assert result.text == "It says alpha."
    assert "alpha" in server.requests[1].body.decode()


# --- the example -------------------------------------------------------------------------


def test_the_example_fixes_the_file_and_may_not_delete_it():
    example = Path(__file__).parents[3] / "examples" / "coding_agent.py"
    ran = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    *_, answer, line = ran.stdout.splitlines()
    assert answer == "The greeting is right now. I was not allowed to delete the file."
    assert line == 'print("Hello")'
    assert "leave the file alone" in ran.stdout
    assert home_files() == []
