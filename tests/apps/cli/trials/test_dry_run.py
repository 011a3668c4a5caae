"""`--dry-run` changes nothing; `treadle apply` carries out what it recorded."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, run, start
from tests.patience import until
from treadle.apps.assembly.dry_run.recorded_calls import Effect
from treadle.apps.cli.trials import apply
from treadle.apps.console import exit_codes
from treadle.core.transcript.content import ToolCall
from treadle.sessions.library import Library
from treadle.sessions.log.journal import read_entries
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
LAST = FakeReply("That is all.")
CALLS: list[tuple[str, dict[str, object]]] = [
    ("read", {"file_path": "a.py"}),
    ("edit", {"file_path": "a.py", "old_string": "one", "new_string": "two"}),
    ("edit", {"file_path": "a.py", "old_string": "two", "new_string": "three"}),
    ("bash", {"command": "ls"}),
    ("bash", {"command": "cat a.py >> effects"}),
    ("write", {"file_path": "new.py", "content": "new\n"}),
]


async def record() -> str:
    """The id of a session that was a dry run."""
    Path("a.py").write_text("one\n")
    replies = [FakeReply(calls=(FakeCall(name, arguments),)) for name, arguments in CALLS]
    async with ProviderServer([*replies, LAST]) as server:
        ran = await run(server, "-p", "go", "--dry-run", "--output-format", "json", *FREELY)
        results = server.requests[-1].body.decode()
    assert ran.code == 0, ran
    assert results.count("Dry run: recorded") == 4
    assert "1\\tone" in results  # a call that reads is live
    return str(ran.lines[0]["session_id"])


async def test_a_dry_run_changes_nothing_and_is_carried_out_in_order():
    session = await record()
    assert sorted(path.name for path in Path().iterdir()) == ["a.py"]
    assert Path("a.py").read_text() == "one\n"
    asked = await run(None, "apply", session)
    assert (asked.code, "--only all" in asked.err) == (2, True)
    assert "+two" in asked.out
    assert "cat a.py >> effects" in asked.out
    done = await run(None, "apply", session, "--only", "all")
    assert (done.code, done.out.splitlines()[-1]) == (0, "4 calls of 4 carried out."), done
    assert Path("a.py").read_text() == "three\n"
    assert Path("effects").read_text() == "three\n"

    assert Path("new.py").read_text() == "new\n"
    again = await run(None, "apply", "--only", "all")
    assert (again.code, "no recorded calls" in again.out) == (0, True)
    kinds = [type(one).__name__ for one in read_entries(Library().find(session))]
    assert kinds.count("Checkpoint") >= 2  # it can be undone
    cost = await run(None, "cost", "--by", "model")
    assert f", {len(CALLS) + 1} model calls," in cost.out
    assert "apply/" not in cost.out
    undone = await run(None, "undo", "--yes")
    assert undone.code == 0, undone
    assert Path("a.py").read_text() == "one\n"


async def test_a_file_that_the_dry_run_has_read_is_replaced():
    Path("a.py").write_text("one\n")
    read = FakeCall("read", {"file_path": "a.py"})
    write = FakeCall("write", {"file_path": "a.py", "content": "2\n"})
    replies = [FakeReply(calls=(read,)), FakeReply(calls=(write,)), LAST]
    async with ProviderServer(replies) as server:
        await run(server, "-p", "go", "--dry-run", *FREELY)
    done = await run(None, "apply", "--only", "all")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 call of 1 carried out."), done
    assert Path("a.py").read_text() == "2\n"


async def test_calls_are_left_out_and_edited():
    session = await record()
    edited = json.dumps({"command": "echo other >> effects"})
    done = await run(None, "apply", session, "--drop", "2,4", "--edit", "3", edited)
    assert done.code == 0, done
    assert Path("a.py").read_text() == "two\n"
    assert Path("effects").read_text() == "other\n"
    assert not Path("new.py").exists()
    assert done.out.endswith("kept for another `treadle apply`: 2 calls\n")
    wrong = await run(None, "apply", session, "--only", "9")
    assert (wrong.code, "'9' names no calls" in wrong.err) == (2, True)
    wrong = await run(None, "apply", session, "--edit", "1,2", edited)
    assert (wrong.code, "edit '1,2': name one call" in wrong.err) == (2, True), wrong
    empty = await run(None, "apply", session, "--edit", "", edited)
    assert (empty.code, empty.err) == (2, "treadle apply: --edit: its value is empty\n"), empty


def test_a_wrong_answer_at_the_terminal_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    given = iter(["s", "9", "2"])
    monkeypatch.setattr(apply, "ask_line", lambda prompt: next(given))
    effects = [Effect(ToolCall(name, "bash", "{}"), name) for name in ("one", "two")]
    assert apply.choose_effects(effects, None) == effects[1:]


async def test_a_dry_run_that_did_not_begin_offers_nothing():
    refused = await run(None, "-p", "go", "--dry-run", "--model", "nothing/none")
    assert refused.code == exit_codes.USAGE_ERROR
    assert "treadle apply" not in refused.err


async def test_a_file_that_changed_since_is_not_overwritten():
    session = await record()
    Path("new.py").write_text("mine\n")
    done = await run(None, "apply", session, "--only", "all")
    assert done.code == 1
    assert "3 calls of 4 carried out. write: changed since the dry run: " in done.out
    assert Path("new.py").read_text() == "mine\n"


async def test_the_output_of_a_call_that_fails_keeps_its_lines():
    failing = FakeCall("bash", {"command": "touch x && printf 'one\\ntwo\\n' && false"})
    async with ProviderServer([FakeReply(calls=(failing,)), LAST]) as server:
        await run(server, "-p", "go", "--dry-run", *FREELY)
    done = await run(None, "apply", "--only", "all")
    assert done.out.splitlines()[-3:-1] == ["0 calls of 1 carried out. bash: one", "two"], done


async def record_commands(*commands: str) -> None:
    calls = [FakeReply(calls=(FakeCall("bash", {"command": one}),)) for one in commands]
    async with ProviderServer([*calls, LAST]) as server:
        await run(server, "-p", "go", "--dry-run", *FREELY)


async def test_a_call_that_failed_stays_and_those_after_it_wait():
    await record_commands("echo try >> tries && test -e ok", "echo second >> effects")
    first = await run(None, "apply", "--only", "all")
    failed = await run(None, "apply", "--only", "all")
    assert (first.code, failed.code) == (1, 1), (first, failed)
    assert "0 calls of 2 carried out. bash" in failed.out
    assert "failed before: [exit code 1]" in failed.out
    assert Path("tries").read_text() == "try\ntry\n"
    assert not Path("effects").exists()
    second = await run(None, "apply", "--only", "2")
    assert (second.code, Path("effects").read_text()) == (0, "second\n"), second
    Path("ok").touch()
    done = await run(None, "apply", "--only", "all")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 call of 1 carried out."), done
    assert Path("tries").read_text() == "try\n" * 3
    assert "no recorded calls" in (await run(None, "apply", "--only", "all")).out


async def test_a_call_that_was_cut_off_is_named_and_the_user_decides():
    os.mkfifo("pause")
    await record_commands("echo x >> effects; cat pause", "echo second >> effects")
    process = await start(None, "apply", "--only", "all")
    await until(lambda: Path("effects").exists())
    process.kill()
    await process.wait()
    seen = await run(None, "apply", "--only", "all")
    assert seen.code == 2, seen
    assert "outcome unknown: Interrupted, outcome unknown. Evidence: bash" in seen.out
    assert "This command was running when the program stopped: echo x" in seen.err
    assert "call 1: outcome unknown" in seen.err
    left = await run(None, "apply", "--drop", "1")
    assert (left.code, Path("effects").read_text()) == (0, "x\nsecond\n"), left
    Path("pause").unlink()
    Path("pause").touch()
    again = await run(None, "apply", "--only", "1")
    assert (again.code, Path("effects").read_text()) == (0, "x\nsecond\nx\n"), again
    assert "no recorded calls" in (await run(None, "apply", "--only", "all")).out


async def test_a_call_that_needs_another_one_says_so():
    session = await record()
    alone = await run(None, "apply", session, "--only", "2")
    needs = "edit: it needs call 1, which changes the same file before it: "
    assert (alone.code, needs in alone.out) == (1, True), alone
    done = await run(None, "apply", session, "--only", "1,2")
    assert (done.code, Path("a.py").read_text()) == (0, "three\n"), done


async def test_a_deny_rule_holds_when_it_is_carried_out():
    session = await record()
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{"permissions": {"deny": ["Bash(cat:*)"]}}')
    done = await run(None, "apply", session, "--only", "3")
    assert done.code == 1, done
    assert "denied" in done.out
    assert not Path("effects").exists()


async def test_two_programs_do_not_carry_out_the_same_calls(monkeypatch: pytest.MonkeyPatch):
    """While one asks which, the other finds the session in use."""
    session = await record()
    codes: list[int] = []

    def answer(prompt: str) -> str:
        words = [*PROGRAM, "apply", session, "--only", "all"]
        codes.append(subprocess.run(words, check=False, capture_output=True).returncode)
        return "all"

    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(apply, "ask_line", answer)
    assert await asyncio.to_thread(apply.run, [session]) == 0
    assert codes == [exit_codes.SESSION_BUSY]
    assert Path("effects").read_text() == "three\n"


async def test_an_open_session_is_a_dry_run_and_applies_what_it_recorded():
    Path("a.py").write_text("one\n")
    replies = [FakeReply(calls=(FakeCall(name, arguments),)) for name, arguments in CALLS]
    async with ProviderServer([*replies, LAST]) as server:
        assert (await run(server, "trust")).code == 0
        typed = b"go\n/effects\n/apply 1,2\n"
        ran = await run(server, "--plain", "--dry-run", "--permission-mode", "auto", said=typed)
    assert ran.code == 0, ran
    assert "dry run: 4 calls recorded" in ran.out
    assert "no turn had effects beyond files" in ran.out  # `ls` ran, and only read
    assert "[bash: cat a.py >> effects]: " not in ran.out  # it was only recorded
    assert "2 calls of 2 carried out." in ran.out
    assert Path("a.py").read_text() == "three\n"
    assert not Path("effects").exists()
