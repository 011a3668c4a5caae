"""Sessions through the real program: killed and gone on with, undone, put off and taken up."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import Ran, finish, line_with, run, start
from tests.patience import until
from treadle.apps.console import exit_codes
from treadle.testing.provider import (
    FakeCall,
    FakeReply,
    ProviderFault,
    ProviderServer,
    ReceivedRequest,
)

LAST = FakeReply("That is all.")
STREAM = ("--output-format", "stream-json")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


def write(path: str, content: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("write", {"file_path": path, "content": content}),))


def messages(request: ReceivedRequest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request.body)["messages"]
    return found


async def killed(process: Process) -> None:
    process.kill()
    await process.wait()
    transport = process._transport  # type: ignore[attr-defined]
    transport.close()


# ------------------------------------------------------------------ killed


async def test_a_run_killed_in_the_stream_is_finished_by_continue_without_a_prompt():
    faults = [ProviderFault("stall_in_text")]
    async with ProviderServer([FakeReply("word " * 9)], faults=faults) as server:
        process = await start(server, "-p", "tell me", *STREAM)
        await line_with(process, "text_delta")
        await killed(process)
        silent = await start(server, "-p", "--continue", stdin=asyncio.subprocess.PIPE)
        await silent.wait()
        ran = await finish(silent)
    assert (ran.code, ran.out.strip(), ran.err) == (0, ("word " * 9).strip(), "")
    assert [message["role"] for message in messages(server.requests[-1])] == ["user"]
    assert server.violations == []


async def test_fault_27_a_call_that_was_killed_is_not_run_again_and_the_person_is_told():
    async with ProviderServer([bash("echo x >> effects; sleep 64"), LAST, LAST]) as server:
        process = await start(server, "-p", "go", *STREAM, *FREELY)
        await until(lambda: Path("effects").exists())
        await killed(process)
        ran = await run(server, "-p", "--continue", *FREELY)
        again = await run(server, "-p", "--continue", *FREELY)
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert Path("effects").read_text() == "x\n"
    answer = json.dumps(messages(server.requests[1])[-1])
    assert "Interrupted, outcome unknown" in answer
    [line] = ran.err.splitlines()
    assert line.startswith("treadle: This command was running when the program stopped: echo x")
    assert line.endswith(". It may or may not have finished. It was not started again.")
    assert server.violations == []
    assert again.code == exit_codes.USAGE_ERROR  # it is finished: nothing is left to do


async def test_a_write_that_was_killed_half_way_is_compared_and_concluded():
    async with ProviderServer(
        [write("a.txt", "one"), LAST], faults=[ProviderFault("stall_headers", at=1)]
    ) as server:
        process = await start(server, "-p", "go", *STREAM, *FREELY)
        await server.wait_until(lambda: len(server.requests) == 2)
        await killed(process)
        ran = await run(server, "-p", "--continue", *FREELY)
    assert ran.code == 0
    assert Path("a.txt").read_text() == "one"
    assert "outcome unknown" not in json.dumps(messages(server.requests[-1]))
    assert server.violations == []


async def test_fault_28_what_was_answered_before_an_exit_is_not_in_doubt_after_it():
    faults = [ProviderFault("stall_headers", at=1)]
    async with ProviderServer(
        [bash("echo x >> effects; echo done"), LAST], faults=faults
    ) as server:
        process = await start(server, "-p", "go", *STREAM, *FREELY)
        await server.wait_until(lambda: len(server.requests) == 2)
        process.send_signal(signal.SIGTERM)
        ended = await finish(process)
        ran = await run(server, "-p", "go on", "--continue", *FREELY)
    assert (ended.code, ran.code, ran.err) == (exit_codes.TERMINATED, 0, "")
    said = json.dumps(messages(server.requests[-1]))
    assert "done" in said
    assert "outcome unknown" not in said
    assert Path("effects").read_text() == "x\n"
    assert server.violations == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--resume", "nothing"), exit_codes.SESSION_NOT_FOUND, "there is no session 'nothing'"),
        (("--continue",), exit_codes.SESSION_NOT_FOUND, "no session to continue"),
    ],
)
async def test_a_session_that_is_not_there_has_its_own_exit_code(arguments, code, words):
    ran = await run(None, "-p", "x", *arguments, ANTHROPIC_API_KEY="x")
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert ran.err.count("\n") == 1


async def test_a_session_that_is_open_or_of_another_folder_has_its_own_exit_code():
    Path("other").mkdir()
    async with ProviderServer(
        [LAST, LAST], faults=[ProviderFault("stall_headers", at=1)]
    ) as server:
        first = await run(server, "-p", "one", "--output-format", "json")
        session = first.lines[0]["session_id"]
        elsewhere = await finish(
            await start(server, "-p", "x", "--resume", session, cwd=Path("other"))
        )
        holder = await start(server, "-p", "two", "--resume", session, *STREAM)
        await line_with(holder, "request_started")
        busy = await run(server, "-p", "three", "--continue")
        await killed(holder)
    assert (elsewhere.code, busy.code) == (exit_codes.WRONG_FOLDER, exit_codes.SESSION_BUSY)
    assert "belongs to" in elsewhere.err
    assert f"is open in pid {holder.pid}" in busy.err


# ------------------------------------------------------------------ files


async def test_the_changes_of_a_turn_are_undone_brought_back_and_gone_back_over():
    Path("kept.txt").write_text("mine")
    change = bash("echo two > b.txt; rm kept.txt")
    async with ProviderServer([write("a.txt", "one"), LAST, change, LAST, LAST, LAST]) as server:
        assert (await run(server, "-p", "first", *FREELY)).code == 0
        for prompt in ("second", "only words"):
            assert (await run(server, "-p", prompt, "--continue", *FREELY)).code == 0
        after = tree()
        assert after == {"a.txt": "one", "b.txt": "two\n"}

        undone = await run(None, "undo", "--yes")
        assert (undone.code, tree()) == (0, {"a.txt": "one", "kept.txt": "mine"})
        assert (await run(None, "redo")).code == 0
        assert tree() == after
        Path("b.txt").write_text("changed by hand")
        left = await run(None, "undo", "--yes")
        assert (left.code, tree()) == (
            exit_codes.ERROR,
            {"a.txt": "one", "kept.txt": "mine", "b.txt": "changed by hand"},
        )
        assert "not restored: b.txt" in left.err

        # The model remembers its own changes: it is told what became of them.
        await run(server, "-p", "go on", "--continue", *FREELY)
    told = json.dumps(messages(server.requests[-1])[-1])
    assert "undid the file changes of turn 2" in told
    assert server.violations == []


async def test_a_session_goes_back_to_any_turn_with_its_files_and_without():
    async with ProviderServer([write("a", "1"), LAST, bash("echo 2 > a"), LAST, LAST]) as server:
        ran = await run(server, "-p", "first", "--output-format", "json", *FREELY)
        session = ran.lines[0]["session_id"]
        await run(server, "-p", "second", "--continue", *FREELY)
        assert (await run(None, "sessions", "rewind", session, "2", "--files", "--yes")).code == 0
        assert tree() == {"a": "1"}
        assert (await run(None, "sessions", "rewind", session, "1", "--both", "--yes")).code == 0
        assert tree() == {}
        await run(server, "-p", "anew", "--continue")
    assert [message["role"] for message in messages(server.requests[-1])] == ["user"]


def tree() -> dict[str, str]:
    return {path.name: path.read_text() for path in Path().iterdir() if path.is_file()}


async def test_a_home_folder_is_not_copied_for_undo():
    async with ProviderServer([bash("touch x"), LAST]) as server:
        process = await start(server, "-p", "go", "--verbose", *FREELY, cwd=Path.home())
        ran = await finish(process)
    assert ran.code == 0
    assert ran.err.count("contains your home folder, which is not copied") == 1
    assert not (Path.home() / ".local/share/treadle/checkpoints").exists()


async def test_files_that_are_not_kept_are_named_once():
    Path("huge.bin").touch()
    os.truncate("huge.bin", 11 << 20)
    async with ProviderServer([bash("touch x"), LAST]) as server:
        ran = await run(server, "-p", "go", "--verbose", *FREELY)
    assert ran.err.count("checkpoints do not include huge.bin (larger than 10 MiB)") == 1


# ------------------------------------------------------------------ put off


async def suspended(server: ProviderServer, *arguments: str) -> tuple[Ran, str]:
    ran = await run(server, "-p", "go", "--suspend", "--output-format", "json", *arguments)
    [report] = ran.lines
    assert (ran.code, report["reason"], report["exit_code"]) == (75, "suspended", 75)
    assert "treadle: suspended: " in ran.err
    return ran, report["session_id"]


async def test_an_approval_that_nobody_can_give_waits_on_disk_and_is_given_later():
    async with ProviderServer([bash("touch made"), LAST]) as server:
        _, session = await suspended(server)
        listed = await run(None, "resume")
        still = await run(server, "resume", "--suspended")
        assert not Path("made").exists()
        ran = await run(server, "resume", session, "--approve")
    assert f"treadle resume {session} --approve" in listed.out
    assert still.code == exit_codes.SUSPENDED
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert Path("made").exists()
    assert len(server.requests) == 2  # nothing was asked twice
    assert (await run(None, "resume")).out == "no suspended turns\n"


async def test_a_call_that_is_denied_later_is_answered_with_the_reason():
    async with ProviderServer([bash("touch made"), LAST]) as server:
        _, session = await suspended(server)
        ran = await run(server, "resume", session, "--deny", "not on a Friday")
    assert ran.code == 0
    assert not Path("made").exists()
    assert "denied: not on a Friday" in json.dumps(messages(server.requests[-1])[-1])


async def test_a_long_rate_limit_waits_on_disk_until_its_time_has_come():
    faults = [ProviderFault("rate_limited", value="3600")]
    async with ProviderServer([LAST], faults=faults) as server:
        ran, session = await suspended(server)
        early = await run(server, "resume", "--suspended")
        assert early.code == exit_codes.SUSPENDED
        assert len(server.requests) == 1
        now = await run(server, "resume", session)
    assert "retry in 3600 s" in ran.err
    assert f"{session}  rate_limit: " in early.err
    assert (now.code, now.out) == (0, "That is all.\n")
    assert [message["role"] for message in messages(server.requests[-1])] == ["user"]


async def test_what_is_due_goes_on_by_itself_in_its_own_folder():
    from treadle.core.transcript.entries import Suspended, WakeCondition
    from treadle.sessions import Library
    from treadle.sessions.detached.suspend import suspend_turn

    Path("there").mkdir()
    async with ProviderServer([bash("touch here"), LAST]) as server:
        process = await start(
            server, "-p", "go", "--suspend", "--output-format", "json", cwd=Path("there")
        )
        session = (await finish(process)).lines[0]["session_id"]
        journal = Library().resume(session).journal
        await suspend_turn(
            journal, Suspended("turn-1", "rate_limit", WakeCondition("time", at=1.0))
        )
        await journal.aclose()
        ran = await run(server, "resume", "--suspended")
        assert (
            ran.code == exit_codes.SUSPENDED
        )  # its time had come, and then it waited for an approval
        ran = await run(server, "resume", session, "--approve")
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert Path("there/here").exists()


async def test_a_budget_that_is_used_up_waits_for_more_money():
    async with ProviderServer([bash("ls"), LAST]) as server:
        _, session = await suspended(server, "--max-cost", "0.0001")
        assert server.requests == []
        again = await run(server, "resume", session, "--max-cost", "0.0001")
        ran = await run(server, "resume", session, "--max-cost", "2")
    assert again.code == exit_codes.SUSPENDED
    assert (ran.code, ran.out, server.violations) == (0, "That is all.\n", [])


def ask(*questions: str) -> FakeReply:
    calls = [
        FakeCall("ask", {"question": one, "options": ["Postgres", "SQLite"]}) for one in questions
    ]
    return FakeReply(calls=tuple(calls))


def results(request: ReceivedRequest) -> str:
    return json.dumps(messages(request)[-1]["content"])


async def test_a_question_waits_on_disk_and_goes_on_with_the_answer_alone():
    both = FakeReply(
        calls=(
            FakeCall("bash", {"command": "echo x >> effects"}),
            FakeCall("ask", {"question": "Which\ndatabase?", "options": ["Postgres", "SQLite"]}),
        )
    )
    async with ProviderServer([both, LAST]) as server:
        ran, session = await suspended(server, *FREELY)
        assert not Path("effects").exists()
        listed = await run(None, "resume")
        still = await run(server, "resume", session, "--approve", *FREELY)
        done = await run(server, "resume", "--suspended", session, "--answer", "MariaDB", *FREELY)
    question = "the model asks: Which database? [Postgres | SQLite]"
    assert ran.lines[0]["detail"] == question
    assert f"suspended: {question}; to continue: treadle resume {session} --answer TEXT" in ran.err
    assert (
        f"{session}  question: {question} (to continue: treadle resume {session} --answer"
        in listed.out
    )
    assert still.code == exit_codes.SUSPENDED  # a yes is no answer
    assert (done.code, done.out, done.err) == (0, "That is all.\n", "")
    assert "The user answered: MariaDB" in results(server.requests[-1])
    assert Path("effects").read_text() == "x\n"
    assert (len(server.requests), server.violations) == (2, [])
    assert (await run(None, "resume")).out == "no suspended turns\n"


async def test_an_answer_is_kept_while_the_call_beside_it_still_waits_for_an_approval():
    both = FakeReply(
        calls=(
            FakeCall("ask", {"question": "Which file?"}),
            FakeCall("bash", {"command": "touch made"}),
        )
    )
    async with ProviderServer([both, LAST]) as server:
        _, session = await suspended(server)
        waits = await run(server, "resume", session, "--answer", "this one")
        assert not Path("made").exists()
        too_many = await run(server, "resume", session, "--answer", "again")
        done = await run(server, "resume", session, "--approve")
    assert "touch made] needs approval" in waits.err
    assert (too_many.code, "has no question" in too_many.err) == (exit_codes.USAGE_ERROR, True)
    assert (done.code, Path("made").exists()) == (0, True)
    assert "The user answered: this one" in results(server.requests[-1])
    assert (len(server.requests), server.violations) == (2, [])


async def test_several_questions_are_answered_in_their_order_or_not_at_all():
    malformed = FakeCall("ask", {"question": ""})
    asked = FakeReply(calls=(malformed, *ask("First?", "Second?").calls))
    async with ProviderServer([asked, LAST]) as server:
        ran, session = await suspended(server)
        half = await run(server, "resume", session, "--answer", "one")
        done = await run(server, "resume", session, "--deny", "I do not know")
    assert "2 questions, one --answer each: 1. First? [Postgres | SQLite]; 2. Sec" in ran.err
    assert (half.code, "the model asks: Second?" in half.err) == (exit_codes.SUSPENDED, True)
    first, second, third = messages(server.requests[-1])[-1]["content"]
    assert (done.code, server.violations) == (0, [])
    assert "the question is empty" in json.dumps(first)
    assert "The user answered: one" in json.dumps(second)
    assert "denied: I do not know" in json.dumps(third)


async def test_without_suspend_there_are_no_questions_and_a_subagent_never_suspends_the_turn():
    child = FakeReply(calls=(FakeCall("task", {"description": "look", "prompt": "Look"}),))
    async with ProviderServer([ask("Which?"), LAST, child, ask("Which?"), LAST, LAST]) as server:
        alone = await run(server, "-p", "go")
        parent = await run(server, "-p", "go", "--suspend", *FREELY)
    assert (alone.code, parent.code, server.violations) == (0, 0, [])
    offered = [
        {tool["name"] for tool in json.loads(server.requests[at].body)["tools"]} for at in (0, 2)
    ]
    assert all("ask" in names for names in offered), "the same tools in every host"
    assert "be asked in this run" in results(server.requests[1])
    assert "be asked in this run" in results(server.requests[4])
