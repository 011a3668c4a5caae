"""`treadle sessions`, `replay` and `diff`: what a person sees, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.agents.agent import Agent
from treadle.apps.cli.commands.session_list import format_table
from treadle.apps.cli.main import run
from treadle.apps.console import exit_codes
from treadle.core.steps import Finished
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Library
from treadle.sessions.history import list_turns
from treadle.sessions.log.records import FORMAT_VERSION, JournalHeader, encode_header
from treadle.testing.tools import RecordingTool
from treadle.workspace.checkpoints.checkpoints import Checkpoints
from treadle.workspace.checkpoints.recorder import CheckpointRecorder


@pytest.fixture
def made(own_place: Path) -> str:
    """A session of two turns in the current folder, each of which changed a file."""
    library, folder = Library(), Path.cwd()
    journal = library.create(folder)
    checkpoints = Checkpoints(folder, library.checkpoint_dir(folder))
    keeping = CheckpointRecorder(checkpoints, journal.append)

    def write(arguments: dict[str, str]) -> str:
        (folder / "file").write_text(arguments["text"])
        return "wrote <it>"

    agent = Agent(
        Scripted(
            [
                Say("I write.", calls=[("record", {"text": "one"})]),
                "First done.",
                Say(calls=[("record", {"text": "two"})]),
                "Second done.",
            ]
        ),
        [RecordingTool(answer=write, effect="irreversible")],
        hooks=[keeping.hook],
        mutators=[keeping.mutator],
    )

    async def work() -> None:
        driver = agent.start(store=journal)
        for prompt in ("Write one", "Write two"):
            driver.submit(prompt)
            while not isinstance(await driver.next(), Finished):
                pass
        await driver.aclose()

    asyncio.run(work())
    checkpoints.close()
    return journal.session_id


Told = Callable[[], tuple[str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def read() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    return read


def test_the_list_is_a_line_a_session(made: str, told: Told) -> None:
    assert run(["sessions"]) == 0
    out, _ = told()
    assert made in out
    assert "2 turns" in out
    assert "Write one" in out
    assert run(["sessions", "list", "--json"]) == 0
    row = json.loads(told()[0])
    assert (row["id"], row["state"], row["folder"]) == (made, "done", str(Path.cwd()))


def test_the_options_of_the_list_need_no_command(made: str, told: Told) -> None:
    assert run(["sessions", "--here"]) == 0
    assert made in told()[0]
    assert run(["sessions", "--json"]) == 0
    assert json.loads(told()[0])["id"] == made


def test_no_sessions_is_not_an_error(told: Told) -> None:
    assert run(["sessions", "list"]) == 0
    assert "no sessions" in told()[0]


def test_show_and_search_find_what_was_said(made: str, told: Told) -> None:
    assert run(["sessions", "show", made]) == 0
    out, _ = told()
    assert "## You\n\nWrite one" in out
    assert "wrote <it>" in out
    assert run(["sessions", "search", "second DONE"]) == 0
    assert told()[0].startswith(made)
    assert run(["sessions", "search", "never said"]) == 1


def test_export_writes_markdown_a_page_and_json(made: str, told: Told) -> None:
    assert run(["sessions", "export", made, "--format", "html", "--output", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "wrote &lt;it&gt;" in page
    assert "<script" not in page
    told()
    assert run(["sessions", "export", made, "--output", "page.html"]) == 1
    assert "page.html exists; choose another name" in told()[1]
    assert Path("page.html").read_text() == page
    assert stat.S_IMODE(Path("page.html").stat().st_mode) == 0o600
    assert run(["sessions", "export", made, "--format", "json"]) == 0
    document = json.loads(told()[0])
    assert document["session"]["id"] == made
    kinds = [entry["entry"]["kind"] for entry in document["entries"]]
    assert kinds.count("item") == 8
    assert run(["sessions", "export", made, "--output", "/nowhere/x"]) == 74


def test_undo_and_redo_of_the_last_turn(made: str, told: Told) -> None:
    assert Path("file").read_text() == "two"
    assert run(["sessions", "undo", made, "--yes"]) == 0
    assert Path("file").read_text() == "one"
    assert run(["sessions", "redo", made]) == 0
    assert Path("file").read_text() == "two"
    Path("file").write_text("mine")
    assert run(["sessions", "undo", made, "--yes"]) == 1
    assert "not restored: file" in told()[1]


def test_rewind_of_both_of_the_conversation_and_of_the_files(made: str, told: Told) -> None:
    assert run(["sessions", "rewind", made, "2", "--only", "files", "--yes"]) == 0
    assert Path("file").read_text() == "one"
    assert run(["sessions", "rewind", made, "1", "--yes"]) == 0
    assert not Path("file").exists()
    told()
    assert run(["sessions", "turns", made]) == 0
    assert told()[0] == ""


def test_a_fork_is_another_session_with_the_same_beginning(made: str, told: Told) -> None:
    assert run(["sessions", "fork", made, "--before", "2"]) == 0
    fork = told()[0].partition(":")[0]
    assert run(["diff", made, fork]) == 1
    out, _ = told()
    assert "the first difference is at item 4" in out
    assert "Write two" in out
    assert run(["sessions", "remove", made]) == 1
    assert run(["sessions", "remove", made, "--forks"]) == 0


def test_a_fork_is_listed_with_the_turns_that_it_has_from_its_parent(made: str, told: Told) -> None:
    assert run(["sessions", "fork", made]) == 0
    fork = told()[0].partition(":")[0]
    assert run(["sessions", "fork", fork, "--before", "2"]) == 0
    second = told()[0].partition(":")[0]
    assert run(["sessions", "list"]) == 0
    lines = {line.split()[0]: line for line in told()[0].splitlines()}
    assert "2 turns" in lines[fork]
    assert "1 turn " in lines[second]
    assert "done" in lines[fork]
    assert "empty" not in lines[second]
    assert "Fork of Write one" in lines[fork]  # as in every other list
    library = Library()
    shutil.rmtree(library.find(made))
    assert run(["sessions", "list"]) == 0
    assert fork in told()[0]


def test_a_replay_is_the_same_and_says_so(made: str, told: Told) -> None:
    assert run(["replay", made]) == 0
    assert told()[0] == f"{made}: 4 replies, the same transcript\n"
    assert Path("file").read_text() == "two"  # nothing was written again
    assert run(["replay", made, "--from", "2"]) == 0
    fork = told()[0].strip()
    assert [mark.number for mark in list_turns(Library().find(fork))] == [1]


def test_prune_says_what_would_go_and_takes_the_files_with_it(made: str, told: Told) -> None:
    assert run(["sessions", "prune", "--days", "0", "--dry-run"]) == 0
    assert "1 session would be removed" in told()[0]
    store = Library().checkpoint_dir(Path.cwd())
    assert any(path.is_file() for path in store.rglob("*"))
    assert run(["sessions", "prune", "--days", "0"]) == 0
    assert "1 session removed" in told()[0]
    assert not any(path.is_file() for path in store.rglob("*"))


# --- bad input -----------------------------------------------------------------------------


def test_a_session_that_does_not_exist(told: Told) -> None:
    assert run(["sessions", "show", "nosuch"]) == exit_codes.SESSION_NOT_FOUND
    assert "there is no session 'nosuch'" in told()[1]
    assert run(["replay", "nosuch"]) == exit_codes.SESSION_NOT_FOUND
    assert run(["diff", "nosuch", "nosuch"]) == exit_codes.SESSION_NOT_FOUND


def test_a_session_that_is_open_elsewhere(made: str, told: Told) -> None:
    code = (
        "import sys; from treadle.sessions import Library\n"
        "resumed = Library().resume(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, made], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert run(["sessions", "rewind", made, "1"]) == exit_codes.SESSION_BUSY
        assert f"is open in pid {process.pid} since 2" in told()[1]
        assert run(["sessions", "show", made]) == 0  # a look is allowed
        process.communicate("")


def test_a_session_of_a_newer_version(made: str, told: Told) -> None:
    path = Library().find(made) / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = encode_header(JournalHeader(FORMAT_VERSION + 1, made, 0.0, str(Path.cwd())))
    path.write_bytes(b"".join(lines))
    assert run(["sessions", "rewind", made, "1"]) == exit_codes.SESSION_TOO_NEW
    assert "Update treadle" in told()[1]
    assert run(["sessions", "show", made]) == 0


def test_a_turn_that_is_not_there(made: str, told: Told) -> None:
    assert run(["sessions", "rewind", made, "9"]) == 1
    assert "has no turn '9'; it has 2" in told()[1]


def test_escapes_of_a_terminal_are_not_passed_on(told: Told) -> None:
    journal = Library().create(Path.cwd())
    asyncio.run(Agent(Scripted(["\x1b]52;c;ZXZpbA==\x07"])).run("go", session=journal))
    assert run(["sessions", "show", journal.session_id]) == 0
    assert "\x1b" not in told()[0]


def test_a_list_of_80_columns_shows_the_titles() -> None:
    row: dict[str, object] = {
        "id": "261116-118bf2",
        "updated": 0.0,
        "turns": 12,
        "cost": 1.5,
        "state": "suspended (approval)",
        "folder": "/home/someone/projects/with/a/long/path/to/it",
        "title": "Mend the parser of dates",
        "damaged": False,
        "depth": 0,
    }
    for width in (70, 80, 200):
        [line] = format_table([row], width)
        assert len(line) <= width
        assert line.startswith("261116-118bf2")
        assert "Mend the pars" in line
    assert "/home/someone" in format_table([row], 200)[0]
    assert "/home/someone" not in format_table([row], 80)[0]


def test_a_search_lists_a_session_once_with_its_title(made: str, told: Told) -> None:
    assert run(["sessions", "search", "done"]) == 0
    [line] = told()[0].splitlines()
    assert " hits " in line
    assert run(["sessions", "search", "done", "--lines"]) == 0
    out, _ = told()
    first, *matches = out.splitlines()
    assert first == line
    assert first.startswith(made)
    assert first.endswith("Write one")
    assert any("Second done." in line for line in matches)
    assert out.count(made) == 1
