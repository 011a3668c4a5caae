from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.patience import PATIENCE
from treadle import Agent
from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Change,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.hook_data import UserPromptSubmitData
from treadle.core.contracts.policy import Ask, PermissionRequest, Verdict
from treadle.core.contracts.tool import Access, FileAccess
from treadle.core.errors import ConfigError
from treadle.core.events import WarningRaised
from treadle.core.transcript import NoticeItem, ToolResultItem, Transcript
from treadle.hooks import hook
from treadle.hooks.approval import (
    add_file_hashes,
    approve_hooks,
    approve_server,
    filter_approved_hooks,
    filter_approved_servers,
)
from treadle.hooks.command_hook import CommandHookContext, make_command_hooks
from treadle.hooks.hook_config import HookConfig, parse_hooks, read_hooks_file
from treadle.hooks.protocol import encode_input, parse_output
from treadle.models import Say, Scripted
from treadle.permissions.trust import TrustStore
from treadle.testing.observers import RecordingObserver
from treadle.testing.tools import RecordingTool
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


@asynccontextmanager
async def hooked(folder: Path, *commands: HookConfig, **options: Any) -> AsyncIterator[list[Hook]]:
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
    try:
        context = CommandHookContext(workspace.execute, folder, **options)
        yield make_command_hooks(commands, context)
    finally:
        await workspace.aclose()


def at(point: HookPoint, **data: Any) -> HookInput:
    return HookInput(point, "s1", "t1", data)


def calling(name: str = "record", **arguments: Any) -> Scripted:
    return Scripted([Say(calls=[(name, arguments)]), "done"])


def answers(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, ToolResultItem)]


def notices(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, NoticeItem)]


# --- settings ----------------------------------------------------------------------------


def test_hooks_are_read_as_other_agents_write_them(own_place: Path):
    file = own_place / "settings.json"
    entry = {"type": "command", "command": "./check.sh", "timeout": 5}
    hooks = {
        "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [entry]}],
        "Stop": [{"hooks": [{"command": "true"}]}],
    }
    file.write_text(json.dumps({"hooks": hooks}))
    before, stop = read_hooks_file(file)
    assert before == HookConfig("PreToolUse", "./check.sh", "Bash|Edit", 5.0, str(file), 0)
    assert (stop.point, stop.timeout) == ("stop", 60.0)
    assert read_hooks_file(own_place / "none.json") == []


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ({"PreToolUze": []}, r":3: unknown hook event 'PreToolUze'; did you mean PreToolUse"),
        ({"Stop": {}}, "must be a list"),
        ({"Stop": [{"command": "x"}]}, "each entry is"),
        ({"Stop": [{"hooks": [{"type": "agent", "prompt": "x"}]}]}, "no hook of the type 'agent'"),
        ({"Stop": [{"hooks": [{"type": "prompt"}]}]}, "needs a prompt"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "http://far.example/x"}]}]}, "https://"),
        ({"Stop": [{"hooks": [{"type": "http", "url": "https://[x"}]}]}, "url is not valid"),
        ({"SessionEnd": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}, "no effect at this"),
        ({"Stop": [{"hooks": [{"command": " "}]}]}, "needs a command"),
        ({"Stop": [{"hooks": [{"command": "x", "timeout": 0}]}]}, "timeout is 0"),
        ({"PreToolUse": [{"matcher": "(", "hooks": []}]}, "not a valid pattern"),
        ([], "object of events"),
    ],
)
def test_wrong_hooks_are_an_error_with_file_and_line(own_place: Path, hooks: object, words: str):
    file = own_place / "settings.json"
    file.write_text(json.dumps({"hooks": hooks}, indent=1))
    with pytest.raises(ConfigError, match=words):
        read_hooks_file(file)


@pytest.mark.parametrize(
    ("matcher", "tool", "concerns"),
    [
        ("", "bash", True),
        ("*", "bash", True),
        ("Bash", "bash", True),
        ("Edit | Write", "write", True),
        ("Bash", "bash_output", False),
        ("web.*", "web_fetch", True),
        ("WebFetch", "web_fetch", True),
        ("mcp__memory__.*", "mcp__memory__store", True),
        ("mcp__memory__.*", "mcp__other__store", False),
    ],
)
def test_a_matcher_is_a_list_or_a_pattern_without_regard_to_case(
    matcher: str, tool: str, concerns: bool
):
    command = HookConfig("PreToolUse", "true", matcher)
    assert command.matches(at("pre_tool_use", tool_name=tool)) is concerns


def test_a_matcher_of_another_point_is_about_its_subject():
    command = HookConfig("SessionStart", "true", "resume")
    assert not command.matches(at("session_start"))
    assert command.matches(at("session_start", source="resume"))


# --- the input of a command --------------------------------------------------------------


def test_a_command_gets_the_fields_that_scripts_know():
    data = {"tool_name": "bash", "tool_input": {"command": "ls \ud800"}, "call_id": "c1"}
    hook_input = at("pre_tool_use", summary="[bash]", **data)
    payload = json.loads(encode_input(hook_input, {"cwd": "/w", "permission_mode": "ask"}))
    assert payload == {
        "session_id": "s1",
        "cwd": "/w",
        "permission_mode": "ask",
        "hook_event_name": "PreToolUse",
        "turn_id": "t1",
        "caller": "library",
        "tool_name": "Bash",
        "tool_input": {"command": "ls \ud800"},
        "tool_use_id": "c1",
    }
    after = at("post_tool_use", **data, tool_response="out", is_error=False)
    assert json.loads(encode_input(after, {}))["tool_response"] == {
        "text": "out",
        "is_error": False,
        "success": True,
        "stdout": "out",
        "stderr": "",
        "interrupted": False,
        "isImage": False,
    }
    stop = json.loads(encode_input(at("stop", last_message="bye", rounds=1), {}))
    assert stop["last_assistant_message"] == "bye"
    assert json.loads(encode_input(at("pre_compact"), {}))["trigger"] == "auto"


def test_a_synonym_does_not_get_a_path_past_a_guard():
    hook_input = at(
        "pre_tool_use",
        tool_name="read",
        tool_input={"path": "a"},
        access=Access(files=(FileAccess("a"),)),
    )
    assert json.loads(encode_input(hook_input, {}))["tool_input"] == {"path": "a", "file_path": "a"}
    unchanged = '{"updatedInput": {"path": "a", "file_path": "a", "limit": 3}}'
    assert parse_output(hook_input, unchanged).answer == Change({"path": "a", "limit": 3})
    moved = '{"updatedInput": {"path": "a", "file_path": "b"}}'
    assert parse_output(hook_input, moved).answer == Change({"file_path": "b"})


SPECIFIC = "hookSpecificOutput"


@pytest.mark.parametrize(
    ("point", "output", "answer"),
    [
        ("pre_tool_use", {"decision": "block", "reason": "no"}, Block("no")),
        ("pre_tool_use", {"decision": "approve"}, None),
        ("pre_tool_use", {"continue": False, "stopReason": "over"}, Block("over")),
        ("pre_tool_use", {SPECIFIC: {"permissionDecision": "allow"}}, None),
        (
            "pre_tool_use",
            {SPECIFIC: {"permissionDecision": "deny", "permissionDecisionReason": "why"}},
            Block("why"),
        ),
        ("pre_tool_use", {SPECIFIC: {"updatedInput": {"n": 2}}}, Change({"n": 2})),
        ("pre_tool_use", {SPECIFIC: {"additionalContext": "mind"}}, AddContext("mind")),
        ("permission_request", {SPECIFIC: {"decision": {"behavior": "deny", "message": "m"}}},
         Block("m")),
        ("permission_request", {SPECIFIC: {"decision": {"behavior": "allow"}}},
         Permit("a hook approved it")),
        ("permission_request",
         {SPECIFIC: {"decision": {"behavior": "allow", "updatedInput": {"n": 2}}}}, None),
        ("post_tool_use", {"decision": "block", "reason": "fix it"}, AddContext("fix it")),
        ("post_tool_use", {SPECIFIC: {"updatedToolOutput": "short"}}, Change(text="short")),
        ("user_prompt_submit", {"decision": "block", "reason": "secret"}, Block("secret")),
        ("user_prompt_submit", {"additionalContext": "Sunday"}, AddContext("Sunday")),
        ("session_start", {SPECIFIC: {"additionalContext": "hello"}}, AddContext("hello")),
        ("stop", {"decision": "block", "reason": "go on"}, Block("go on")),
        ("stop", {"continue": False}, None),
        ("pre_compact", {"decision": "block"}, Block("a hook denied it")),
        ("notification", {"decision": "block"}, None),
    ],
)  # fmt: skip
def test_json_is_understood(point: HookPoint, output: dict[str, Any], answer: HookAnswer | None):
    assert parse_output(at(point), json.dumps(output)).answer == answer


@pytest.mark.parametrize(
    "output", ["{", '{"decision": "perhaps"}', '{"continue": "no"}', "{" * 5000, '{"a": 1} b']
)
def test_json_that_is_none_is_an_error_and_plain_words_are_not(output: str):
    with pytest.raises(ValueError, match="not valid hook JSON"):
        parse_output(at("pre_tool_use"), output)
    assert parse_output(at("pre_tool_use"), "all is well").answer is None
    assert parse_output(at("session_start"), "On branch main").answer == AddContext(
        "On branch main"
    )


# --- commands ----------------------------------------------------------------------------


async def test_exit_two_denies_with_stderr_as_the_reason(own_place: Path, no_leaks: object):
    command = HookConfig("PreToolUse", "cat >input.json; echo not today >&2; exit 2", "Record")
    record = RecordingTool()
    async with hooked(own_place, command) as hooks:
        result = await Agent(calling(n=1), [record], hooks=hooks).run("x")
    assert answers(result.transcript) == ["denied: not today"]
    assert not record.calls
    payload = json.loads((own_place / "input.json").read_bytes())
    assert (payload["tool_name"], payload["tool_input"], payload["cwd"]) == (
        "Record",
        {"n": 1},
        str(own_place),
    )


@pytest.mark.parametrize(
    ("command", "limit", "words"),
    [
        ("sleep 1000", 0.2, "`sleep 1000` did not finish within 0.2 s"),
        ("./none.sh", PATIENCE, "`./none.sh` exited with 127: "),
        ("echo '{nonsense'", PATIENCE, "the output is not valid hook JSON"),
        ("kill -9 $$", PATIENCE, "was killed by SIGKILL"),
    ],
)
async def test_a_guard_that_fails_denies_in_one_sentence(
    own_place: Path, command: str, limit: float, words: str
):
    record, witness = RecordingTool(), RecordingObserver()
    async with hooked(own_place, HookConfig("PreToolUse", command, timeout=limit)) as hooks:
        agent = Agent(calling(n=1), [record], hooks=hooks, observers=[witness])
        result = await agent.run("x")
    [answer] = answers(result.transcript)
    assert answer.startswith("denied: a hook failed at pre_tool_use: `")
    assert words in answer
    assert [event.text for event in witness.events_of(WarningRaised)] == [
        answer.removeprefix("denied: ")
    ]
    assert not record.calls


async def test_a_change_and_a_remark_of_one_command_both_arrive(own_place: Path):
    output = {SPECIFIC: {"updatedInput": {"n": 2}, "additionalContext": "n was 1"}}
    command = HookConfig("PreToolUse", f"echo '{json.dumps(output)}'")
    record = RecordingTool()
    async with hooked(own_place, command) as hooks:
        result = await Agent(calling(n=1), [record], hooks=hooks).run("x")
    assert record.calls == [{"n": 2}]
    assert notices(result.transcript) == ["n was 1"]


def test_hooks_stand_only_where_commands_are(own_place: Path):
    async def run(*_: Any, **__: Any) -> Any: ...

    stop, before = HookConfig("Stop", "true"), HookConfig("PreToolUse", "true")
    context = CommandHookContext(run, own_place)
    assert [hook.points for hook in make_command_hooks([stop], context)] == [{"stop"}]
    both = make_command_hooks([stop, before], context)
    assert [set(hook.points) for hook in both] == [{"stop"}, {"pre_tool_use"}, {"pre_tool_use"}]
    assert make_command_hooks([], context) == []


async def test_exit_two_after_a_tool_is_context_for_the_model(own_place: Path):
    command = HookConfig("PostToolUse", "echo lint failed >&2; exit 2")
    async with hooked(own_place, command) as hooks:
        result = await Agent(calling(), [RecordingTool()], hooks=hooks).run("x")
    assert notices(result.transcript) == ["lint failed"]


PATCH = """*** Begin Patch
*** Add File: new.txt
+one
*** Update File: secrets/key.txt
@@
 kept
-old
+new
*** Update File: a.txt
*** Move to: b.txt
*** Delete File: gone.txt
*** End Patch"""
PATCHED = ("new.txt", "secrets/key.txt", "a.txt", "b.txt", "gone.txt")


def patching(point: HookPoint, **more: Any) -> HookInput:
    files = tuple(FileAccess(path, "write") for path in PATCHED)
    data = {"tool_name": "apply_patch", "tool_input": {"patch": PATCH}, "call_id": "c1"}
    return at(point, **data, access=Access(files=files), **more)


async def test_a_guard_of_files_is_asked_about_each_file_of_a_patch(own_place: Path):
    guard = "cat >>inputs.jsonl; echo >>inputs.jsonl; tail -1 inputs.jsonl | grep -q secrets/key"
    script = f"{guard} || exit 0; echo this file is protected >&2; exit 2"
    before = HookConfig("PreToolUse", script, "Edit|Write|MultiEdit|NotebookEdit")
    after = msgspec.structs.replace(before, event="PostToolUse", command="cat >>after.jsonl")
    async with hooked(own_place, before, after) as (guarding, reporting, _):
        assert await guarding.run(patching("pre_tool_use")) == Block("this file is protected")
        await reporting.run(patching("post_tool_use", tool_response="Done.", is_error=False))
    lines = (own_place / "inputs.jsonl").read_text().splitlines()
    shown = [json.loads(line) for line in lines if line]
    assert [(one["tool_name"], one["tool_input"]) for one in shown] == [
        ("Write", {"file_path": str(own_place / "new.txt"), "content": "one\n"}),
        (
            "Edit",
            {
                "file_path": str(own_place / "secrets/key.txt"),
                "old_string": "kept\nold\n",
                "new_string": "kept\nnew\n",
            },
        ),
    ]
    reports = (own_place / "after.jsonl").read_text().replace("}{", "}\n{").splitlines()
    paths = [json.loads(report)["tool_response"]["filePath"] for report in reports]
    assert paths == [str(own_place / path) for path in PATCHED]


async def test_a_hook_that_names_apply_patch_gets_the_patch_once(own_place: Path):
    command = HookConfig("PreToolUse", "cat >>input.json", "ApplyPatch|Edit")
    async with hooked(own_place, command) as (one, _):
        assert await one.run(patching("pre_tool_use")) is None
    payload = json.loads((own_place / "input.json").read_text())
    assert (payload["tool_name"], payload["tool_input"]) == ("ApplyPatch", {"patch": PATCH})


async def test_a_condition_about_edits_selects_the_files_of_a_patch(own_place: Path):
    command = HookConfig("PreToolUse", "exit 2", "*", condition="Edit(secrets/*)")
    other = HookConfig("PreToolUse", "exit 2", "*", condition="Edit(other/*)")
    async with hooked(own_place, command, other) as (one, two, _):
        assert isinstance(await one.run(patching("pre_tool_use")), Block)
        assert await two.run(patching("pre_tool_use")) is None


async def test_a_guard_of_files_is_asked_about_each_file_of_a_rename(own_place: Path):
    guard = HookConfig("PreToolUse", "grep -q secrets/ && exit 2; true", "Edit|Write")
    limited = HookConfig("PreToolUse", "exit 2", "*", condition="Edit(secrets/*)")
    named = HookConfig("PreToolUse", "cat >>input.json", "RenameSymbol|Edit")
    given = {"file_path": "a.py", "files": ["secrets/b.py"], "symbol": "x", "new_name": "y"}
    files = tuple(FileAccess(path, "write") for path in ("a.py", "secrets/b.py"))
    data = {"tool_name": "rename_symbol", "tool_input": given, "access": Access(files=files)}
    async with hooked(own_place, guard, limited, named) as (first, second, third, _):
        for one in (first, second):
            assert isinstance(await one.run(at("pre_tool_use", **data)), Block)
        assert await third.run(at("pre_tool_use", **data)) is None
    payload = json.loads((own_place / "input.json").read_text())
    assert payload["tool_name"] == "RenameSymbol"


async def test_a_hook_cannot_change_one_file_of_a_patch(own_place: Path):
    output = json.dumps({SPECIFIC: {"updatedInput": {"file_path": "x", "content": "y"}}})
    async with hooked(own_place, HookConfig("PreToolUse", f"echo '{output}'", "Write")) as (one, _):
        answer = await one.run(patching("pre_tool_use"))
    assert answer == Block("a hook wants other text for new.txt: change this file with `write`")


async def test_a_patch_is_permitted_only_if_each_of_its_files_is(own_place: Path):
    output = json.dumps({SPECIFIC: {"decision": {"behavior": "allow"}}})
    all_files = HookConfig("PermissionRequest", f"echo '{output}'", "Edit")
    some = msgspec.structs.replace(
        all_files, command=f"grep -q gone.txt && exit 0; echo '{output}'"
    )
    async with hooked(own_place, all_files, some) as (permitting, hesitating):
        assert isinstance(await permitting.run(patching("permission_request")), Permit)
        assert await hesitating.run(patching("permission_request")) is None


def test_a_hook_for_commands_sees_what_is_typed_into_a_running_one():
    given = {"task_id": "t1", "text": "rm -r x"}
    hook_input = at("pre_tool_use", tool_name="task_input", tool_input=given)
    for condition, is_run in (("", True), ("Bash(rm *)", True), ("Bash(git *)", False)):
        command = HookConfig("PreToolUse", "true", "Bash", condition=condition)
        assert command.matches(hook_input) is is_run
    shown = json.loads(encode_input(hook_input, {}))["tool_input"]
    assert shown == {**given, "command": "rm -r x"}
    for text in ("rm -r x", "ls"):
        output = json.dumps({"updatedInput": {**shown, "command": text}})
        assert parse_output(hook_input, output).answer == Change({**given, "text": text})


def test_a_hook_about_a_notebook_gets_the_names_of_claude_code():
    given = {"file_path": "a.ipynb", "cell": 1, "source": "1 + 1", "mode": "insert"}
    access = Access(files=(FileAccess("a.ipynb", "write"),))
    hook_input = at("pre_tool_use", tool_name="notebook_edit", tool_input=given, access=access)
    payload = json.loads(encode_input(hook_input, {"cwd": "/w"}))
    shown = payload["tool_input"]
    assert payload["tool_name"] == "NotebookEdit"
    assert shown["notebook_path"] == shown["file_path"] == "/w/a.ipynb"
    assert (shown["new_source"], shown["edit_mode"]) == ("1 + 1", "insert")
    same = json.dumps({SPECIFIC: {"updatedInput": shown}})
    assert parse_output(hook_input, same, "/w").answer == Change(given)
    other = json.dumps({SPECIFIC: {"updatedInput": {**shown, "new_source": "2"}}})
    assert parse_output(hook_input, other, "/w").answer == Change({**given, "source": "2"})


async def test_plain_output_is_context_where_a_session_or_prompt_begins(own_place: Path):
    start = HookConfig("SessionStart", 'basename "$CLAUDE_PROJECT_DIR"')
    prompt = HookConfig("UserPromptSubmit", "echo it is Sunday")
    async with hooked(own_place, start, prompt) as hooks:
        result = await Agent(Scripted(["ok"]), hooks=hooks).run("x")
    assert set(notices(result.transcript)) == {own_place.name, "it is Sunday"}


async def test_a_permission_hook_answers_for_the_user(own_place: Path):
    class Asking:
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Ask("?")

        async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None: ...

    output = json.dumps({SPECIFIC: {"decision": {"behavior": "allow"}}})
    record = RecordingTool()
    async with hooked(own_place, HookConfig("PermissionRequest", f"echo '{output}'")) as hooks:
        await Agent(calling(), [record], policy=Asking(), hooks=hooks).run("x")
    assert len(record.calls) == 1


async def test_a_stop_hook_sees_that_it_is_active_and_cannot_block_a_turn_forever(
    own_place: Path,
):
    # The first time it objects; then it sees that it did so already, and lets go.
    polite = "grep -q '\"stop_hook_active\": true' || { echo run the tests >&2; exit 2; }"
    async with hooked(own_place, HookConfig("Stop", polite)) as hooks:
        result = await Agent(Scripted(["a", "b"]), hooks=hooks).run("x")
    assert (result.text, notices(result.transcript)) == ("b", ["run the tests"])
    async with hooked(own_place, HookConfig("Stop", "exit 2")) as hooks:
        result = await Agent(Scripted([str(n) for n in range(20)]), hooks=hooks).run("x")
    assert result.text == "10"


async def test_a_message_is_shown_and_a_halt_is_asked_for(own_place: Path):
    told_person: list[str] = []
    halted: list[str] = []
    output = json.dumps({"continue": False, "stopReason": "enough", "systemMessage": "look"})
    command = HookConfig("PostToolUse", f"echo '{output}'")
    async with hooked(
        own_place,
        command,
        notify=told_person.append,
        end_turn=lambda session, reason: halted.append(reason),
    ) as hooks:
        await Agent(calling(), [RecordingTool()], hooks=hooks).run("x")
    assert (told_person, halted) == (["look"], ["enough"])


async def test_a_python_function_is_a_hook_too():
    @hook("pre_tool_use", matcher="rec.*")
    async def guard(hook_input: HookInput) -> HookAnswer | None:
        return Block("odd") if hook_input.data["tool_input"]["n"] % 2 else None

    @hook("user_prompt_submit")
    def remind(hook_input: HookInput) -> str:
        return f"{len(hook_input.data['prompt'])} chars"

    result = await Agent(calling(n=1), [RecordingTool()], hooks=[guard, remind]).run("four")
    assert answers(result.transcript) == ["denied: odd"]
    assert notices(result.transcript) == ["4 chars"]
    with pytest.raises(ConfigError, match="unknown hook point"):
        hook("before_lunch")  # type: ignore[call-overload]


# --- approval ----------------------------------------------------------------------------


def test_a_hook_of_a_project_runs_only_in_a_trusted_folder_and_as_it_was_approved(own_place: Path):
    store, folder = TrustStore(own_place / "trust.json"), own_place / "repo"
    folder.mkdir()
    (folder / "check.sh").write_text("exit 0")
    entry = {"hooks": [{"command": 'sh "$CLAUDE_PROJECT_DIR"/check.sh; true'}]}
    commands = parse_hooks({"hooks": {"Stop": [entry]}}, str(folder / ".treadle/settings.json"))
    assert [one.is_folder_trusted for one in filter_approved_hooks(store, folder, commands)[1]] == [
        False
    ]
    store.trust(folder)
    allowed, waiting = filter_approved_hooks(store, folder, commands)
    assert not allowed
    assert "is new and waits for your approval (`treadle trust --app" in waiting[0].summary
    approve_hooks(store, folder, commands)
    allowed, waiting = filter_approved_hooks(TrustStore(store.file), folder, commands)
    assert ([one.command for one in allowed], waiting) == ([commands[0].command], [])
    assert allowed[0].is_project
    (folder / "check.sh").write_text("curl evil")
    allowed, waiting = filter_approved_hooks(store, folder, commands)
    assert (allowed, waiting[0].state) == ([], "changed")


async def test_a_script_that_changes_during_a_session_is_not_run(own_place: Path):
    store = TrustStore(own_place / "trust.json")
    store.trust(own_place)
    script = own_place / "check.sh"
    script.write_text("true")
    command = HookConfig("PreToolUse", "sh ./check.sh")
    approve_hooks(store, own_place, [command])

    def still(one: HookConfig) -> bool:
        return bool(filter_approved_hooks(store, own_place, [one])[0])

    async with hooked(own_place, command, is_approved=still) as hooks:
        await Agent(calling(), [record := RecordingTool()], hooks=hooks).run("x")
        script.write_text("touch pwned")
        result = await Agent(calling(), [record], hooks=hooks).run("x")
    assert len(record.calls) == 1
    assert "changed since you approved it" in answers(result.transcript)[0]
    assert not (own_place / "pwned").exists()


def test_a_server_keeps_its_approval_when_it_writes_its_database(own_place: Path):
    store = TrustStore(own_place / "trust.json")
    store.trust(own_place)
    (own_place / "server.py").write_text("1")
    servers = {"db": {"command": "python3", "args": ["server.py", "--db-path", "./shop.db"]}}
    approve_server(store, own_place, "db", servers["db"])
    for content in ("made by its first run", "written by its second"):
        (own_place / "shop.db").write_text(content)
        assert filter_approved_servers(store, own_place, servers) == (servers, [])


def test_a_server_is_bound_to_the_files_of_the_project_that_it_names(own_place: Path):
    store = TrustStore(own_place / "trust.json")
    store.trust(own_place)
    (own_place / "server.py").write_text("1")
    servers = {"db": {"command": "python3", "args": ["server.py"]}}
    approve_server(store, own_place, "db", servers["db"])
    assert filter_approved_servers(store, own_place, servers) == (servers, [])
    (own_place / "server.py").write_text("2")
    (waiting,) = filter_approved_servers(store, own_place, servers)[1]
    assert waiting.description == "python3 server.py (outside of the sandbox)"
    assert "files" not in add_file_hashes({"command": "ls 'open \x00 /etc/passwd ../x"}, own_place)


def test_the_question_shows_that_changes_are_not_detected(own_place: Path):
    store = TrustStore(own_place / "trust.json")
    store.trust(own_place)
    commands = [HookConfig("Stop", "./check.s?")]
    what = filter_approved_hooks(store, own_place, commands)[1][0].description
    assert what.startswith("./check.s? (inside the sandbox, if there is one; changes of")
    approve_hooks(store, own_place, commands)
    assert filter_approved_hooks(store, own_place, commands)[0]
    servers: dict[str, dict[str, Any]] = {
        "db": {"command": "sh", "args": ["-c", "./s*"]},
        "far": {"url": "https://x.org"},
    }
    near, far = filter_approved_servers(store, own_place, servers)[1]
    assert (
        "outside of the sandbox; changes of the files that it runs are not detected"
        in near.description
    )
    assert far.description == "https://x.org"


async def test_a_yes_of_a_project_hook_is_ignored(own_place: Path):
    output = json.dumps({"decision": "approve"})
    own = HookConfig("PermissionRequest", f"echo '{output}'")
    theirs = msgspec.structs.replace(own, is_project=True)
    no = msgspec.structs.replace(theirs, command="echo never >&2; exit 2")
    hook_input = at("permission_request", tool_name="bash", tool_input={})
    async with hooked(own_place, own, theirs, no) as hooks:
        answers = [await one.run(hook_input) for one in hooks]
    assert answers == [Permit("a hook approved it"), None, Block("never")]


async def test_a_function_that_fails_as_a_hook_is_named(caplog: pytest.LogCaptureFixture):
    @hook("user_prompt_submit")
    def look_at_prompt(_: HookInput[UserPromptSubmitData]) -> None:
        raise ValueError("no table")

    with caplog.at_level("WARNING", "treadle"):
        await Agent(Scripted(["Yes."]), hooks=[look_at_prompt]).run("Is it there?")
    assert "look_at_prompt failed at user_prompt_submit: ValueError: no table" in caplog.text
