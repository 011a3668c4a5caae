"""Hooks, servers, skills and child agents through the real program, with and without trust."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import run
from tests.tools.mcp.helpers import raw
from tests.workspace.helpers import needs_bubblewrap
from treadle.apps.console import exit_codes
from treadle.apps.settings.extensions import approve_extensions, discover_extensions
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
WALLED = ("--permission-mode", "auto")
SERVER = {"command": sys.executable, "args": [str(Path(__file__).parent / "mcp_server.py")]}


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


def said(request: ReceivedRequest) -> str:
    return request.body.decode()


def tools(request: ReceivedRequest) -> list[str]:
    return [tool["name"] for tool in json.loads(request.body)["tools"]]


def settings(folder: Path, **content: Any) -> None:
    file = folder / ".treadle" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))


def hook(event: str, command: str, matcher: str = "") -> dict[str, Any]:
    entry = {"matcher": matcher, "hooks": [{"type": "command", "command": command}]}
    return {event: [entry]}


# ------------------------------------------------------------------ hooks


async def test_the_users_own_hooks_are_asked_at_their_points(own_place: Path):
    settings(
        own_place / "home",
        hooks={
            **hook("PreToolUse", "echo no touching >&2; exit 2", "Bash"),
            **hook("UserPromptSubmit", "echo the word is quince"),
            **hook("SessionEnd", "cat > ended.json"),
        },
    )
    async with ProviderServer([bash("touch made"), LAST]) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert not Path("made").exists()
    assert "the word is quince" in said(server.requests[0])
    assert "denied: no touching" in said(server.requests[1])
    ended = json.loads(Path("ended.json").read_text())
    assert ended["permission_mode"] == "bypass"
    assert Path(ended["transcript_path"]).read_text().startswith('{"c"')


async def test_a_hook_may_end_the_turn():
    settings(Path.home(), hooks=hook("PostToolUse", "echo '{\"continue\": false}'"))
    async with ProviderServer([bash("touch made"), LAST]) as server:
        ran = await run(server, "-p", "go", "--output-format", "json", *FREELY)
    assert (ran.lines[0]["reason"], len(server.requests)) == ("aborted", 1)


async def test_a_failed_hook_of_claude_code_denies_no_call_and_the_user_is_told():
    file = Path.home() / ".claude/settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": hook("PreToolUse", "exit 1")}))
    async with ProviderServer([bash("touch made"), LAST]) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert Path("made").exists()
    assert "a hook failed: `exit 1` exited with 1" in ran.err
    assert "(the call was not denied)" in ran.err


async def test_a_projects_hook_runs_only_trusted_and_approved_as_it_is():
    Path("guard.sh").write_text("echo ran >> log")
    settings(Path(), hooks=hook("PreToolUse", "sh guard.sh"))
    replies = [bash("ls"), LAST] * 4
    async with ProviderServer(replies) as server:
        untrusted = await run(server, "-p", "go", "--verbose", *FREELY)
        shown = await run(None, "trust")
        waiting = await run(server, "-p", "go", "--verbose", *FREELY)
        assert not Path("log").exists()
        approved = await run(None, "trust", "--approve")
        await run(server, "-p", "go", *FREELY)
        assert Path("log").read_text() == "ran\n"
        Path("guard.sh").write_text("echo something else >> log")
        changed = await run(server, "-p", "go", "--verbose", *FREELY)
    assert "waits until you trust the folder: sh guard.sh" in untrusted.err
    assert "runs sh guard.sh" in shown.out
    assert "run `treadle trust --approve` to allow them" in shown.out
    assert "is new and waits for your approval" in waiting.err
    assert "approved: settings.json/PreToolUse/0" in approved.out
    assert "changed since you approved it" in changed.err
    assert Path("log").read_text() == "ran\n"


@needs_bubblewrap
async def test_a_folders_hook_runs_in_the_sandbox_and_the_users_own_outside(own_place: Path):
    """What a sandboxed command made of the hook's files reaches no more than that command did."""
    secret = own_place / "home" / "secret"
    secret.write_text("of the home")
    settings(own_place / "home", hooks=hook("SessionStart", f"cp {secret} theirs"))
    settings(
        Path(),
        hooks={
            **hook("PreToolUse", "./check.s?"),
            **hook("SessionEnd", f"cat {secret} > end; touch ended"),
        },
    )
    Path("check.sh").write_text("#!/bin/sh\n")
    Path("check.sh").chmod(0o755)
    asked = await run(None, "trust", "--approve")
    change = bash(f"printf '#!/bin/sh\\ncat {secret} > got; touch ran\\n' > check.sh")
    async with ProviderServer([change, bash("true"), LAST]) as server:
        ran = await run(server, "-p", "go", *WALLED)
    assert ran.code == 0
    assert "(inside the sandbox, if there is one; changes of the files that it runs" in asked.out
    assert Path("theirs").read_text() == "of the home"
    assert (Path("ran").exists(), Path("got").read_text()) == (True, "")
    assert (Path("ended").exists(), Path("end").read_text()) == (True, "")


@needs_bubblewrap
async def test_a_hook_whose_makefile_was_rewritten_meanwhile_is_not_run():
    settings(Path(), hooks=hook("PreToolUse", "make -s lint"))
    Path("Makefile").write_text("lint:\n\ttrue\n")
    await run(None, "trust", "--approve")
    change = bash("printf 'lint:\\n\\ttouch ran\\n' > Makefile")
    async with ProviderServer([change, bash("true"), LAST]) as server:
        await run(server, "-p", "go", *WALLED)
    assert "`make -s lint` changed since you approved it" in said(server.requests[-1])
    assert not Path("ran").exists()


@needs_bubblewrap
async def test_in_an_untrusted_folder_the_users_own_hooks_run_in_the_sandbox(own_place: Path):
    """Such a hook stands in the folder, where Python, make or npx load what they find."""
    secret, ours = own_place / "home" / "secret", own_place / "home" / ".treadle" / "hooks"
    secret.write_text("of the home")
    ours.mkdir(parents=True)
    (ours / "check.py").write_text("import beside; open('checked', 'w')")
    (ours / "beside.py").touch()
    Path("tool").mkdir()
    for name in ("tool/__init__.py", "tool/work.py", "beside.py"):
        Path(name).write_text(f"open('ran', 'w').write(open('{secret}').read())")
    line = f"python3 -m tool.work; cat {secret} > got; python3 {ours}/check.py; touch done"
    settings(own_place / "home", hooks=hook("SessionStart", line))
    async with ProviderServer([LAST, LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose", *WALLED)
        assert (Path("done").exists(), Path("got").read_text()) == (True, "")
        assert (Path("checked").exists(), Path("ran").read_text()) == (True, "")
        await run(None, "trust")
        await run(server, "-p", "go", "--verbose", *WALLED)
    assert "your own hooks run in the sandbox" in ran.err
    assert Path("got").read_text() == "of the home"


@needs_bubblewrap
async def test_what_a_command_wrote_does_not_become_part_of_the_users_own_programs():
    """In a trusted folder these run outside of the sandbox, and stand in the folder."""
    settings(Path.home(), hooks=hook("PreToolUse", "python3 -m json.tool </dev/null; true"))
    await run(None, "trust")
    write = "echo \"open('$PWD/ran', 'w')\""
    spoil = bash(f"{write} > sitecustomize.py; mkdir -p json; {write} | tee json/__init__.py")
    async with ProviderServer([spoil, bash("true"), LAST]) as server:
        ran = await run(server, "-p", "go", *WALLED, PYTHONPATH=f"{Path.cwd()}:")
    assert ran.code == 0
    assert Path("json/__init__.py").exists()
    assert not Path("ran").exists()


async def test_a_misspelt_hook_refuses_the_start():
    settings(Path.home(), hooks=hook("PreToolUsed", "true"))
    ran = await run(None, "-p", "go", ANTHROPIC_API_KEY="x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert "settings.json:1: unknown hook event 'PreToolUsed'" in ran.err


# ------------------------------------------------------------------ servers


async def test_a_projects_server_offers_its_tools_once_it_is_approved():
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": SERVER}}))
    greet = FakeReply(calls=(FakeCall("mcp__tiny__greet", {"who": "you"}),))
    async with ProviderServer([LAST, greet, LAST, greet, LAST]) as server:
        before = await run(server, "-p", "go", "--verbose")
        assert (await run(None, "trust", "--approve")).code == 0
        allowed = await run(server, "-p", "go", "--allow", "mcp__tiny__*")
        denied = await run(server, "-p", "go")
    assert "server tiny waits until you trust the folder" in before.err
    assert "mcp__tiny__greet" not in tools(server.requests[0])
    assert "mcp__tiny__greet" in tools(server.requests[1])
    assert (allowed.code, denied.code) == (0, exit_codes.APPROVAL_NEEDED)
    assert "hello you, keys: []" in said(server.requests[2])
    assert "Greet politely." in said(server.requests[2])


async def test_a_server_is_started_again_only_as_it_was_approved():
    """The user's own are started again as they are: nobody else says what they run."""
    Path("sub").mkdir()
    Path("sub/served.py").write_text(Path(SERVER["args"][0]).read_text())
    theirs = {"command": sys.executable, "args": ["served.py"], "cwd": "sub"}
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": theirs}}))
    settings(Path.home(), mcpServers={"own": SERVER})
    asked = await run(None, "trust", "--approve")
    change = bash('echo \'open("ran", "w")\' > sub/served.py')
    calls = [
        FakeReply(calls=(FakeCall(f"mcp__{name}__greet", {"who": who}),))
        for name in ("theirs", "own")
        for who in ("nobody", "you")
    ]
    async with ProviderServer([change, *calls, LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose", *FREELY, TREADLE_SERVER_WAIT="50")
    told, words = said(server.requests[-1]), "it changed since you approved it: review"
    assert ran.code == 0
    assert "outside of the sandbox" in asked.out
    assert told.count("went away during greet") == 2
    assert f"the server theirs is not running ({words}" in told
    assert f"MCP server theirs does not start: {words}" in ran.err
    assert told.count("hello you") == 1
    assert not Path("sub/ran").exists()


async def test_in_an_untrusted_folder_the_users_own_server_stands_at_home(own_place: Path):
    """Most are started as `python -m …` or `npx …`, which take what they find where they stand."""
    library = own_place / "library"
    library.mkdir()
    (library / "tiny.py").write_text(Path(SERVER["args"][0]).read_text() + "\nopen('stood', 'w')\n")
    Path("tiny.py").write_text(f"open('{Path.cwd()}/ran', 'w')")
    settings(Path.home(), mcpServers={"own": {"command": sys.executable, "args": ["-m", "tiny"]}})
    greet = FakeReply(calls=(FakeCall("mcp__own__greet", {"who": "you"}),))
    async with ProviderServer([greet, LAST, greet, LAST]) as server:
        for _ in ("not trusted", "trusted"):
            await run(
                server, "-p", "go", *FREELY,
                PYTHONPATH=str(library), TREADLE_SERVER_WAIT="50",
            )  # fmt: skip
            assert "hello you" in said(server.requests[-1])
            await run(None, "trust")
    assert (Path.home() / "stood").exists()
    assert Path("stood").exists()  # trusted: in the folder, and still itself
    assert not Path("ran").exists()


async def test_everything_of_a_server_that_is_approved_is_shown_and_no_secret_is_given():
    theirs = {
        **SERVER,
        "cwd": "sub",
        "env": {"A_KEY": "${MY_API_KEY}", "B": "${MY_PLACE:-x}", "C_TOKEN": "theirs-in-the-file"},
    }
    far = {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "Bearer ${MY_API_KEY}"}}
    Path("sub").mkdir()
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"near": theirs, "far": far}}))
    settings(Path(), hooks=hook("PreToolUse", "true" + " " * 3_000 + "; touch ran", "Bash"))
    key = "a-key-of-this-very-process"
    shown = await run(None, "trust", "--approve", MY_API_KEY=key, MY_PLACE="here")
    for line in (
        "runs true … (3,000 blanks) ; touch ran (inside the sandbox",
        "    for Bash",
        "    in the folder sub",
        "    with A_KEY=${MY_API_KEY}",
        "    with C_TOKEN=[redacted]",
        "    sends X-Key: Bearer ${MY_API_KEY}",
        "    reads your MY_PLACE",
        "    asks for your MY_API_KEY, which stays empty: only your own servers get secrets",
    ):
        assert line in shown.out
    assert key not in shown.out
    env = FakeReply(calls=(FakeCall("mcp__near__greet", {"who": "env"}),))
    async with ProviderServer([env, LAST]) as server:
        ran = await run(
            server, "-p", "go", "--verbose", *FREELY,
            MY_API_KEY=key, MY_PLACE="here", TREADLE_SERVER_WAIT="20",
        )  # fmt: skip
    assert "A_KEY=, B=here, C_TOKEN=theirs-in-the-file" in said(server.requests[-1])
    assert "MCP server near of this folder gets no secrets: MY_API_KEY stays empty" in ran.err


async def test_a_server_that_comes_late_is_announced_and_judged_by_its_own_rules():
    """The list of tools stays as it was; a rule about the tool counts for it all the same."""
    ready = str(Path.cwd() / "ready")  # the server itself does not stand in the folder
    late = {**SERVER, "args": [*SERVER["args"], ready], "startupTimeout": 60_000}
    settings(Path.home(), mcpServers={"tiny": late})
    greet = FakeCall("use_tool", {"name": "mcp__tiny__greet", "arguments": {"who": "you"}})
    wait = bash("touch ready; while [ ! -e listed ]; do sleep 0.01; done")
    async with ProviderServer([wait, bash("ls"), FakeReply(calls=(greet,)), LAST]) as server:
        deny = ("--deny", "mcp__tiny__greet")
        ran = await run(server, "-p", "go", *FREELY, *deny, TREADLE_SERVER_WAIT="0.01")
    assert ran.code == 0
    assert len({tuple(tools(request)) for request in server.requests}) == 1
    assert any("New tools; call them by" in said(request) for request in server.requests)
    assert "denied" in json.dumps(json.loads(server.requests[-1].body)["messages"][-1])


async def test_hooks_see_a_late_tool_as_itself_also_where_keys_are_kept_from_tools():
    ready = str(Path.cwd() / "ready")  # the server itself does not stand in the folder
    late = {**SERVER, "args": [*SERVER["args"], ready], "startupTimeout": 60_000}
    guard = hook("PreToolUse", "cat > seen.json; echo not you >&2; exit 2", "mcp__tiny__.*")
    settings(Path.home(), mcpServers={"tiny": late}, hooks=guard)
    greet = FakeCall("use_tool", {"name": "mcp__tiny__greet", "arguments": {"who": "you"}})
    wait = bash("touch ready; while [ ! -e listed ]; do sleep 0.01; done")
    async with ProviderServer([wait, bash("ls"), FakeReply(calls=(greet,)), LAST]) as server:
        ran = await run(
            server, "-p", "go", *FREELY,
            SOME_API_KEY="a-key-of-this-very-process", TREADLE_SERVER_WAIT="0.01",
        )  # fmt: skip
    assert ran.code == 0
    assert "denied: not you" in said(server.requests[-1])
    seen = json.loads(Path("seen.json").read_text())
    assert (seen["tool_name"], seen["tool_input"]) == ("mcp__tiny__greet", {"who": "you"})


@pytest.mark.parametrize("other", ["deploy (prod)", "deploy__prod"])
async def test_of_two_servers_with_the_same_tool_names_the_second_is_refused_by_name(other):
    settings(Path.home(), mcpServers={other: SERVER, "deploy_prod": SERVER})
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"deploy.prod": SERVER}}))
    async with ProviderServer([FakeReply("done")]) as server:
        assert (await run(None, "trust", "--approve")).code == 0
        ran = await run(server, "-p", "go", "--verbose")
    assert "MCP server 'deploy_prod' is not started: its tools would have the same" in ran.err
    assert f"those of {other!r} (mcp__deploy_prod__*)" in ran.err
    assert "MCP server 'deploy.prod' is not started" in ran.err
    assert tools(server.requests[0]).count("mcp__deploy_prod__greet") == 1


async def test_servers_that_are_alike_in_24_characters_are_not_confused():
    names = ["company-deployment-server-staging", "company-deployment-server-production"]
    settings(Path.home(), mcpServers=dict.fromkeys(names, SERVER))
    async with ProviderServer([FakeReply("done")]) as server:
        ran = await run(server, "-p", "go", "--verbose")
    assert f"MCP server {names[1]!r} is not started" in ran.err


async def test_a_server_that_cannot_start_is_named_and_the_run_goes_on():
    settings(Path.home(), mcpServers={"broken": {"command": "false"}, "wrong": {}})
    async with ProviderServer([LAST]) as server:
        ran = await run(server, "-p", "go")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert "server 'wrong': it needs a command or a url" in ran.err
    assert ran.err.count("MCP server broken is down and will be restarted: ") == 1


WRONG_FILES = [
    ({"servers": {"tiny": SERVER}}, '.mcp.json defines no servers: put them under the key "mcpS'),
    ('{"mcpServers": {"tiny": {"command": "x",}}}', ".mcp.json:1: not JSON: "),
    ("tiny: x", ".mcp.json:1: not JSON: "),
    ("", ".mcp.json is empty: it defines no servers"),
    ({"mcpServers": {"near": "x"}}, "the server 'near' has to be an object; it is not started"),
    ({"mcpServers": ["x"]}, ".mcp.json:1: mcpServers has to be an object of servers by name"),
]


NEVER_START: list[dict[str, Any]] = [
    {"comand": "x"},
    {"command": 5},
    {"command": "x", "args": "x.py"},
    {"command": "x", "url": "http://x"},
    {"url": "ftp://x"},
    {"url": "http://x", "type": "ws"},
    {"url": "https://"},
]


def test_a_definition_that_can_never_start_is_named_and_not_approved():
    wrong = {f"wrong{number}": one for number, one in enumerate(NEVER_START)}
    right = {"one": {"url": "${URL}", "oauth": {"clientId": "${ID}"}}, "two": {"command": "${C}"}}
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {**wrong, **right}}))
    found = discover_extensions(Path.cwd())
    assert [one.name for one in found.unapproved] == ["one", "two"]
    assert len(found.notes) == len(wrong)
    for name, note in zip(wrong, found.notes, strict=True):
        assert f".mcp.json: server '{name}': " in note
        assert note.endswith("; it is not started")
    assert approve_extensions(Path.cwd()) == ["one", "two"]


@pytest.mark.parametrize(("content", "problem"), WRONG_FILES)
def test_a_wrong_file_of_servers_is_named_with_what_is_wrong(content: object, problem: str):
    text = content if isinstance(content, str) else json.dumps(content)
    Path(".mcp.json").write_text(text)
    [note] = discover_extensions(Path.cwd()).notes
    assert problem in note


async def test_one_wrong_server_does_not_disable_the_others_and_broken_agents_are_named():
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {"wrong": 7, "tiny": SERVER}}))
    agents = Path(".treadle/agents")
    agents.mkdir(parents=True)
    (agents / "bad.md").write_text("---\nmode: fly\n---\nWork.\n")
    assert (await run(None, "trust", "--approve")).code == 0
    async with ProviderServer([LAST]) as server:
        ran = await run(server, "-p", "go")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert "the server 'wrong' has to be an object; it is not started" in ran.err
    assert "bad.md" in ran.err
    body: dict[str, Any] = dict(server.requests[0].json)
    names = [tool["name"] for tool in body["tools"]]
    assert any(name.startswith("mcp__tiny__") for name in names)


async def test_a_prompt_of_a_server_is_sent_or_says_what_is_missing():
    settings(Path.home(), mcpServers={"raw": raw()})
    async with ProviderServer([FakeReply("done")]) as server:
        sent = await run(server, "-p", "/raw:poem looms")
        missing = await run(server, "-p", "/raw:poem")
    assert (sent.code, sent.out) == (0, "done\n")
    assert "A poem about looms." in said(server.requests[0])
    assert (missing.code, len(server.requests)) == (2, 1)
    assert "poem needs topic: topic=..." in missing.err


async def test_a_server_that_never_answers_is_told_of_and_not_waited_for():
    settings(Path.home(), mcpServers={"mute": {"command": "sleep", "args": ["1000"]}})
    async with ProviderServer([LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose", TREADLE_SERVER_WAIT="0.5")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert (
        "MCP server mute is still starting after 0.5 s; its tools are added when it is up"
        in ran.err
    )


# ------------------------------------------------------------------ skills, agents, reminders


def skill(folder: Path, name: str, body: str) -> None:
    place = folder / ".treadle" / "skills" / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Use for {name}.\n---\n{body}")


async def test_skills_are_named_in_the_prompt_and_loaded_when_used():
    skill(Path.home(), "mine", "Whistle first.")
    skill(Path(), "theirs", "Hum first.")
    load = FakeReply(calls=(FakeCall("skill", {"name": "mine"}),))
    async with ProviderServer([load, LAST, LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose")
        await run(None, "trust")
        await run(server, "-p", "go")
    first, second, trusted = map(said, server.requests)
    assert "mine: Use for mine." in first
    assert "theirs: Use for theirs." not in first
    assert "1 skill of" in ran.err
    assert "Whistle first." in second
    assert "theirs: Use for theirs." in trusted


async def test_a_child_agent_has_a_session_of_its_own_within_its_parents():
    task = FakeReply(calls=(FakeCall("task", {"description": "look", "prompt": "Look around."}),))
    async with ProviderServer([task, FakeReply("I looked."), LAST]) as server:
        ran = await run(server, "-p", "go", "--output-format", "json", *FREELY)
    session = ran.lines[0]["session_id"]
    [place] = Path.home().glob(f".local/share/treadle/sessions/*/{session}/children/*")
    journal = (place / "journal.jsonl").read_text()
    assert "I looked." in journal
    assert "I looked." in said(server.requests[2])


async def test_a_file_that_somebody_else_changed_is_told():
    Path("notes.txt").write_text("one")
    read = FakeReply(calls=(FakeCall("read", {"file_path": "notes.txt"}),))
    async with ProviderServer([read, bash("echo two > notes.txt"), LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose", *FREELY)
    assert "the prompt cache broke" not in ran.err  # what is said later is appended
    assert "Changed on disk since you last saw them: " not in said(server.requests[1])
    assert "Changed on disk since you last saw them: " in said(server.requests[2])


async def test_a_wrong_small_model_is_told_before_any_work():
    ran = await run(None, "-p", "go", "--small-model", "acme/none", ANTHROPIC_API_KEY="x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert "acme" in ran.err
