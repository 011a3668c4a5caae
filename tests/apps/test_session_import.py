"""`treadle sessions import`: transcripts of Claude Code and Codex, through the real program."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.apps.program import Ran, run
from treadle.core.transcript.items import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.sessions.history import read_state
from treadle.sessions.library import Library
from treadle.testing.provider import FakeReply, ProviderServer

CLAUDE = Path(".claude/projects/-home-me-project/0f2c.jsonl")
CODEX = Path(".codex/sessions/2026/11/18/rollout-2026-11-18T09-00-00-77aa.jsonl")


class ClaudeFile:
    """Lines of a transcript, each below the one before it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def add(self, kind: str, content: object, parent: int | None = None, **more: object) -> int:
        number = len(self.lines)
        above = number - 1 if parent is None else parent
        message: dict[str, object] = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": more.pop("reply", f"msg_{number}"), "model": "claude-sonnet-4-5"}
        line: dict[str, object] = {
            "type": kind,
            "uuid": f"u{number}",
            "sessionId": "0f2c",
            "cwd": str(Path.cwd()),
        }
        line |= {"parentUuid": f"u{above}" if above >= 0 else None, "message": message}
        line |= {"timestamp": f"2026-01-02T03:04:{number:02}.000Z", "isSidechain": False}
        self.lines.append(line | more)
        return number

    def write(self, end: str = "") -> None:
        write(CLAUDE, self.lines, end)


def write(name: Path, lines: list[dict[str, Any]], end: str = "") -> None:
    file = Path.home() / name
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + end)


def use(call_id: str, name: str, **arguments: object) -> list[dict[str, object]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


def answer(call_id: str, text: str) -> list[dict[str, object]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": text}]


def read_items(ran: Ran) -> list[object]:
    library = Library()
    [found] = library.list_summaries()
    assert found.id in ran.out
    return list(read_state(library.root / found.key).transcript)


def make_claude_file() -> ClaudeFile:
    file = ClaudeFile()
    file.add("user", "fix the parser")
    file.add("assistant", [{"type": "thinking", "thinking": "Hm.", "signature": "x"}], reply="m1")
    first = file.add("assistant", use("t1", "Bash", command="ls"), reply="m1")
    second = file.add("assistant", use("t2", "Read", file_path="a.py"), reply="m1")
    file.add("user", answer("t1", "a.py"), first)
    file.add("user", answer("t2", "print()"), second)
    file.add("assistant", [{"type": "text", "text": "Fixed."}])
    return file


async def test_a_session_of_claude_code_is_imported_once_and_continued():
    make_claude_file().write(end='{"type":"user","mess')
    ran = await run(None, "sessions", "import")
    assert ran.code == 0, ran.err
    assert "1 turn" in ran.out
    assert "1 session imported" in ran.out
    assert "not read" not in ran.out
    user, reply, listed, read, last = read_items(ran)
    assert isinstance(user, UserItem)
    assert isinstance(reply, AssistantItem)
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("bash", {"command": "ls"}),
        ("read", {"file_path": "a.py"}),
    ]
    assert isinstance(listed, ToolResultItem)
    assert isinstance(read, ToolResultItem)
    assert (listed.text, read.text) == ("a.py", "print()")
    assert isinstance(last, AssistantItem)
    assert last.text == "Fixed."
    ran = await run(None, "sessions", "import", "--from", "claude")
    assert "(was imported before)" in ran.out
    assert len(Library().list_summaries()) == 1
    async with ProviderServer((FakeReply("More."),)) as server:
        ran = await run(server, "-p", "and now?", "--continue", "--model", "sonnet")
        assert (ran.code, ran.out) == (0, "More.\n")
        sent = json.dumps(server.requests[0].json)
        assert all(words in sent for words in ("fix the parser", "print()", "Fixed.", "and now?"))


async def test_a_slash_command_is_imported_as_the_user_typed_it():
    file = make_claude_file()
    tags = "<command-message>review is running</command-message>"
    file.add(
        "user", f"<command-name>/review</command-name>\n{tags}\n<command-args>a.py</command-args>"
    )
    file.add("user", "<local-command-stdout></local-command-stdout>")
    file.add("user", "what does <command-name>x</command-name> mean?")
    file.write()
    items = read_items(await run(None, "sessions", "import"))
    texts = [one.text for one in items if isinstance(one, UserItem)]
    assert texts[1:] == ["/review a.py", "what does <command-name>x</command-name> mean?"]


async def test_a_rewound_branch_a_child_and_unknown_lines_are_left_out_and_named():
    file = make_claude_file()
    file.add("user", "a dead end")
    file.add("assistant", [{"type": "text", "text": "Never mind."}])
    file.add("user", "of a child", isSidechain=True)
    file.lines.append({"type": "hologram", "sessionId": "0f2c"})
    file.lines.append({"type": "summary", "summary": "The parser", "leafUuid": "u6"})
    file.add("user", "the right way", 6)
    file.add("assistant", [{"type": "text", "text": "Done."}, {"type": "smell"}])
    file.write()
    ran = await run(None, "sessions", "import", str(Path.home() / CLAUDE))
    assert "The parser" in ran.out
    texts = [item.text for item in read_items(ran) if isinstance(item, (UserItem, AssistantItem))]
    assert texts == ["fix the parser", "", "Fixed.", "the right way", "Done."]
    assert (
        "    not read: 1 × block smell, 1 × line hologram, 2 × of a branch that a rewind left"
        in ran.out.splitlines()
    )


async def test_what_was_compacted_is_a_summary_that_can_be_undone():
    file = make_claude_file()
    file.lines.append(
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "u7",
            "parentUuid": None,
            "logicalParentUuid": "u6",
            "isSidechain": False,
        }
    )
    file.add("user", "So far: fixed.", isCompactSummary=True)
    file.add("user", "more")
    file.write()
    ran = await run(None, "sessions", "import")
    summary, more, note = read_items(ran)
    assert isinstance(summary, SummaryItem)
    assert summary.text == "So far: fixed."
    assert isinstance(more, UserItem)
    assert isinstance(note, NoticeItem)  # its turn has no answer, and none is asked for
    [found] = Library().list_summaries()
    assert len(read_state(Library().root / found.key).full_history) == 7
    assert found.turns == 2


def say(role: str, text: str) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def item(kind: str, **fields: object) -> dict[str, object]:
    return line("response_item", type=kind, **fields)


def line(kind: str, **payload: object) -> dict[str, object]:
    return {"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload}


def make_codex_lines() -> list[dict[str, Any]]:
    command = json.dumps({"command": ["bash", "-lc", "ls"]})
    listed = json.dumps({"output": "a.py\n", "metadata": {"exit_code": 1}})
    return [
        line("session_meta", id="77aa", cwd=str(Path.cwd()), cli_version="0.60.0"),
        line("turn_context", model="gpt-5-codex", cwd=str(Path.cwd())),
        say("user", "<environment_context>"),
        line("event_msg", type="user_message", message="list the files"),
        say("user", "list the files"),
        item("reasoning", summary=[{"type": "summary_text", "text": "I list."}]),
        item("function_call", name="shell", arguments=command, call_id="c1"),
        item("function_call_output", call_id="c1", output=listed),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
        item("custom_tool_call_output", call_id="c2", output="Success."),
        item("telepathy", call_id="c3"),
        say("assistant", "One file."),
        line("event_msg", type="agent_message", message="One file."),
    ]


async def test_a_session_of_codex_is_imported_with_its_commands_and_patches():
    write(CODEX, make_codex_lines())
    ran = await run(None, "sessions", "import", "--from", "codex")
    assert ran.code == 0, ran.err
    assert "not read: 1 × item telepathy, 1 × message of the program to the model" in ran.out
    user, first, listed, second, patched, last = read_items(ran)
    assert isinstance(user, UserItem)
    assert user.text == "list the files"
    assert isinstance(first, AssistantItem)
    assert first.model == "gpt-5-codex"
    assert [(call.name, call.arguments) for call in first.calls] == [("bash", {"command": "ls"})]
    assert isinstance(listed, ToolResultItem)
    assert (listed.text, listed.is_error) == ("a.py\n", True)
    assert isinstance(second, AssistantItem)
    assert second.calls[0].arguments == {"patch": "*** Begin Patch"}
    assert isinstance(patched, ToolResultItem)
    assert isinstance(last, AssistantItem)
    assert last.text == "One file."


async def test_a_call_without_a_result_does_not_run_when_the_session_continues():
    file = ClaudeFile()
    file.add("user", "delete it")
    file.add("assistant", use("t1", "Bash", command="touch ran.txt"))
    file.write()
    items = read_items(await run(None, "sessions", "import"))
    assert isinstance(items[2], ToolResultItem)
    assert items[2].outcome == "unknown"
    async with ProviderServer((FakeReply("No."),)) as server:
        ran = await run(
            server, "-p", "did it run?", "--continue", "--permission-mode", "bypass", "--model",
            "sonnet",
        )  # fmt: skip
    assert (ran.code, ran.out) == (0, "No.\n")
    assert not Path("ran.txt").exists()


async def test_wrong_input_is_named():
    Path("notes.jsonl").write_text('{"a": 1}\n')
    ran = await run(None, "sessions", "import", "notes.jsonl")
    assert ran.code == 1
    assert "notes.jsonl is no transcript of Claude Code or Codex" in ran.err
    ran = await run(None, "sessions", "import", "missing.jsonl")
    assert ran.code == 74
    ran = await run(None, "sessions", "import")
    assert ran.code == 1
    assert "no transcripts of this folder (--all: of all folders)" in ran.err
    ran = await run(None, "sessions", "import", "notes.jsonl", "--all")
    assert ran.code == 2


async def test_a_damaged_line_in_the_middle_costs_that_line_and_no_other():
    file = ClaudeFile()
    for number in range(0, 8, 2):
        file.add("user", f"question {number}")
        file.add("assistant", [{"type": "text", "text": f"answer {number}"}])
    del file.lines[3]
    file.write()
    ran = await run(None, "sessions", "import")
    assert ran.code == 0, ran.err
    assert "rewind" not in ran.out
    said = [one.text for one in read_items(ran) if isinstance(one, UserItem)]
    assert said == [f"question {number}" for number in range(0, 8, 2)]


async def test_a_transcript_that_cannot_be_imported_does_not_stop_the_others():
    bad = ClaudeFile()
    bad.add("assistant", [{"type": "text", "text": "Hello."}])
    write(CLAUDE.with_name("bad.jsonl"), bad.lines)
    good = Path.home() / CLAUDE
    good.write_text("".join(json.dumps(line) + "\n" for line in make_claude_file().lines))
    ran = await run(None, "sessions", "import")
    assert ran.code == 1
    assert "no message of the user can be read" in ran.err
    assert "1 session imported" in ran.out
