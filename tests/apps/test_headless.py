# ruff: noqa: ASYNC240 (files are how a test and the program meet)


from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import (
    PROGRAM,
    environment,
    finish,
    line_with,
    read_terminal,
    run,
    start,
)
from tests.patience import SOON, until
from treadle.apps.console import exit_codes
from treadle.core import errors
from treadle.lib.text.sanitize import strip_escapes
from treadle.sessions.library import Library
from treadle.testing.provider import FakeCall, FakeReply, ProviderFault, ProviderServer

HELLO = FakeReply("Hello there.")
LAST = FakeReply("That is all.")


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


def state_and_parent(pid: int) -> tuple[str, int]:
    """What the kernel says now: ("", 0) for a process that is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "", 0
    return state, int(parent)


def tree_of(pid: int) -> list[int]:
    """The processes below one."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and state_and_parent(child := int(process.name))[1] == pid:
            found += [child, *tree_of(child)]
    return found


def are_alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if state_and_parent(pid)[0] not in ("", "Z")]


def is_running(pid: int, program: bytes) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(program)
    except OSError:  # it is gone
        return False


# ------------------------------------------------------------------ formats and prompts


async def test_text_is_the_answer_and_nothing_else():
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "hi")
    assert ran == (0, "Hello there.\n", "")
    assert server.violations == []


async def test_json_is_one_object_with_what_a_script_needs():
    async with ProviderServer([bash("echo one"), LAST]) as server:
        ran = await run(server, "-p", "hi", "--output-format", "json")
    [report] = ran.lines
    assert (ran.code, report["exit_code"], report["reason"]) == (0, 0, "end_turn")
    assert report["type"] == "result"
    assert report["version"] == 1
    assert (report["text"], report["rounds"]) == ("That is all.", 1)
    assert report["usage"]["requests"] == 2
    assert report["usage"]["cost"] > 0
    assert report["session_id"]
    assert report["model"].startswith("anthropic/")


async def test_stream_json_begins_with_the_session_and_ends_with_the_result():
    async with ProviderServer([bash("echo one"), LAST]) as server:
        ran = await run(server, "-p", "hi", "--output-format", "stream-json")
    kinds = [line["type"] for line in ran.lines]
    assert kinds[0] == "began"
    assert kinds[-2:] == ["turn_finished", "result"]
    assert "bash" in ran.lines[0]["tools"]
    assert kinds.index("tool_started") < kinds.index("tool_finished") < kinds.index("result")
    items = [line["item"]["type"] for line in ran.lines if line["type"] == "item"]
    assert items == ["user", "notice", "assistant", "tool_result", "assistant"]
    numbers = [line["seq"] for line in ran.lines if "seq" in line]
    assert numbers == sorted(set(numbers))


async def test_the_prompt_may_come_from_standard_input():
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", said="Grüße aus der Leitung".encode())
    assert ran.code == 0
    assert "Grüße aus der Leitung" in server.requests[0].body.decode()


async def test_what_is_piped_is_put_beside_the_prompt():
    async with ProviderServer([HELLO]) as server:
        await run(server, "-p", "explain this", said=b"a line of a log")
    body = server.requests[0].body.decode()
    assert "explain this" in body
    assert "a line of a log" in body


async def test_an_open_but_silent_standard_input_is_not_waited_for():
    async with ProviderServer([HELLO]) as server:
        process = await start(server, "-p", "hi", stdin=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.read() == b"Hello there.\n"
        await process.communicate()


async def test_files_and_pictures_are_attached(own_place: Path):
    Path("notes.txt").write_text("the word is quince")
    picture = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    Path("dot.bin").write_bytes(picture)
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "see @notes.txt, and @nowhere", "--file", "dot.bin")
    content = json.loads(server.requests[0].body)["messages"][0]["content"]
    assert ran.code == 0
    assert any("the word is quince" in part.get("text", "") for part in content)
    assert [part["source"]["media_type"] for part in content if part["type"] == "image"] == [
        "image/png"
    ]


async def test_an_answer_in_pieces_is_printed_whole():
    pieces = [FakeReply("One, ", stop="max_tokens"), FakeReply("two.")]
    async with ProviderServer(pieces * 2) as server:
        ran = await run(server, "-p", "count")
        as_json = await run(server, "-p", "count", "--output-format", "json")
    assert (ran.code, ran.out) == (0, "One, two.\n")
    assert as_json.lines[0]["text"] == "One, two."


def todo(status: str) -> FakeReply:
    todos = [{"content": "test it", "status": status}]
    return FakeReply(calls=(FakeCall("todo", {"todos": todos}),))


@pytest.mark.parametrize("status", ["pending", "perhaps"])
async def test_an_open_or_refused_todo_list_causes_no_request_of_its_own(status: str):
    async with ProviderServer([todo(status), FakeReply("That is it.")]) as server:
        ran = await run(server, "-p", "go")
    assert (ran.code, ran.out, len(server.requests)) == (0, "That is it.\n", 2)


async def test_an_answer_that_stays_cut_off_is_printed_and_told_by_the_exit_code():
    async with ProviderServer([FakeReply(f"{n} ", stop="max_tokens") for n in range(4)]) as server:
        ran = await run(server, "-p", "count")
    assert (ran.code, ran.out.strip()) == (exit_codes.ERROR, "0 1 2 3")
    assert ran.err.count("the reply is cut off at the output limit of the model") == 1


async def test_a_schema_gives_a_value_that_fits_it():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    Path("schema.json").write_text(json.dumps(schema))
    async with ProviderServer([FakeReply('{"n": "no"}'), FakeReply('{"n": 5}')]) as server:
        ran = await run(
            server, "-p", "count", "--output-schema", "schema.json", "--output-format", "json"
        )
    assert (ran.code, ran.lines[0]["output"]) == (0, {"n": 5})


async def test_a_session_is_continued_and_resumed_by_its_id():
    async with ProviderServer([HELLO, LAST, FakeReply("Third.")]) as server:
        first = await run(server, "-p", "one", "--output-format", "json")
        await run(server, "-p", "two", "--continue")
        ran = await run(server, "-p", "three", "--resume", first.lines[0]["session_id"])
    assert ran.out == "Third.\n"
    asked = json.loads(server.requests[-1].body)["messages"]
    assert [message["role"] for message in asked] == ["user", "assistant"] * 2 + ["user"]


async def test_a_session_that_is_resumed_in_another_mode_keeps_the_cached_beginning():
    async with ProviderServer([HELLO, LAST, FakeReply("Third.")]) as server:
        await run(server, "-p", "one", "--permission-mode", "plan")
        await run(server, "-p", "two", "--continue", "--permission-mode", "auto")
        await run(server, "-p", "three", "--continue", "--permission-mode", "plan")
    bodies = [json.loads(request.body) for request in server.requests]
    assert len({json.dumps([body["system"], body["tools"]]) for body in bodies}) == 1
    said = [json.dumps(body["messages"]) for body in bodies]
    assert [text.count("The permission mode is now plan") for text in said] == [1, 1, 2]
    assert [text.count("The permission mode is now auto") for text in said] == [0, 1, 1]


async def test_verbose_tells_what_happens_and_quiet_nothing():
    async with ProviderServer([bash("echo one"), LAST]) as server:
        ran = await run(server, "-p", "hi", "--verbose")
    assert "[bash: echo one]" in ran.err
    assert "anthropic/" in ran.err


async def test_progress_names_the_call_that_needs_an_approval():
    async with ProviderServer([bash("touch made"), LAST]) as server:
        ran = await run(server, "-p", "hi", "--verbose")
    assert "· [bash: touch made]\n  denied, it needs your approval: touch made: " in ran.err
    assert "cannot be asked" not in ran.err  # the model reads that


async def test_a_terminal_at_standard_error_is_shown_progress():
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    async with ProviderServer([bash("echo one"), bash("touch made"), LAST]) as server:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "-p", "hi", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=theirs, env=environment(server),
        )  # fmt: skip
        os.close(theirs)
        reading = asyncio.to_thread(read_terminal, ours)
        (out, _), said = await asyncio.gather(process.communicate(), reading)
    shown = said.decode()
    os.close(ours)
    assert out == b"That is all.\n"
    assert "[bash: echo one]" in shown
    assert "  denied, it needs your approval: touch made: " in shown
    assert "session" in shown
    assert all(len(strip_escapes(line)) <= 60 for line in shown.splitlines())


# ------------------------------------------------------------------ how a run ends


@pytest.mark.parametrize(
    ("arguments", "replies", "reason", "code"),
    [
        (("--max-turns", "1"), [*[bash("echo 1")] * 2, LAST], "max_turns", exit_codes.MAX_TURNS),
        (("--max-cost", "0.001"), [LAST], "budget_exceeded", exit_codes.BUDGET_EXCEEDED),
        (("--max-tokens", "100"), [LAST], "budget_exceeded", exit_codes.BUDGET_EXCEEDED),
        ((), [FakeReply("No.", stop="refusal")], "refused", exit_codes.REFUSED),
        ((), [bash("rm -rf x"), LAST], "end_turn", exit_codes.APPROVAL_NEEDED),
        (
            ("--until", "false", "--goal-attempts", "2"),
            [HELLO, LAST, LAST],
            "goal_not_met",
            exit_codes.GOAL_NOT_MET,
        ),
    ],
)
async def test_every_reason_has_its_exit_code(arguments, replies, reason, code):
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "go", "--output-format", "json", *arguments)
    [report] = ran.lines
    assert (report["reason"], report["exit_code"], ran.code) == (reason, code, code)
    assert ran.err.startswith("treadle: ")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (ProviderFault("unauthorized", times=-1), exit_codes.ACCESS_DENIED),
        (ProviderFault("not_found", times=-1), exit_codes.USAGE_ERROR),
    ],
)
async def test_a_providers_refusal_is_one_sentence_and_its_own_code(fault, code):
    async with ProviderServer([HELLO], faults=[fault]) as server:
        ran = await run(server, "-p", "go")
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Unreachable("x"), exit_codes.UNAVAILABLE),
        (errors.StreamBroken("x"), exit_codes.UNAVAILABLE),
        (errors.QuotaExhausted("x"), exit_codes.ACCESS_DENIED),
        (errors.StoreFull("x"), exit_codes.IO_ERROR),
        (errors.SessionNotFound("x"), exit_codes.SESSION_NOT_FOUND),
        (errors.SessionInOtherFolder("x", "/there"), exit_codes.WRONG_FOLDER),
        (errors.SessionBusy("x"), exit_codes.SESSION_BUSY),
        (errors.SessionTooNew("x"), exit_codes.SESSION_TOO_NEW),
        (errors.StoreError("x"), exit_codes.ERROR),
        (errors.ContextTooLong("x"), exit_codes.ERROR),
        (KeyboardInterrupt(), exit_codes.ABORTED),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert exit_codes.exit_code_for(error) == code


async def test_a_goal_that_is_met_ends_the_turn_and_its_output_is_told_before():
    Path("check").write_text("cat word; grep -q right word")
    Path("word").write_text("wrong")
    replies = [HELLO, FakeReply(calls=(FakeCall("bash", {"command": "echo right > word"}),)), LAST]
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "go", "--until", "sh check", "--permission-mode", "bypass")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    told = json.loads(server.requests[1].body)["messages"][-1]["content"]
    assert "wrong" in json.dumps(told)
    assert "exit code 1" in json.dumps(told)


async def test_the_command_that_continues_a_goal_names_the_goal():
    async with ProviderServer([HELLO, LAST]) as server:
        ran = await run(server, "-p", "go", "--until", "test -e a", "--goal-attempts", "1")
    assert ran.code == exit_codes.GOAL_NOT_MET
    assert " --until 'test -e a'\n" in ran.err


async def test_fault_89_what_needs_a_person_is_denied_in_words_for_the_model():
    Path("keep.txt").write_text("x")
    async with ProviderServer([bash("rm keep.txt"), LAST]) as server:
        ran = await run(server, "-p", "go")
    assert ran.code == exit_codes.APPROVAL_NEEDED
    assert ran.out == "That is all.\n"
    assert Path("keep.txt").exists()
    result = json.dumps(json.loads(server.requests[1].body)["messages"][-1])
    assert "the user cannot be asked" in result
    assert "rm keep.txt" in ran.err


async def test_a_denied_call_is_named_with_the_option_that_allows_it():
    write = FakeReply(calls=(FakeCall("write", {"file_path": "a b.txt", "content": "x"}),))
    async with ProviderServer([write, bash("touch made"), LAST] * 2) as server:
        ran = await run(server, "-p", "go")
        given = shlex.split(ran.err.partition("(allow with ")[2].removesuffix(")\n"))
        again = await run(server, "-p", "go", *given)
    assert (ran.code, given[::2]) == (exit_codes.APPROVAL_NEEDED, ["--allow", "--allow"]), ran
    assert (again.code, Path("a b.txt").exists(), Path("made").exists()) == (0, True, True), ran


async def test_plan_mode_changes_nothing_and_bypass_asks_nothing():
    for mode, exists in (("plan", True), ("bypass", False)):
        Path("file.txt").write_text("x")
        async with ProviderServer([bash("rm file.txt"), LAST]) as server:
            words = ("-p", "go", "--permission-mode", mode, "--sandbox", "off")
            ran = await run(server, *words, "--output-format", "json")
        assert Path("file.txt").exists() is exists, mode
        [report] = ran.lines
        denied = ["[bash: rm file.txt]"] if exists else []
        assert (ran.code, report["denied"], report["missing_rules"]) == (0, denied, []), mode


async def test_rules_by_flag_allow_and_deny():
    async with ProviderServer([bash("touch made"), bash("ls"), LAST]) as server:
        ran = await run(server, "-p", "go", "--allow", "Bash(touch made)", "--deny", "Bash(ls:*)")
    assert Path("made").exists()
    assert ran.code == 0
    assert "denied" in json.dumps(json.loads(server.requests[2].body)["messages"][-1])


# ------------------------------------------------------------------ signals and streams


async def test_fault_80_sigint_during_the_stream_ends_130_and_keeps_what_was_said():
    faults = [ProviderFault("stall_in_text")]
    async with ProviderServer([FakeReply("word " * 400)], faults=faults) as server:
        process = await start(server, "-p", "go", "--output-format", "stream-json")
        await line_with(process, "text_delta")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        ran = await finish(process)
    assert time.monotonic() - began < SOON
    assert ran.code == exit_codes.ABORTED
    assert ran.lines[-1]["reason"] == "aborted"
    assert "Traceback" not in ran.err
    assert ran.lines[-1]["text"].startswith("word")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_fault_82_83_a_signal_during_a_tool_ends_143_within_two_seconds(number):
    async with ProviderServer([bash("sleep 1061"), LAST]) as server:
        process = await start(
            server, "-p", "go", "--output-format", "stream-json", "--allow", "Bash(sleep:*)"
        )
        await line_with(process, "tool_started")
        below = tree_of(process.pid)
        began = time.monotonic()
        process.send_signal(number)
        ran = await finish(process)
    assert time.monotonic() - began < SOON
    assert ran.code == exit_codes.TERMINATED
    assert below
    assert are_alive(below) == []
    async with ProviderServer([LAST]) as server:
        again = await run(server, "-p", "go on", "--continue")
    assert (again.code, again.out, server.violations) == (0, "That is all.\n", [])


async def test_continuing_without_a_prompt_where_nothing_is_left_to_do_is_said():
    async with ProviderServer([HELLO, HELLO]) as server:
        await run(server, "-p", "hi")
        first = next(iter(Library().list_summaries())).id
        await run(server, "-p", "another session")
        ran = await run(server, "-p", "--resume", first)
        there = await run(server, "--bg", "--resume", first)
    assert ran.code == there.code == exit_codes.USAGE_ERROR
    new = f'Write a new message: treadle -p --resume {first} "…"'
    assert ran.err == f"treadle: The last turn is finished. {new}\n"
    assert there.err.endswith(f'write a message: treadle --bg --resume {first} "…"\n')


async def test_fault_81_a_second_sigint_leaves_at_once():
    async with ProviderServer([bash("trap '' INT TERM; sleep 62"), LAST]) as server:
        process = await start(
            server, "-p", "go", "--output-format", "stream-json", "--permission-mode", "bypass"
        )
        await line_with(process, "tool_started")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        ran = await finish(process)
    assert ran.code == exit_codes.ABORTED
    assert "Traceback" not in ran.err


async def test_fault_84_the_run_ends_when_its_parent_dies():
    async with ProviderServer([bash("sleep 63"), LAST]) as server:
        script = " ".join([*PROGRAM, "-p", "go", "--allow", "'Bash(sleep:*)'"])
        parent = await asyncio.create_subprocess_exec(
            "sh", "-c", f"{script} & echo $!; wait", stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=environment(server),
        )  # fmt: skip
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        await until(lambda: any(is_running(pid, b"sleep") for pid in tree_of(child)))
        below = [child, *tree_of(child)]
        parent.kill()
        await parent.stdout.read()  # closed when the last of them is gone
        await parent.wait()
        await until(lambda: not are_alive(below))  # dead, and seen to be so a moment later


async def test_fault_85_head_closes_the_pipe_and_nothing_is_left():
    async with ProviderServer([bash("sleep 64"), LAST]) as server:
        script = " ".join(
            [*PROGRAM, "-p", "go", "--output-format", "stream-json", "--permission-mode", "bypass"]
        )
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", f"{script} | head -1; echo ${{PIPESTATUS[0]}}",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=environment(server),
        )  # fmt: skip
        out, err = await process.communicate()
    first, code = out.decode().splitlines()
    assert json.loads(first)["type"] == "began"
    assert (int(code), err) == (exit_codes.BROKEN_PIPE, b"")


@pytest.mark.parametrize(("where", "why"), [(">&-", "closed"), ("> /dev/full", "space")])
async def test_an_answer_that_cannot_be_written_is_said_and_74(where, why):
    async with ProviderServer([HELLO]) as server:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", f"{' '.join([*PROGRAM, '-p', 'go'])} {where}",
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env=environment(server),
        )  # fmt: skip
        ran = await finish_errors(process)
    assert ran[0] == exit_codes.IO_ERROR
    assert why in ran[1]
    assert "Traceback" not in ran[1]


@pytest.mark.parametrize("command", ["--version", "help options", "ps --help"])
async def test_output_that_cannot_be_written_at_once_is_said_and_74(command: str):
    await check_lost_output(command, "1")


@pytest.mark.parametrize("command", ["--version", "help options", "ps", "whatif --help"])
async def test_buffered_output_that_cannot_be_written_is_said_and_74(command: str):
    await check_lost_output(command, "")


async def check_lost_output(command: str, unbuffered: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"{' '.join(PROGRAM)} {command} > /dev/full"),
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )  # fmt: skip
    full = "treadle: cannot write to stdout: No space left on device\n"
    assert await finish_errors(process) == (exit_codes.IO_ERROR, full)


async def finish_errors(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_a_reader_that_stalls_does_not_keep_sigterm_waiting():
    async with ProviderServer([FakeReply(("x" * 2000,) * 200)]) as server:
        process = await start(server, "-p", "go", "--output-format", "stream-json")
        assert process.stdout is not None
        await process.stdout.readline()
        process.stdout._transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not server.open_connections)  # all is said, and the pipe is full
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.stdout._transport.resume_reading()  # type: ignore[attr-defined]
        await process.communicate()
    assert time.monotonic() - began < SOON


async def test_a_model_that_never_answers_is_ended_by_timeout_and_by_max_time():
    async with ProviderServer([HELLO], faults=[ProviderFault("stall_headers", times=-1)]) as server:
        process = await asyncio.create_subprocess_exec(
            "timeout", "1", *PROGRAM, "-p", "go",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=environment(server),
        )  # fmt: skip
        killed, ran = await asyncio.gather(
            finish(process), run(server, "-p", "go", "--max-time", "1")
        )
    assert killed.code == 124
    assert killed.out == ""
    assert ran.code == exit_codes.BUDGET_EXCEEDED
    assert "time limit of 1 s" in ran.err


# ------------------------------------------------------------------ bad input


async def test_a_prompt_of_ten_megabytes_is_refused_before_it_costs_anything():
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", said=b"word " * 2_100_000)
    assert ran.code == exit_codes.USAGE_ERROR
    assert "too long" in ran.err
    assert server.requests == []


async def test_invalid_utf_8_is_said_with_its_place():
    ran = await run(None, "-p", said=b"good \xff bad", ANTHROPIC_API_KEY="x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert "0xff at 5" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-p",), "no prompt"),
        (("-p", "x", "--modle", "y"), "did you mean --model"),
        (("-p", "x", "--max-turns", "many"), "whole number"),
        (("-p", "x", "--output-format", "xml"), "one of text, json, stream-json"),
        (("-p", "x", "--allow", "Bash("), "--allow"),
        (("-p", "x", "--file", "nowhere"), "cannot be attached"),
        (("-p", "x", "--model", "nobody/none"), "Write PROVIDER/MODEL"),
        (("-p", "two", "prompts"), "quote a prompt"),
        ((), "not a terminal; use -p PROMPT for one task"),
        (("hello you", "--suspend"), "--suspend works only with -p"),
    ],
)
async def test_a_wrong_command_line_is_one_clear_sentence(arguments, words):
    ran = await run(None, *arguments, ANTHROPIC_API_KEY="x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


async def test_a_broken_settings_file_is_named_with_its_line(own_place: Path):
    file = own_place / "home/.treadle/config.toml"
    file.parent.mkdir()
    file.write_text("max_turns = 5\nmodel = \n")
    ran = await run(None, "-p", "x", ANTHROPIC_API_KEY="x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert f"{file}:2: not TOML" in ran.err


async def test_fault_90_broken_rules_refuse_the_start(own_place: Path):
    file = own_place / "home/.treadle/settings.json"
    file.parent.mkdir()
    file.write_text('{"permissions": {"deny": [7]}}')
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "x")
    assert ran.code == exit_codes.USAGE_ERROR
    assert f"{file}:1" in ran.err
    assert server.requests == []


async def test_a_home_that_cannot_be_written_is_74(own_place: Path):
    blocked = own_place / "home/.local"
    blocked.write_text("a file where a folder should be")
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "x")
    assert ran.code == exit_codes.IO_ERROR
    assert ".local" in ran.err
    assert "Traceback" not in ran.err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_no_request_is_paid_for_after_a_command_that_filled_the_disk(small_disk: Path):
    options = ("--permission-mode", "bypass", "--add-dir", str(small_disk))
    fill = bash(f"head -c 200000 /dev/zero > {small_disk}/fill; seq 1 4000")
    async with ProviderServer([fill, LAST]) as server:
        ran = await run(server, "-p", "go", *options, XDG_DATA_HOME=str(small_disk))
    assert (ran.code, ran.out, len(server.requests)) == (exit_codes.IO_ERROR, "", 1)
    assert "Free some space" in ran.err


async def test_a_paid_answer_is_printed_though_the_session_cannot_be_written(small_disk: Path):
    answer = "word " * 40_000
    async with ProviderServer([FakeReply(answer)]) as server:
        words = ("-p", "go", "--output-format", "stream-json")
        ran = await run(server, *words, XDG_DATA_HOME=str(small_disk))
    assert ran.code == exit_codes.IO_ERROR
    assert ran.lines[-1]["text"].strip() == answer.strip()
    kinds = [line["type"] for line in ran.lines]
    assert "run_failed" in kinds
    assert "turn_finished" not in kinds


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("rm -r {folder}", "was deleted while the session was open"),
        ("truncate -s 10 {folder}/journal.jsonl", "is shorter than what was written to it"),
    ],
)
async def test_a_session_that_another_program_destroys_during_the_run_is_74(
    tmp_path: Path, harm: str, words: str
):
    data = tmp_path / "data"
    command = harm.format(folder=f"{data}/treadle/sessions/*/*")
    options = ("--permission-mode", "bypass", "--sandbox", "off")
    async with ProviderServer([bash(command), LAST]) as server:
        ran = await run(server, "-p", "go", *options, XDG_DATA_HOME=str(data))
    assert ran.code == exit_codes.IO_ERROR
    assert words in ran.err
    assert "export it" not in ran.err
    assert len(server.generation_requests) == 1


async def test_a_folder_that_is_gone_is_said(own_place: Path):
    gone = own_place / "gone"
    gone.mkdir()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"rmdir {gone}; exec {' '.join(PROGRAM)} -p x", cwd=gone,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env=environment(ANTHROPIC_API_KEY="x"),
    )  # fmt: skip
    ran = await finish(process)
    assert ran.code == exit_codes.USAGE_ERROR
    assert "no longer exists" in ran.err


async def test_a_folder_that_vanishes_during_the_run_is_an_error_of_its_tools(own_place: Path):
    project = own_place / "project"
    project.mkdir()
    replies = [bash(f"rmdir {project}"), bash("ls"), LAST]
    async with ProviderServer(replies) as server:
        process = await start(
            server, "-p", "go", "--permission-mode", "bypass", "--sandbox", "off", cwd=project
        )
        ran = await finish(process)
    assert (ran.code, ran.out) == (0, "That is all.\n")


async def test_a_required_sandbox_that_cannot_be_built_refuses_the_start(own_place: Path):
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "x", "--sandbox", "required", PATH="/nowhere")
    assert ran.code == exit_codes.ERROR
    assert "sandbox is required" in ran.err
    assert server.requests == []


async def test_no_other_process_can_read_our_memory():
    look = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    process = await asyncio.create_subprocess_exec(
        PROGRAM[0], "-c", f"from treadle.apps.cli import signals; signals.harden_process(); {look}",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert out == b"0\n"


async def test_the_whole_of_a_long_output_can_be_read_later():
    replies = [bash("seq 1 60000"), LAST, FakeReply("Later.")]
    async with ProviderServer(replies) as server:
        await run(server, "-p", "go", "--allow", "Bash(seq:*)")
        told = json.dumps(json.loads(server.requests[1].body)["messages"][-1])
    file = re.search(r"/[^\s\"\\]+/outputs/[^\s\"\\\]]+", told)
    assert file is not None
    assert Path(file.group().rstrip(".,;)")).read_text().endswith("59999\n60000\n")


@pytest.mark.parametrize("url", ["notaurl", "ftp://x", "http://", "http://x:99999", "http://[x"])
@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-chat", "ollama"])
async def test_a_base_url_that_is_none_is_one_sentence(provider: str, url: str) -> None:
    variable = {"anthropic": "ANTHROPIC_BASE_URL", "ollama": "OLLAMA_HOST"}.get(
        provider, "OPENAI_BASE_URL"
    )
    if (provider, url) == ("ollama", "notaurl"):
        return  # a host name is enough for ollama
    model = f"{provider}/some-model"
    keys: dict[str, Any] = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", variable: url}
    ran = await run(None, "-p", "hi", "--model", model, **keys)
    assert ran.code == exit_codes.USAGE_ERROR
    assert ran.err.startswith(f"treadle: {variable}: ")
    assert len(ran.err.splitlines()) == 1
    assert url in ran.err


async def test_all_that_a_session_stores_belongs_to_the_user_alone(tmp_path: Path):
    data = tmp_path / "data"
    replies = [bash("seq 1 40000"), bash("echo 1 > a"), LAST]
    async with ProviderServer(replies) as server:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", 'umask 000; exec "$@"', "sh",
            *PROGRAM, "-p", "go", "--permission-mode", "bypass",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=environment(server, XDG_DATA_HOME=str(data)),
        )  # fmt: skip
        ran = await finish(process)
    assert ran.code == 0
    stored = [data, *data.rglob("*")]
    names = {path.name for path in stored}
    assert {"outputs", "checkpoints", "objects", "journal.jsonl"} <= names
    modes = {str(path): oct(path.stat().st_mode & 0o777) for path in stored}
    expected = {str(path): "0o700" if path.is_dir() else "0o600" for path in stored}
    assert modes == expected


@pytest.mark.parametrize(
    ("words", "is_named"),
    [
        ("look at @nofile.txt", True),
        ("look at @src/nothing", True),
        ("what does @app.route do, and @property?", False),
    ],
)
async def test_a_mentioned_file_that_does_not_exist_is_named(words: str, is_named: bool) -> None:
    async with ProviderServer([FakeReply("Yes.")]) as server:
        ran = await run(server, "-p", words)
    assert ran.code == 0
    assert ("is not attached: there is no such file" in ran.err) is is_named
