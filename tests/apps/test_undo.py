"""Undo, redo and rewind through the real program: the user's own work is never lost."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, Ran, environment, finish, run, start
from treadle.apps.console import exit_codes
from treadle.testing.provider import (
    FakeCall,
    FakeReply,
    ProviderFault,
    ProviderServer,
    ReceivedRequest,
)

LAST = FakeReply("That is all.")
READ = FakeReply(calls=(FakeCall("read", {"file_path": "f"}),))
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


def write(path: str, text: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("write", {"file_path": path, "content": text}),))


def tree() -> dict[str, str]:
    """All files of the current folder, but not those of git."""
    paths = [path for path in sorted(Path().rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path): path.read_text() for path in paths if ".git" not in path.parts}


class Session:
    """A session of turns, each of which runs one command."""

    def __init__(self) -> None:
        self.id = ""

    async def turn(self, prompt: str, command: str) -> None:
        resume = ("--resume", self.id) if self.id else ()
        async with ProviderServer([bash(command), LAST]) as server:
            ran = await run(server, "-p", prompt, "--output-format", "json", *resume, *FREELY)
        assert ran.code == 0, ran.err
        self.id = ran.lines[0]["session_id"]

    async def rewind(self, turn: int, *more: str, **options: Path) -> Ran:
        words = ("sessions", "rewind", self.id, str(turn), *more)
        return await finish(await start(None, *words, cwd=options.get("cwd")))


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def repository() -> None:
    """A real git repository in the current folder."""
    for words in (("init", "-q"), ("config", "user.email", "a@b"), ("config", "user.name", "a")):
        subprocess.run(["git", *words], check=True)
    Path("code.py").write_text("one\n")
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "commit", "-qm", "first"], check=True)


async def answer_at_a_terminal(answers: str, *arguments: str) -> tuple[int | None, str]:
    """The exit code and the output of a command whose standard input is a terminal."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answers.encode())
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            stdin=theirs,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(),
        )
        out, _ = await process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, out.decode()


# ------------------------------------------------------------------ the user's own work


async def test_a_rewind_leaves_alone_what_the_user_made_changed_renamed_and_deleted(
    session: Session, repository: None
):
    for name in ("mine.txt", "old.txt", "gone.txt"):
        Path(name).write_text("mine\n")
    await session.turn("first", "echo two > code.py; echo made > made.py; mkdir d; echo x > d/x")
    Path("mine.txt").write_text("mine, edited\n")
    Path("notes.md").write_text("my notes\n")
    Path("old.txt").rename("new.txt")
    Path("gone.txt").unlink()
    Path("d/own").write_text("in the folder of the agent\n")
    await session.turn("second", "echo three > code.py")
    Path("later.md").write_text("later\n")
    ran = await session.rewind(1, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert tree() == {
        "code.py": "one\n",
        "d/own": "in the folder of the agent\n",
        "later.md": "later\n",
        "mine.txt": "mine, edited\n",
        "new.txt": "mine\n",
        "notes.md": "my notes\n",
    }
    agent, user = ran.out.split("You or another program changed these files. They are left alone:")
    assert all(line in agent for line in ("change code.py", "delete made.py", "delete d/x"))
    for path in ("gone.txt (removed)", "mine.txt (changed)", "notes.md (added)", "new.txt (added)"):
        assert f"\n  {path}\n" in user
    assert not any(f"  {verb} " in user for verb in ("change", "delete", "bring back"))


async def test_a_file_that_the_user_made_and_the_agent_edited_goes_back_to_the_users_version(
    session: Session,
):
    await session.turn("first", "echo a > a")
    Path("own").write_text("mine\n")
    await session.turn("second", "echo agent >> own; rm a")
    ran = await session.rewind(1, "--yes")
    assert (ran.code, tree()) == (0, {"own": "mine\n"})


async def test_a_file_that_both_changed_is_left_alone_unless_it_is_named(session: Session):
    Path("a").write_text("before\n")
    await session.turn("first", "echo agent > a; echo agent > b")
    Path("a").write_text("agent\nand mine\n")
    ran = await session.rewind(1, "--files", "--yes")
    assert ran.code == exit_codes.ERROR
    assert tree() == {"a": "agent\nand mine\n"}
    assert "not restored: a (you changed it since)" in ran.err
    assert "left alone; --include PATH would:\n  change a\n" in ran.out
    assert (await run(None, "redo")).code == 0
    assert (await session.rewind(1, "--files", "--yes", "--include", "a")).code == 0
    assert tree() == {"a": "before\n"}
    assert (await run(None, "redo")).code == 0
    assert tree() == {"a": "agent\nand mine\n", "b": "agent\n"}


async def test_redo_brings_back_everything_that_a_rewind_changed(session: Session):
    await session.turn("first", "echo 1 > a; mkdir -p deep/er; echo 1 > deep/er/b; ln -s a link")
    await session.turn("second", "echo 2 > a; chmod 600 a; rm -r deep")
    before = tree()
    assert (await session.rewind(1, "--yes")).code == 0
    assert (tree(), Path("link").is_symlink()) == ({}, False)
    ran = await run(None, "redo")
    assert (ran.code, tree()) == (0, before)
    assert (Path("link").readlink(), Path("a").stat().st_mode & 0o777) == (Path("a"), 0o600)
    assert "redid what the last rewind changed" in ran.out
    again = await run(None, "redo")
    assert (again.code, again.err) == (exit_codes.ERROR, "treadle redo: nothing to redo\n")


async def test_a_rewind_from_another_folder_is_refused_and_changes_nothing(session: Session):
    await session.turn("first", "echo 1 > a")
    Path("other").mkdir()
    for words in (("--yes",), ("--files", "--yes")):
        ran = await session.rewind(1, *words, cwd=Path("other"))
        assert ran.code == exit_codes.WRONG_FOLDER
        assert "belongs to" in ran.err
    for name in ("undo", "redo"):
        ran = await finish(await start(None, name, session.id, cwd=Path("other")))
        assert ran.code == exit_codes.WRONG_FOLDER
    assert tree() == {"a": "1\n"}


async def test_a_rewind_lists_the_files_and_asks_or_needs_yes(session: Session):
    await session.turn("first", "echo 1 > a; echo 1 > b")
    Path("b").write_text("mine\n")
    before = tree()
    ran = await session.rewind(1)
    assert (ran.code, tree()) == (exit_codes.USAGE_ERROR, before)
    assert "delete a\n" in ran.out
    assert "nothing was changed; add --yes" in ran.err
    words = ("sessions", "rewind", session.id, "1")
    code, out = await answer_at_a_terminal("n\n", *words)
    assert (code, tree()) == (exit_codes.USAGE_ERROR, before)
    assert "Restore 1 file?" in out
    code, out = await answer_at_a_terminal("y\nn\n", *words, "--files")
    assert (code, tree()) == (exit_codes.ERROR, {"b": "mine\n"})
    assert "You changed b, too. Restore it as well?" in out
    await run(None, "redo")
    code, _ = await answer_at_a_terminal("y\ny\n", *words, "--files")
    assert (code, tree()) == (0, {})


async def test_the_files_of_turns_that_left_the_conversation_are_still_the_agents(
    session: Session,
):
    await session.turn("first", "echo 1 > a")
    await session.turn("second", "echo 2 > b")
    assert (await session.rewind(2, "--conversation")).code == 0
    await session.turn("another second", "echo 3 > c")
    assert (await session.rewind(1, "--yes")).code == 0
    assert tree() == {}


# ------------------------------------------------------------------ ignored files


@pytest.mark.parametrize("after", ["", ".env\ndata/\n"])
async def test_undo_and_redo_leave_ignored_files_alone_when_the_agent_changes_gitignore(
    session: Session, repository: None, after: str
):
    """Whether it takes the user's files out of .gitignore or puts them in."""
    Path(".gitignore").write_text("" if after else ".env\ndata/\n")
    Path(".env").write_text("KEY=1\n")
    Path("data").mkdir()
    Path("data/rows").write_text("1\n")
    await session.turn("first", f"printf '{after}' > .gitignore; echo two > code.py")
    Path(".env").write_text("KEY=2\n")
    Path("data/more").write_text("2\n")
    mine = {".env": "KEY=2\n", "data/rows": "1\n", "data/more": "2\n"}
    for words in (("undo", "--yes"), ("redo",), ("undo", "--yes"), ("redo",)):
        ran = await run(None, *words)
        assert (ran.code, ran.err) == (0, "")
        assert mine.items() <= tree().items()
        assert tree()["code.py"] == ("one\n" if "undo" in words else "two\n")
    assert (await session.rewind(1, "--yes")).code == 0
    assert mine.items() <= tree().items()
    assert tree()["code.py"] == "one\n"


async def test_a_folder_that_ignores_itself_survives_undo(session: Session):
    """As `uv venv` makes it: .gitignore itself is ignored, so no checkpoint has its rules."""
    Path("env").mkdir()
    Path("env/.gitignore").write_text("*\n")
    Path("env/python").write_text("mine\n")
    await session.turn("first", "rm env/.g*; echo 1 > a")
    assert (await run(None, "undo", "--yes")).code == 0
    assert tree() == {"env/python": "mine\n"}


@pytest.mark.parametrize(
    "command",
    [
        "echo KEY=2 > .env; echo 2 > data/rows",
        "cd data && echo 2 > rows; cd .. && sed -i s/1/2/ .env",
        "python3 -c 'import sys; [open(one, \"w\") for one in sys.argv[1:]]' .env data/rows",
    ],
)
async def test_an_ignored_file_that_a_command_names_is_undone_and_redone(
    session: Session, repository: None, command: str
):
    Path(".gitignore").write_text(".env\ndata/\n")
    Path(".env").write_text("KEY=1\n")
    Path("data").mkdir()
    Path("data/rows").write_text("1\n")
    Path("data/other").write_text("mine\n")
    before = tree()
    await session.turn("first", command)
    after = tree()
    assert {path for path in after if after[path] != before[path]} == {".env", "data/rows"}
    for words, wanted in (("undo", "--yes"), before), (("redo",), after):
        ran = await run(None, *words)
        assert (ran.code, ran.err) == (0, "")
        assert tree() == wanted
    Path(".env").write_text("KEY=3\n")
    ran = await run(None, "undo", "--yes")
    assert ".env" in ran.err + ran.out
    assert tree() == {**before, ".env": "KEY=3\n"}


# ------------------------------------------------------------------ step by step


async def test_undo_goes_back_turn_by_turn_names_turn_and_files_and_says_when_nothing_is_left(
    session: Session,
):
    for number in (1, 2, 3):
        await session.turn(f"Make file {number}", f"echo {number} > f{number}")
    for number in (3, 2, 1):
        ran = await run(None, "undo", "--yes")
        wanted = f"undid the file changes of turn {number} (Make file {number}): removed f{number}"
        assert (ran.code, ran.out, ran.err) == (0, f"{wanted}\n", "")
        assert sorted(tree()) == [f"f{one}" for one in range(1, number)]
    ran = await run(None, "undo", "--yes")
    assert (ran.code, ran.err) == (exit_codes.ERROR, "treadle undo: nothing left to undo\n")
    for number in (1, 2, 3):
        ran = await run(None, "redo")
        wanted = f"redid the file changes of turn {number} (Make file {number}): restored f{number}"
        assert (ran.code, ran.out) == (0, f"{wanted}\n")
    assert sorted(tree()) == ["f1", "f2", "f3"]


async def test_undo_after_a_new_turn_begins_with_the_new_one(session: Session):
    for number in (1, 2):
        await session.turn(f"Make file {number}", f"echo {number} > f{number}")
    await run(None, "undo", "--yes")
    await session.turn("Make file 3", "echo 3 > f3")
    await run(None, "undo", "--yes")
    assert sorted(tree()) == ["f1"]
    await run(None, "undo", "--yes")
    assert tree() == {}


async def test_what_the_user_changes_while_the_model_thinks_is_not_undone():
    """Also a file that the user renames. What commands change is undone, and a file that both
    changed in the same line is left alone and named."""
    Path("mine").write_text("mine\n")
    Path("old").write_text("to be renamed\n")
    replies = iter([bash("echo 1 > a; echo agent > both"), bash("echo 2 >> a"), LAST])

    def reply(request: ReceivedRequest) -> FakeReply:
        if Path("a").exists() and not Path("notes").exists():  # the second request
            Path("mine").write_text("mine, edited\n")
            Path("notes").write_text("new\n")
            Path("old").rename("new")
            Path("both").write_text("agent and mine\n")
        return next(replies)

    async with ProviderServer(reply) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert (ran.code, Path("a").read_text()) == (0, "1\n2\n")
    ran = await run(None, "undo", "--yes")
    assert ran.code == exit_codes.ERROR
    assert ran.out == "undid the file changes of turn 1 (go): removed a\n"
    assert "not restored: both (you changed it since)\n" in ran.err
    assert tree() == {
        "both": "agent and mine\n",
        "mine": "mine, edited\n",
        "new": "to be renamed\n",
        "notes": "new\n",
    }


@pytest.mark.parametrize(
    "change",
    [
        [bash("echo shell > base")],
        [FakeReply(calls=(FakeCall("read", {"file_path": "base"}),)), write("base", "it")],
    ],
    ids=["command", "file tool"],
)
async def test_undo_goes_back_to_what_the_user_wrote_while_the_model_was_thinking(
    change: list[FakeReply],
):
    Path("base").write_text("base\n")
    replies: Iterator[FakeReply] = iter([bash("echo 1 > a"), *change, LAST])

    def reply(request: ReceivedRequest) -> FakeReply:
        if Path("a").exists() and Path("base").read_text() == "base\n":
            Path("base").write_text("base\nuser edit\n")
        return next(replies)

    async with ProviderServer(reply) as server:
        assert (await run(server, "-p", "go", *FREELY)).code == 0
    agents = Path("base").read_text()
    assert "user edit" not in agents
    ran = await run(None, "undo")
    assert (ran.code, ran.err, tree()) == (0, "", {"base": "base\nuser edit\n"})
    assert (await run(None, "redo")).code == 0
    assert tree() == {"a": "1\n", "base": agents}


@pytest.mark.parametrize("goes_on", [False, True])
async def test_after_kill_9_while_the_model_thinks_it_is_known_what_the_agent_changed(
    goes_on: bool,
):
    Path("code.py").write_text("one\n")
    replies = [bash("echo two > code.py"), LAST]
    async with ProviderServer(replies, faults=[ProviderFault("stall_headers", at=1)]) as server:
        process = await start(server, "-p", "go", *FREELY)
        await server.wait_until(lambda: len(server.requests) == 2)
        process.kill()
        await process.communicate()
        Path("own").write_text("mine\n")
        if goes_on:
            assert (await run(server, "-p", "--continue", *FREELY)).code == 0
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (0, {"code.py": "one\n", "own": "mine\n"})
    assert (await run(None, "redo")).code == 0
    assert tree() == {"code.py": "two\n", "own": "mine\n"}


@pytest.mark.parametrize("goes_on", [False, True])
async def test_undo_after_kill_9_of_a_command_lists_the_files_and_asks(
    goes_on: bool, tmp_path: Path
):
    Path("code.py").write_text("one\n")
    os.mkfifo(tmp_path / "begun")
    command = f"echo two > code.py; echo > {tmp_path}/begun; sleep 60"
    async with ProviderServer([bash(command), LAST]) as server:
        process = await start(server, "-p", "go", *FREELY)
        await asyncio.to_thread((tmp_path / "begun").read_bytes)
        process.kill()
        await process.communicate()
        Path("own").write_text("mine\n")
        if goes_on:
            assert (await run(server, "-p", "--continue", *FREELY)).code == 0
    ran = await run(None, "undo")
    assert (ran.code, Path("code.py").read_text()) == (exit_codes.USAGE_ERROR, "two\n")
    doubt = "it changed after the program was killed"
    assert f"Some of these changes may be yours. Undo will:\n  change code.py ({doubt})" in ran.out
    code, _ = await answer_at_a_terminal("y\n", "undo")
    assert (code, tree()) == (0, {"code.py": "one\n"})
    assert (await run(None, "redo")).code == 0
    assert tree() == {"code.py": "two\n", "own": "mine\n"}


# ------------------------------------------------------------------ while a command runs


async def test_what_changes_while_a_command_runs_is_undone_and_redo_brings_it_back(tmp_path: Path):
    """Nobody can tell who did it: the span of a call is the agent's."""
    for name in ("appended", "old", "deleted"):
        Path(name).write_text("mine\n")
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "go")
    command = f"echo > {tmp_path}/begun; cat {tmp_path}/go; echo agent > made"
    async with ProviderServer([write("by_tool", "agent\n"), bash(command), LAST]) as server:
        running = asyncio.create_task(run(server, "-p", "go", *FREELY))
        await asyncio.to_thread((tmp_path / "begun").read_bytes)
        Path("appended").write_text("mine\nand more\n")
        Path("created").write_text("mine\n")
        Path("old").rename("new")
        Path("deleted").unlink()
        await asyncio.to_thread((tmp_path / "go").write_bytes, b"")
        assert (await running).code == 0
    before = tree()
    ran = await run(None, "undo")
    assert (ran.code, ran.err) == (0, "")
    assert tree() == {"appended": "mine\n", "deleted": "mine\n", "old": "mine\n"}
    assert (await run(None, "redo")).code == 0
    assert tree() == before


async def work_beside_a_background_command(tmp_path: Path) -> str:
    """The id of a session in which the user changed a file while the model thought and a command
    of the agent ran in the background; that command changed one, too."""
    for name in ("go", "done", "end"):
        os.mkfifo(tmp_path / name)
    command = f"cat {tmp_path}/go; echo agent > behind; echo > {tmp_path}/done; cat {tmp_path}/end"
    call = FakeCall("bash", {"command": command, "run_in_background": True})
    replies = iter([FakeReply(calls=(call,)), write("sure", "agent\n"), LAST, LAST])

    def reply(request: ReceivedRequest) -> FakeReply:
        if request.number == 1:  # the command runs
            (tmp_path / "go").write_bytes(b"")
            (tmp_path / "done").read_bytes()
            Path("mine").write_text("mine\n")
        if request.number == 2:
            (tmp_path / "end").write_bytes(b"")
        return next(replies)

    async with ProviderServer(reply) as server:
        ran = await run(server, "-p", "go", "--output-format", "json", *FREELY)
    return str(ran.lines[0]["session_id"])


async def test_undo_asks_about_files_that_changed_while_only_a_background_command_ran(
    tmp_path: Path,
):
    session_id = await work_beside_a_background_command(tmp_path)
    before = tree()
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (exit_codes.USAGE_ERROR, before)
    agent, doubtful = ran.out.split("Some of these changes may be yours. Undo will:\n")
    assert agent == "The agent changed these files. Undo will:\n  delete sure\n"
    for line, name in zip(doubtful.splitlines(), ("behind", "mine"), strict=True):
        assert line.startswith(f"  delete {name} (it changed while [bash: cat /")
        assert line.endswith(" ran in the background)")
    assert "nothing was changed; add --yes" in ran.err
    ran = await run(None, "undo", "--include", "behind")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"mine": "mine\n"})
    assert "not restored: mine (it changed while [bash: cat" in ran.err
    assert (await run(None, "redo")).code == 0
    words = ("sessions", "rewind", session_id, "1")
    code, out = await answer_at_a_terminal("n\n", *words)
    assert (code, out.count("[y/N]"), tree()) == (exit_codes.USAGE_ERROR, 1, before)
    assert "Restore 3 files?" in out
    code, _ = await answer_at_a_terminal("y\n", "undo")
    assert (code, tree()) == (0, {})
    assert (await run(None, "redo")).code == 0
    assert tree() == before


async def test_undo_refuses_to_include_a_file_that_is_not_in_its_list(session: Session):
    await session.turn("one", "echo 1 > a")
    ran = await run(None, "undo", "--include", "nofile", "--yes")
    assert (ran.code, tree()) == (exit_codes.USAGE_ERROR, {"a": "1\n"})
    assert "--include nofile: the agent did not change this file" in ran.err
    assert (await run(None, "undo", "--include", "./a")).code == 0
    assert tree() == {}


async def test_undo_keeps_the_lines_that_the_user_changed_since(session: Session):
    lines = [f"line {number}\n" for number in range(9)]
    Path("code.py").write_text("".join(lines))
    await session.turn("first", "sed -i 's/line 1/agent/' code.py; chmod +x code.py")
    Path("code.py").write_text("mine\n" + Path("code.py").read_text().replace("line 7", "mine"))
    mine = ["mine\n", *lines[:7], "mine\n", lines[8]]
    ran = await run(None, "undo")
    assert (ran.code, Path("code.py").read_text()) == (0, "".join(mine))
    assert ran.out == "undid the file changes of turn 1 (first): restored code.py\n"
    assert ran.err.startswith("your changes are kept in code.py; `treadle sessions versions ")
    assert not Path("code.py").stat().st_mode & 0o100
    assert (await run(None, "redo")).code == 0
    assert Path("code.py").read_text() == "".join(mine).replace("line 1", "agent")


async def test_what_the_user_changes_after_an_edit_that_failed_is_not_undone():
    Path("f").write_text("mine\n")
    wrong: dict[str, object] = {
        "file_path": "f",
        "old_string": "no such text",
        "new_string": "agent",
    }
    calls = (FakeCall("edit", wrong),)
    replies = iter([bash("echo 1 > a"), READ, FakeReply(calls=calls), bash("echo 2 > b"), LAST])

    def reply(request: ReceivedRequest) -> FakeReply:
        if request.number == 3:  # the edit has failed
            Path("f").write_text("mine, edited\n")
        return next(replies)

    async with ProviderServer(reply) as server:
        assert (await run(server, "-p", "go", *FREELY)).code == 0
    ran = await run(None, "undo")
    assert (ran.code, ran.out) == (0, "undid the file changes of turn 1 (go): removed a, b\n")
    assert tree() == {"f": "mine, edited\n"}


async def test_what_the_user_changes_while_a_child_agent_thinks_is_not_undone():
    call = FakeCall("task", {"description": "it", "prompt": "the work"})
    replies = iter([FakeReply(calls=(call,)), bash("echo agent > a"), LAST, LAST])

    def reply(request: ReceivedRequest) -> FakeReply:
        Path("f").write_text(f"mine {request.number}\n")
        return next(replies)

    async with ProviderServer(reply) as server:
        assert (await run(server, "-p", "go", *FREELY)).code == 0
    assert tree() == {"a": "agent\n", "f": "mine 3\n"}
    ran = await run(None, "undo")
    assert (ran.code, ran.out) == (0, "undid the file changes of turn 1 (go): removed a\n")
    assert tree() == {"f": "mine 3\n"}


async def test_undo_of_what_the_file_tools_changed_includes_a_formatter_as_hook():
    hook = {"type": "command", "command": "echo formatted >> a"}
    Path(".treadle").mkdir()
    hooks = {"PostToolUse": [{"matcher": "write", "hooks": [hook]}]}
    (Path.home() / ".treadle").mkdir()
    (Path.home() / ".treadle/settings.json").write_text(json.dumps({"hooks": hooks}))
    async with ProviderServer([write("a", "1\n"), LAST]) as server:
        assert (await run(server, "-p", "go", *FREELY)).code == 0
    assert Path("a").read_text() == "1\nformatted\n"
    ran = await run(None, "undo")
    assert (ran.code, ran.out) == (0, "undid the file changes of turn 1 (go): removed a\n")


# ------------------------------------------------------------------ partial redo


@pytest.mark.parametrize("is_later", [False, True], ids=["at once", "after another turn"])
async def test_undo_brings_back_the_users_file_that_a_redo_replaced(
    session: Session, is_later: bool
):
    await session.turn("one", "echo agent > f")
    assert (await run(None, "undo", "--yes")).code == 0
    Path("f").write_text("my own work\n")
    ran = await run(None, "redo")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"f": "my own work\n"})
    assert (await run(None, "redo", "--include", "f")).code == 0
    assert tree() == {"f": "agent\n"}
    if is_later:
        await session.turn("two", "echo 2 > g")
        assert (await run(None, "undo", "--yes")).code == 0
    assert (await run(None, "undo")).code == 0
    assert tree() == {"f": "my own work\n"}
    assert (await run(None, "redo")).code == 0
    assert tree() == {"f": "agent\n"}


async def test_undo_takes_back_a_redo_of_a_rewind_with_the_users_file_that_it_replaced(
    session: Session,
):
    await session.turn("one", "echo agent > f")
    await session.turn("two", "echo 2 > g")
    assert (await session.rewind(1, "--files", "--yes")).code == 0
    Path("f").write_text("my own work\n")
    assert (await run(None, "redo", "--include", "f")).code == 0
    assert tree() == {"f": "agent\n", "g": "2\n"}
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (0, {"f": "my own work\n"})
    assert ran.out == "took back the last redo: restored f; removed g\n"
    assert (await run(None, "redo")).code == 0
    assert tree() == {"f": "agent\n", "g": "2\n"}


async def test_after_a_partial_redo_the_advised_command_restores_the_agents_version(
    session: Session,
):
    await session.turn("first", "echo agent > w.txt; echo agent > a.txt")
    assert (await run(None, "undo", "--yes")).code == 0
    Path("w.txt").write_text("mine\n")
    ran = await run(None, "redo")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"a.txt": "agent\n", "w.txt": "mine\n"})
    assert "not restored: w.txt (you changed it since)" in ran.err
    assert "to restore such a file, too: `treadle redo --include PATH`" in ran.err
    ran = await run(None, "redo")
    assert ran.code == exit_codes.ERROR
    left = "nothing left to redo but files that you changed: w.txt"
    assert f"{left}; `treadle redo --include PATH` restores one" in ran.err
    assert (await run(None, "redo", "--include", "w.txt")).code == 0
    assert tree() == {"a.txt": "agent\n", "w.txt": "agent\n"}
    assert (await run(None, "redo", "--include", "w.txt")).err.endswith("nothing to redo\n")
    assert (await run(None, "undo", "--yes")).code == 0
    assert tree() == {"w.txt": "mine\n"}


async def test_a_partial_redo_does_not_stand_before_earlier_ones(session: Session):
    for number in (1, 2):
        await session.turn(f"Make {number}", f"echo agent > f{number}; echo agent > g{number}")
    for _ in (2, 1):
        await run(None, "undo", "--yes")
    Path("f1").write_text("mine\n")
    assert (await run(None, "redo")).code == exit_codes.ERROR  # turn 1, without f1
    ran = await run(None, "redo")
    assert (ran.code, "turn 2" in ran.out) == (0, True)
    assert (await run(None, "redo", "--include", "f1")).code == 0
    assert set(tree().values()) == {"agent\n"}


# ------------------------------------------------------------------ help


@pytest.mark.parametrize(
    "words", [("undo",), ("redo",), ("sessions", "rewind"), ("sessions", "undo")]
)
async def test_the_help_of_undo_names_only_itself_and_explains_each_option(words):
    ran = await run(None, *words, "--help")
    assert ran.out.startswith(f"usage: treadle {' '.join(words)} [-h]")
    assert "the same" not in ran.out
    assert "treadle sessions undo" not in ran.out or words[0] == "sessions"
    if "rewind" in words:
        assert "only the files; the conversation stays" in ran.out


# ------------------------------------------------------------------ when it fails


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    here = Path.cwd()
    yield place
    os.chdir(here)
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_file_is_not_rewound_when_the_disk_is_too_full_to_keep_its_present_content(
    session: Session, small_disk: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(small_disk))
    await session.turn("first", "echo 1 > a; echo 1 > b")
    Path("a").write_bytes(b"mine" + os.urandom(2_000_000))
    mine = Path("a").read_bytes()
    ran = await session.rewind(1, "--files", "--yes", "--include", "a")
    assert ran.code == exit_codes.ERROR
    assert "not restored: a (its current content is not stored" in ran.err
    assert (Path("a").read_bytes(), Path("b").exists()) == (mine, False)


async def test_what_a_full_disk_leaves_out_is_named_and_redo_brings_the_rest_back(
    session: Session, small_disk: Path
):
    os.chdir(small_disk)
    Path("big").write_bytes(b"x" * 700_000)
    await session.turn("first", "rm big; echo 1 > a")
    Path("own").write_bytes(b"y" * 700_000)
    ran = await session.rewind(1, "--files", "--yes")
    assert ran.code == exit_codes.ERROR
    assert "not restored: big (No space left on device)" in ran.err
    assert (sorted(tree()), len(tree()["own"])) == (["own"], 700_000)
    assert (await run(None, "redo")).code == 0
    assert sorted(tree()) == ["a", "own"]


async def test_a_folder_that_was_replaced_by_the_user_is_not_removed_for_a_file(session: Session):
    Path("d").write_text("a file\n")
    await session.turn("first", "rm d; echo 1 > a")
    Path("d").mkdir()
    Path("d/own").write_text("mine\n")
    ran = await session.rewind(1, "--files", "--yes")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"d/own": "mine\n"})
    assert "not restored: d (something else is in its place)" in ran.err
    shutil.rmtree("d")
    assert (await run(None, "redo")).code == 0
    assert (await session.rewind(1, "--files", "--yes")).code == 0
    assert tree() == {"d": "a file\n"}


# ------------------------------------------------------------------ edits between two changes


async def edit_between(*changes: tuple[FakeReply, ...]) -> str:
    """The id of a session of one turn: after each change but the last, the user edits `f`."""
    replies = [*changes[0]]
    for change in changes[1:]:
        replies += [READ, *change]
    edits = {len(changes[0]): "mine 1\n"}
    if len(changes) > 2:
        edits[len(changes[0]) + 1 + len(changes[1])] = "mine 2\n"
    asked = 0

    def reply(request: ReceivedRequest) -> FakeReply:
        nonlocal asked
        if asked in edits:
            Path("f").write_text(edits[asked])
        asked += 1
        return [*replies, LAST][asked - 1]

    async with ProviderServer(reply) as server:
        ran = await run(server, "-p", "go", "--output-format", "json", *FREELY)
    assert ran.code == 0, ran.err
    return str(ran.lines[0]["session_id"])


@pytest.mark.parametrize(
    "changes",
    [
        ((READ, write("f", "agent 1\n")), (write("f", "agent 2\n"),)),
        ((bash("echo agent 1 > f"),), (write("f", "agent 2\n"),)),
        ((bash("echo agent 1 > f"),), (bash("echo agent 2 > f"),)),
    ],
    ids=["file tools", "command, file tool", "commands"],
)
async def test_every_version_of_a_file_that_the_user_edited_between_two_changes_can_be_reached(
    changes: tuple[tuple[FakeReply, ...], ...],
):
    Path("f").write_text("original\n")
    session_id = await edit_between(*changes)
    assert tree() == {"f": "agent 2\n"}
    ran = await run(None, "undo", "--yes")
    assert (ran.code, tree()) == (0, {"f": "mine 1\n"})
    again = "`treadle undo --include PATH` restores the one before it"
    versions = f"`treadle sessions versions {session_id} PATH` lists all versions"
    assert ran.err == f"your version is back: f; {again}; {versions}\n"
    ran = await run(None, "undo", "--yes")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"f": "mine 1\n"})
    left = "nothing left to undo but files that you changed: f"
    assert f"{left}; `treadle undo --include PATH` restores one" in ran.err
    assert (await run(None, "undo", "--include", "f")).code == 0
    assert tree() == {"f": "original\n"}
    assert (await run(None, "undo", "--yes")).err == "treadle undo: nothing left to undo\n"
    for text in ("mine 1\n", "agent 2\n"):
        assert (await run(None, "redo")).code == 0
        assert tree() == {"f": text}
    words = ("sessions", "rewind", session_id, "1", "--files", "--yes")
    ran = await run(None, *words)
    assert (ran.code, tree()) == (0, {"f": "mine 1\n"})
    assert "change f (back to your version)\n" in ran.out
    assert "For its version before yours, add --include PATH." in ran.out
    assert (await run(None, "redo")).code == 0
    assert (await run(None, *words, "--include", "f")).code == 0
    assert tree() == {"f": "original\n"}
    assert (await run(None, "redo")).code == 0
    assert tree() == {"f": "agent 2\n"}


async def test_the_agents_version_of_a_file_that_the_user_then_edited_is_listed_and_printed():
    Path("f").write_text("original\n")
    session_id = await edit_between((READ, write("f", "agent 1\n")), (write("f", "agent 2\n"),))
    Path("f").write_text("mine 2\n")
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"f": "mine 2\n"})
    assert f"`treadle sessions versions {session_id} PATH` lists all versions" in ran.err
    words = ("sessions", "versions", session_id, "f")
    assert [
        line.split("  ")[-1].strip() for line in (await run(None, *words)).out.splitlines()
    ] == [
        "before turn 1",
        "the agent, in turn 1",
        "you",
        "the agent, in turn 1",
        "you",
    ]
    texts = ["original\n", "agent 1\n", "mine 1\n", "agent 2\n", "mine 2\n"]
    for number, text in enumerate(texts, 1):
        assert (await run(None, *words, str(number))).out == text
    ran = await run(None, *words, "6")
    assert "there is no version 6 of f" in ran.err
    assert tree() == {"f": "mine 2\n"}


async def test_an_undo_that_leaves_all_files_alone_is_named_once_and_the_next_one_goes_on():
    """Two turns; then the user edits the only file of the second."""
    session_id = ""
    for number, name in ((1, "f"), (2, "g")):
        more = ("--resume", session_id) if session_id else ()
        async with ProviderServer([write(name, "agent\n"), LAST]) as server:
            ran = await run(
                server, "-p", f"Turn {number}", "--output-format", "json", *more, *FREELY
            )
        session_id = str(ran.lines[0]["session_id"])
    Path("g").write_text("mine\n")
    words = ("sessions", "rewind", session_id, "2", "--files", "--yes")
    assert (
        await run(None, *words)
    ).code == exit_codes.ERROR  # it changes nothing, and does not count
    ran = await run(None, "undo")
    assert (ran.code, ran.out) == (
        exit_codes.ERROR,
        "Undo the file changes of turn 2 (Turn 2): nothing is changed\n",
    )
    assert "not restored: g (you changed it since)" in ran.err
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (0, {"g": "mine\n"})
    assert ran.out == "undid the file changes of turn 1 (Turn 1): removed f\n"
    ran = await run(None, "undo")
    assert "nothing left to undo but files that you changed: g; `treadle undo --include" in ran.err
    assert (await run(None, "undo", "--include", "g")).code == 0
    assert tree() == {}
    for text in ({"g": "mine\n"}, {"f": "agent\n", "g": "mine\n"}):
        assert (await run(None, "redo")).code == 0
        assert tree() == text
    assert "nothing to redo" in (await run(None, "redo")).err


async def test_undo_goes_back_over_each_of_several_edits_of_the_user_in_one_turn():
    Path("f").write_text("original\n")
    changes = [(write("f", f"agent {number}\n"),) for number in (2, 3)]
    await edit_between((READ, write("f", "agent 1\n")), *changes)
    assert (await run(None, "undo")).code == 0
    for text in ("mine 2\n", "mine 1\n"):
        assert tree() == {"f": text}
        assert (await run(None, "undo", "--include", "f")).code == 0
    assert tree() == {"f": "original\n"}
    for text in ("mine 1\n", "mine 2\n", "agent 3\n"):
        assert (await run(None, "redo")).code == 0
        assert tree() == {"f": text}


async def test_undo_reaches_the_version_before_an_edit_at_the_end_of_the_turn():
    """The agent changed the file, then the user did, while the model wrote its last words."""
    Path("f").write_text("original\n")
    await edit_between((READ, write("f", "agent 1\n")), ())
    ran = await run(None, "undo")
    assert (ran.code, tree()) == (exit_codes.ERROR, {"f": "mine 1\n"})
    assert "not restored: f (you changed it since)" in ran.err
    assert (await run(None, "undo", "--include", "f")).code == 0
    assert tree() == {"f": "original\n"}
    assert (await run(None, "redo")).code == 0
    assert tree() == {"f": "mine 1\n"}
