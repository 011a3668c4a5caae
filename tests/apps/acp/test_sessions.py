"""Whole tasks in an editor: the real process, driven by the client of the official SDK."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import (
    ClientCapabilities,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextResourceContents,
)

from tests.apps.acp.editor import Editor, call, connect, say
from tests.apps.program import run
from tests.apps.tui.harness import scripted, use
from tests.patience import until
from tests.tools.mcp.helpers import RAW, raw
from treadle.apps.acp.agent import define_servers
from treadle.apps.acp.session import EditorSession
from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation.session.callbacks import HostCallbacks
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript import ToolResultItem
from treadle.models import Say
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

DONE = FakeReply("It is done.")


async def test_a_whole_task_with_a_permission_request_a_diff_a_cancel_and_a_reload():
    Path("a.txt").write_text("one\ntwo\nthree\n")
    replies = [
        FakeReply(
            "I read it.",
            thinking="What is in it?",
            calls=(FakeCall("read", {"file_path": "a.txt"}),),
        ),
        call("edit", file_path="a.txt", old_string="two", new_string="2"),
        FakeReply("The file has a digit now."),
        call("bash", command="sleep 100"),
        DONE,
    ]
    async with ProviderServer(replies) as server, connect(server) as on:
        session = await on.new()
        done = await on.prompt(session, "Write a digit")
        assert done.stop_reason == "end_turn"
        assert done.usage is not None
        assert done.usage.output_tokens > 0
        assert Path("a.txt").read_text() == "one\n2\nthree\n"
        [(question, options)] = on.editor.permissions
        assert [one.kind for one in options] == [
            "allow_once",
            "allow_always",
            "allow_always",
            "reject_once",
        ]
        assert question.kind == "edit"
        diff = (question.content or [])[0]
        assert (diff.type, diff.path) == ("diff", str(Path("a.txt").resolve()))
        assert (diff.old_text, diff.new_text) == ("one\ntwo\nthree\n", "one\n2\nthree\n")
        assert on.editor.text == "I read it.The file has a digit now."
        assert on.editor.thoughts == "What is in it?"
        read, edit = on.editor.get_call("read"), on.editor.get_call("edit")
        assert (read["kind"], read["status"]) == ("read", "completed")
        assert read["locations"][0].path == str(Path("a.txt").resolve())
        assert "lines 1 to 3" in read["content"][0].content.text
        assert (edit["status"], edit["content"][0].type) == ("completed", "diff")

        on.editor.answer = lambda question, options: options[0].option_id
        running = asyncio.create_task(on.prompt(session, "Now wait"))
        await on.editor.until(lambda: on.editor.find_status("sleep") == "in_progress")
        await on.agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        assert on.editor.get_call("sleep")["status"] == "failed"
        assert await on.end() == 0

    editor = Editor()
    async with ProviderServer([DONE]) as server, connect(server, editor=editor) as on:
        await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
        kinds = [update.session_update for update in editor.updates]
        assert kinds[0] == "user_message_chunk"
        assert editor.text.startswith("I read it.The file has a digit now.")
        assert editor.get_call("edit")["content"][0].new_text == "one\n2\nthree\n"
        assert (await on.prompt(session, "And?")).stop_reason == "end_turn"
        assert "Write a digit" in server.requests[-1].body.decode()


async def test_always_is_remembered_for_the_folder():
    replies = [call("bash", command="touch one"), DONE, call("bash", command="touch two"), DONE]
    editor = Editor(lambda question, options: options[2].option_id)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        session = await on.new()
        await on.prompt(session, "Make one")
        assert editor.permissions[0][1][2].name.startswith("Yes, and always allow: ")
        assert editor.get_call("touch one")["kind"] == "execute"
        saved = json.loads(Path(".treadle/settings.local.json").read_text())
        assert "touch" in str(saved["permissions"]["allow"])


async def test_the_question_says_what_always_would_have_covered():
    replies = [call("bash", command="touch one"), DONE, call("bash", command="touch one"), DONE]
    editor = Editor(lambda question, options: options[0].option_id)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        await on.prompt(await on.new(), "Make one")
        await on.prompt(await on.new(), "Make it again")
    first, second = [str(question.content) for question, _ in editor.permissions]
    assert "would have covered" not in first
    assert "would have covered 1 of 1 past call, none that you denied." in second


async def test_what_is_allowed_in_this_session_is_asked_once_and_not_saved():
    replies = [call("bash", command="touch one"), DONE, call("bash", command="touch one"), DONE]
    editor = Editor(lambda question, options: options[1].option_id)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        session = await on.new()
        await on.prompt(session, "Make one")
        assert editor.permissions[0][1][1].name == "Yes, and allow it in this session"
        await on.prompt(session, "Make it again")
        assert len(editor.permissions) == 1
        assert not Path(".treadle/settings.local.json").exists()


async def test_a_rejected_call_does_not_happen_and_the_model_is_told():
    replies = [call("write", file_path="b.txt", content="x"), DONE]
    editor = Editor(lambda question, options: options[-1].option_id)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        assert (await on.prompt(await on.new(), "Write")).stop_reason == "end_turn"
        assert not Path("b.txt").exists()
        assert "The user denied this call." in server.requests[-1].body.decode()
        assert editor.get_call("b.txt")["status"] == "failed"


async def test_a_new_file_is_shown_as_a_diff_without_an_old_text():
    replies = [call("write", file_path="new.txt", content="hello\n"), DONE]
    async with ProviderServer(replies) as server, connect(server) as on:
        await on.prompt(await on.new(), "Write")
        diff = on.editor.get_call("new.txt")["content"][0]
        assert (diff.old_text, diff.new_text) == (None, "hello\n")


async def test_todos_are_the_plan_also_after_a_load():
    todos = [
        {"content": "read", "status": "completed"},
        {"content": "write", "status": "in_progress"},
    ]
    async with ProviderServer([call("todo", todos=todos), DONE, DONE]) as server:
        async with connect(server) as on:
            session = await on.new()
            await on.prompt(session, "Plan")
            [plan] = on.editor.of_kind("plan")
            shown = [(entry.content, entry.status) for entry in plan.entries]
            assert shown == [("read", "completed"), ("write", "in_progress")]
            assert not on.editor.of_kind("tool_call")
            await on.end()
        async with connect(server) as on:
            await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
            assert len(on.editor.of_kind("plan")) == 1


async def test_modes_and_models_are_chosen_in_the_editor():
    replies = [call("write", file_path="c.txt", content="x"), DONE, DONE]
    async with ProviderServer(replies) as server, connect(server) as on:
        opened = await on.agent.new_session(cwd=str(on.folder), mcp_servers=[])
        session = opened.session_id
        assert opened.modes is not None
        assert opened.modes.current_mode_id == "ask"
        modes = [mode.id for mode in opened.modes.available_modes]
        assert modes == ["ask", "accept-edits", "plan", "auto"]
        await on.agent.set_session_mode(session_id=session, mode_id="accept-edits")
        await on.prompt(session, "Write")
        assert Path("c.txt").exists()
        assert not on.editor.permissions

        options = {option.id: option for option in opened.config_options or []}
        assert {option.category for option in options.values()} == {
            "mode",
            "model",
            "thought_level",
        }
        names = [option.value for option in options["model"].options]
        assert options["model"].current_value in names
        other = next(name for name in names if name != options["model"].current_value)
        changed = await on.agent.set_config_option(
            session_id=session, config_id="model", value=other
        )
        assert changed is not None
        values = {option.id: option.current_value for option in changed.config_options}
        assert values["model"] == other
        assert values["mode"] == "accept-edits"
        await on.prompt(session, "And?")
        assert json.loads(server.requests[-1].body)["model"] == other.split("/")[1]


async def test_a_model_chosen_before_the_first_prompt_keeps_the_session_id():
    async with ProviderServer([DONE]) as server, connect(server) as on:
        opened = await on.agent.new_session(cwd=str(on.folder), mcp_servers=[])
        session = opened.session_id
        await on.agent.set_config_option(session_id=session, config_id="thinking", value="low")
        await on.prompt(session, "Hello")
        listed = await on.agent.list_sessions(cwd=str(on.folder))
        assert [one.session_id for one in listed.sessions] == [session]


async def test_sessions_are_listed_and_forked():
    async with ProviderServer([DONE, FakeReply("Otherwise."), DONE]) as server:
        async with connect(server) as on:
            first = await on.new()
            await on.prompt(first, "A question")
            forked = await on.agent.fork_session(session_id=first, cwd=str(on.folder))
            assert forked.session_id != first
            await on.prompt(forked.session_id, "Another way")
            assert "A question" in server.requests[-1].body.decode()
            await on.prompt(first, "The same way")
            assert "Another way" not in server.requests[-1].body.decode()
            listed = await on.agent.list_sessions(cwd=str(on.folder))
            rows = {one.session_id: one for one in listed.sessions}
            assert rows.keys() == {first, forked.session_id}
            assert rows[first].title == "A question"
            assert rows[first].cwd == str(on.folder)
            nothing = await on.agent.list_sessions(cwd="/")
            assert nothing.sessions == []


async def test_slash_commands_are_offered_and_run():
    Path.home().joinpath(".treadle/commands").mkdir(parents=True)
    Path.home().joinpath(".treadle/commands/greet.md").write_text("Say hello to $ARGUMENTS.")
    replies = [call("write", file_path="d.txt", content="x"), DONE, FakeReply("Hello, you.")]
    async with ProviderServer(replies) as server, connect(server) as on:
        session = await on.new()
        await on.editor.until(lambda: on.editor.of_kind("available_commands_update"))
        [offered] = on.editor.of_kind("available_commands_update")
        names = [command.name for command in offered.available_commands]
        assert {"compact", "undo", "trust", "greet"} <= {*names}
        await on.prompt(session, "Write")
        assert Path("d.txt").exists()
        assert (await on.prompt(session, "/undo")).stop_reason == "end_turn"
        assert not Path("d.txt").exists()
        await on.prompt(session, "/cost")
        assert "read from cache" in on.editor.text
        await on.prompt(session, "/greet you")
        assert "Say hello to you." in server.requests[-1].body.decode()
        count = len(server.requests)
        await on.prompt(session, "/gret you")
        assert "unknown command /gret; did you mean /greet?" in on.editor.text
        assert len(server.requests) == count


async def test_prompts_of_mcp_servers_are_commands():
    of_editor = McpServerStdio(name="raw", command=sys.executable, args=["-IS", RAW], env=[])
    async with ProviderServer(lambda request: DONE) as server, connect(server) as on:
        session = await on.agent.new_session(cwd=str(on.folder), mcp_servers=[of_editor])
        await on.prompt(session.session_id, "/raw:poem")  # it waits for the server
        assert "poem needs topic" in on.editor.text
        [poem] = [one for one in list_offered(on.editor) if one.name == "raw:poem"]
        assert poem.input.root.hint == "topic"
        assert server.requests == []
        await on.prompt(session.session_id, "/raw:poem looms")
        assert b"A poem about looms." in server.requests[-1].body


def list_offered(editor: Editor) -> list[Any]:
    updates = editor.of_kind("available_commands_update")
    return [*updates[-1].available_commands] if updates else []


async def test_a_folder_is_trusted_in_the_editor():
    Path("AGENTS.md").write_text("Always answer in verse.")
    async with ProviderServer([DONE, DONE]) as server, connect(server) as on:
        session = await on.new()
        await on.prompt(session, "Hello")
        assert "not trusted" in on.editor.text
        assert "in verse" not in server.requests[-1].body.decode()
        await on.prompt(session, "/trust")
        assert "Do you trust" in (on.editor.permissions[-1][0].title or "")
        await on.prompt(session, "Hello again")
        assert "in verse" in server.requests[-1].body.decode()


async def test_images_links_and_embedded_files_reach_the_model():
    image = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
    )
    Path("e.txt").write_text("linked")
    blocks = [
        *say("Look at "),
        ResourceContentBlock(
            type="resource_link", name="e.txt", uri=Path("e.txt").resolve().as_uri()
        ),
        EmbeddedResourceContentBlock(
            type="resource",
            resource=TextResourceContents(uri="file:///x/f.py", text="not saved yet"),
        ),
        ImageContentBlock(
            type="image", data=base64.b64encode(image).decode(), mime_type="image/png"
        ),
    ]
    async with ProviderServer([DONE]) as server, connect(server) as on:
        await on.agent.prompt(session_id=await on.new(), prompt=blocks)
        body = json.loads(server.requests[-1].body)
        content = body["messages"][0]["content"]
        text = content[0]["text"]
        assert "Look at @e.txt" in text
        assert 'path="/x/f.py"' in text
        assert "not saved yet" in text
        assert [part["type"] for part in content] == ["text", "image"]


async def test_a_server_of_the_editor_is_the_users_own():
    program = Path(__file__).parents[1] / "mcp_server.py"
    server_of_editor = McpServerStdio(
        name="tools",
        command=sys.executable,
        args=[str(program)],
        env=[EnvVariable(name="GREETING", value="hello")],
    )
    async with ProviderServer(lambda request: DONE) as server, connect(server) as on:
        session = await on.agent.new_session(cwd=str(on.folder), mcp_servers=[server_of_editor])
        await on.prompt(session.session_id, "Hello")
        while b"mcp__tools__" not in server.requests[-1].body:  # it starts in the background
            await on.prompt(session.session_id, "Which tools are there now?")


async def test_a_question_of_the_model_is_a_form_where_the_editor_has_forms():
    options = [{"label": "red"}, {"label": "blue", "description": "like the sky"}]
    ask = call("ask", question="Which colour?", options=options)
    form: dict[str, object] = {"elicitation": {"form": {}}}
    async with ProviderServer([ask, DONE, ask, DONE]) as server:
        async with connect(server, more=form) as on:
            on.editor.form_answer = {"choice": "blue"}
            await on.prompt(await on.new(), "Paint")
            assert on.editor.forms[0][0] == "Which colour?"
            assert "The user answered: blue" in server.requests[-1].body.decode()
        async with connect(server) as on:
            await on.prompt(await on.new(), "Paint")
            assert [one.name for one in on.editor.permissions[0][1]][:1] == ["red"]
            assert "The user answered: red" in server.requests[-1].body.decode()


async def test_a_plan_is_accepted_into_a_mode_that_the_editor_shows():
    replies = [call("present_plan", plan="1. Do it"), DONE]
    editor = Editor(lambda question, options: options[0].option_id)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        session = await on.new()
        await on.agent.set_session_mode(session_id=session, mode_id="plan")
        await on.prompt(session, "Plan it")
        question, options = editor.permissions[0]
        assert "1. Do it" in str(question.content)
        assert len(options) == 5
        assert editor.of_kind("current_mode_update")[-1].current_mode_id == "accept-edits"
        options = editor.of_kind("config_option_update")[-1].config_options  # the other form
        assert {one.id: one.current_value for one in options}["mode"] == "accept-edits"
        assert "The user accepted the plan." in server.requests[-1].body.decode()


async def test_a_load_that_fails_keeps_the_session_and_a_deleted_one_is_gone():
    async with ProviderServer([DONE, DONE]) as server, connect(server) as on:
        session = await on.new()
        assert (await on.prompt(session, "Hello")).stop_reason == "end_turn"
        with pytest.raises(RequestError, match="not a folder"):
            await on.agent.load_session(cwd="/does/not/exist", session_id=session, mcp_servers=[])
        assert (await on.prompt(session, "Again")).stop_reason == "end_turn"
        assert (await on.prompt(session, "/undo")).stop_reason == "end_turn"
        assert "nothing to undo" in on.editor.text
        deleting = {"sessionId": session}
        await on.agent._conn.send_request("session/delete", deleting)
        await on.agent._conn.send_request("session/delete", deleting)  # no error
        assert (await on.agent.list_sessions()).sessions == []


async def test_the_usage_of_the_context_is_shown():
    async with ProviderServer([DONE]) as server, connect(server) as on:
        await on.prompt(await on.new(), "Hello")
        usage = on.editor.of_kind("usage_update")[-1]
        assert 0 < usage.used < usage.size
        assert usage.cost.currency == "USD"


async def test_a_failed_request_is_an_error_with_a_sentence():
    async with ProviderServer([DONE], api_key="other") as server, connect(server) as on:
        session = await on.new()
        with pytest.raises(RequestError, match="key") as caught:
            await on.prompt(session, "Hello")
        assert caught.value.code == -32603


async def test_a_call_of_a_child_agent_is_approved_under_its_own_id():
    task = {"description": "look", "prompt": "Make a file"}
    replies = [
        call("task", **task),
        call("bash", command="touch made"),
        FakeReply("The file is there."),
        DONE,
    ]
    async with ProviderServer(replies) as server, connect(server) as on:
        done = await on.prompt(await on.new(), "Let a child do it")
        assert done.stop_reason == "end_turn"
        [(question, options)] = on.editor.permissions
        assert "/" in question.tool_call_id
        assert [one.kind for one in options] == ["allow_once", "reject_once"]
        assert Path("made").exists()
        updates = on.editor.of_kind("tool_call_update")
        child = [one for one in updates if one.tool_call_id == question.tool_call_id]
        assert child[-1].status == "completed"
        assert on.editor.get_call("task")["status"] == "completed"


async def test_a_reply_that_breaks_off_is_marked_and_repeated():
    replies = [FakeReply(("One ", "answer ", "in ", "pieces."))] * 2
    async with ProviderServer(replies, faults=["disconnect_in_text"]) as server:
        async with connect(server) as on:
            assert (await on.prompt(await on.new(), "Hello")).stop_reason == "end_turn"
            assert "The reply broke off" in on.editor.text
            assert on.editor.text.endswith("One answer in pieces.")


async def test_a_failed_change_of_the_model_keeps_the_session():
    async with ProviderServer([DONE, DONE]) as server, connect(server) as on:
        session = await on.new()
        await on.prompt(session, "Hello")
        with pytest.raises(RequestError):
            await on.agent.set_config_option(
                session_id=session, config_id="model", value="embedded/no-such-model"
            )
        assert (await on.prompt(session, "Still there?")).stop_reason == "end_turn"
        assert b"Hello" in server.requests[-1].body


async def test_a_request_before_the_end_of_the_input_is_answered():
    line = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    done = await run(None, "acp", said=line)
    assert done.code == 0
    [answer] = done.lines
    assert answer["result"]["agentInfo"]["name"] == "treadle"


# --- in this process ---------------------------------------------------------------------


def open_here(**options: object) -> EditorSession:
    flags: dict[str, object] = {"sandbox": "off", "server_wait": "10m", **options}
    client: Any = Editor()
    return EditorSession(client, ClientCapabilities(), Path.cwd(), flags, SessionOptions())


async def test_a_child_that_was_at_work_when_the_editor_died_is_an_interrupted_call(monkeypatch):
    task = ("task", {"description": "wait", "prompt": "Wait"})
    wait = ("bash", {"command": "touch made; sleep 97"})
    use(monkeypatch, scripted([Say(calls=[task]), Say("Begun.", calls=[wait]), "never"]))
    session = open_here(permission_mode="bypass")
    await session.open()
    prompt = asyncio.ensure_future(session.prompt(say("Let a child do it")))
    await until(lambda: Path("made").exists())  # the only sign that the command runs
    prompt.cancel()  # as the SDK does, which a signal keeps from waiting
    for _ in range(10):  # the turn is about to end
        await asyncio.sleep(0)
    await session.aclose()
    assert not session.is_busy
    await asyncio.wait([prompt])
    again = open_here()
    await again.open(resume=session.id)
    [result] = [item for item in again.session.driver.history if isinstance(item, ToolResultItem)]
    await again.aclose()
    assert (result.outcome, result.is_error) == ("interrupted", True)


async def test_two_servers_of_the_same_name_are_told(monkeypatch):
    use(monkeypatch, scripted(["done"]))
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mcpServers": {"raw": raw("many")}}))
    of_editor = [
        McpServerStdio(name="raw", command=sys.executable, args=["-IS", RAW, word], env=[])
        for word in ("one", "two")
    ]
    definitions, problems = define_servers(of_editor)
    assert definitions["raw"]["args"][-1] == "one"
    assert "the editor has two MCP servers with the name raw" in problems[0]
    session = HostedSession(Path.cwd(), {"sandbox": "off"}, SessionOptions(servers=definitions))
    await session.open(HostCallbacks())
    await session.aclose()
    assert [note for note in session.notes if "there are two MCP servers with the name raw" in note]


async def test_a_resumed_turn_has_the_tools_of_the_servers(monkeypatch):
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mcpServers": {"raw": raw()}}))
    model = scripted([Say(calls=[("bash", {"command": "touch made"})]), "done"])
    use(monkeypatch, model)
    session = open_here()
    await session.open()
    await session.session.servers.wait()  # a message does not
    session.session.driver.submit("Make a file")
    assert isinstance(await session.session.driver.next(), ApprovalRequest)
    await session.aclose()  # with the call unanswered
    again = open_here()
    await again.open(resume=session.id)
    await again.prompt(say("Go on"))
    await again.aclose()
    first, resumed = model.requests
    assert [one.name for one in resumed.tools] == [one.name for one in first.tools]
    assert "mcp__raw__echo" in [one.name for one in resumed.tools]
