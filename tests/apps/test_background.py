"""Sessions in the background, with real processes: started, seen, followed, attached, stopped."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.acp.editor import Editor, connect
from tests.apps.program import run, start
from tests.apps.test_child_worktrees import make_repository
from tests.apps.tui.tmux import needs_tmux, terminal_at
from tests.apps.web.server import open_tab, web_server
from tests.patience import SOON, until
from treadle.apps.cli.background_sessions.commands import describe_work
from treadle.apps.console import exit_codes
from treadle.apps.console.supervisor import find_wait
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.core.loop.inbox import CONTINUED_TEXT
from treadle.core.transcript import NoticeItem, to_user_item
from treadle.core.transcript.entries import ItemAdded, WakeCondition
from treadle.sessions import Library
from treadle.sessions.detached.background import (
    LEAVE_SIGNAL,
    find_run,
    read_choices,
    signal_run,
)
from treadle.sessions.history import read_state
from treadle.testing.provider import (
    FakeCall,
    FakeReply,
    ProviderFault,
    ProviderServer,
    ReceivedRequest,
)

FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


# A command that works until `open_gate`, and the end.
WORK = (bash("mkfifo gate; echo x >> effects; cat gate"), FakeReply(text="All is done."))


async def open_gate() -> None:
    await asyncio.to_thread(Path("gate").write_text, "opened")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """End the supervisor and the runs of this test. The folder is trusted: no terminal asks."""
    open_trust_store().trust(Path.cwd())
    yield
    pids = [int(word) for word in read_words(Path.home() / ".treadle/supervisor/lock")]
    dirs = list(Library().list_session_dirs())
    pids += [one.pid for one in map(find_run, dirs) if one is not None]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def read_words(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


async def begin(server: ProviderServer, *words: str, **more: Any) -> Path:
    """Start a session in the background; the folder of the session."""
    ran = await run(server, "--bg", *words, **more)
    assert ran.code == 0, ran.err
    return Library().find(ran.out.strip())


async def ps(session_dir: Path) -> str:
    """What `treadle ps` says about a session."""
    ran = await run(None, "ps")
    assert ran.code == 0, ran.err
    return "".join(line for line in ran.out.splitlines() if line.startswith(session_dir.name))


async def ends(session_dir: Path) -> None:
    """Wait until no run has the session, which has begun."""
    await until(lambda: read_state(session_dir).full_history and not find_run(session_dir))


async def waits(session_dir: Path) -> None:
    """Wait until it waits for something, and no run has it."""
    await until(lambda: read_state(session_dir).suspended and not find_run(session_dir))


async def test_a_session_works_in_the_background_and_its_log_is_followed():
    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        assert "  running  tidy up" in await ps(session_dir)
        refused = await run(server, "-p", "--resume", session_dir.name, "And?")
        assert refused.code == exit_codes.SESSION_BUSY
        assert f"`treadle attach {session_dir.name}` brings it here" in refused.err
        following = await start(None, "logs", "-f", session_dir.name)
        assert following.stdout is not None
        assert await following.stdout.readline() == b"> tidy up\n"
        await open_gate()
        out, err = await following.communicate()
        assert b"opened" in out
        assert out.endswith(b"All is done.\n\n")
        assert err.decode() == f"treadle: {session_dir.name}: done\n"
        assert "  done  " in await ps(session_dir)
    assert server.violations == []


def write_or_end(request: ReceivedRequest) -> FakeReply:
    if "tool_result" in request.body.decode():
        return FakeReply(text="It is written.")
    return FakeReply(calls=(FakeCall("write", {"file_path": "a.txt", "content": "one\n"}),))


@needs_tmux
async def test_a_question_waits_and_is_answered_where_the_session_is_attached(tmp_path: Path):
    async with ProviderServer(write_or_end) as server:
        session_dir = await begin(server, "write it")
        await ends(session_dir)
        assert "waits for you: [write: a.txt]" in await ps(session_dir)
        assert not Path("a.txt").exists()
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("attach", session_dir.name)
            await terminal.answer("y", "Enter")
            await terminal.sees("It is written.")
    assert Path("a.txt").read_text() == "one\n"
    assert await ps(session_dir) == "", "it is in the terminal now"
    assert server.violations == []


@needs_tmux
async def test_a_session_at_work_comes_to_the_terminal_after_its_round(tmp_path: Path):
    """The command is not cut off, and not run twice."""

    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("attach", session_dir.name)
            await terminal.sees("it comes here after this round")
            await open_gate()
            screen = await terminal.sees("All is done.", "bypass")
    assert screen.count("All is done.") == 1
    assert Path("effects").read_text() == "x\n"
    assert len(server.requests) == 2
    assert server.violations == []


@needs_tmux
async def test_who_does_not_wait_leaves_the_session_at_work(tmp_path: Path):
    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("attach", session_dir.name)
            await terminal.sees("it comes here after this round")
            await terminal.press("C-c")
            await terminal.sees("ended with 130")
        assert "  running  " in await ps(session_dir)
        await open_gate()
        await ends(session_dir)
        assert "  done  " in await ps(session_dir)
    assert len(server.requests) == 2


@pytest.mark.parametrize("words", [("attach",), ("--resume",)])
async def test_without_a_terminal_a_session_works_on(words: tuple[str, ...]):
    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        async with asyncio.timeout(SOON):
            ran = await run(server, *words, session_dir.name)
        assert (ran.code, "not a terminal" in ran.err) == (2, True), ran
        await open_gate()
        await ends(session_dir)
        assert "  done  " in await ps(session_dir)
    assert len(server.requests) == 2


async def test_attach_reads_no_message_from_a_pipe():
    async with ProviderServer(write_or_end) as server:
        session_dir = await begin(server, "write it")
        await waits(session_dir)
        ran = await run(server, "attach", session_dir.name, said=b"go on")
        assert ran.code == 2, ran
        assert f"not a terminal; `treadle logs -f {session_dir.name}` follows it" in ran.err
        assert "waits for you: [write: a.txt]" in await ps(session_dir)


async def test_a_session_that_left_for_a_program_that_ended_is_continued():
    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        assert signal_run(session_dir, LEAVE_SIGNAL)
        await open_gate()
        await waits(session_dir)
        assert "  interrupted  " in await ps(session_dir)
        assert find_wait(session_dir, exit_codes.SUSPENDED) is None  # that program may be at it
        listed = await run(None, "resume")
        assert "it left for another program (due now)" in listed.out
        ran = await run(server, "resume", "--suspended")
    assert (ran.code, ran.out) == (0, "All is done.\n"), ran
    assert Path("effects").read_text() == "x\n"
    assert server.violations == []


async def test_a_killed_run_is_listed_as_interrupted_and_can_be_continued():
    replies = [bash("echo x >> effects; sleep 1000"), FakeReply(text="All is done.")]
    async with ProviderServer(replies) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        holder = find_run(session_dir)
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        await ends(session_dir)
        assert "  interrupted  tidy up" in await ps(session_dir)
        ran = await run(server, "--bg", "--resume", session_dir.name, *FREELY)
        assert ran.code == 0, ran.err
        await until(lambda: len(server.requests) == 2)
        await ends(session_dir)
        assert "  done  " in await ps(session_dir)
    assert "Interrupted, outcome unknown" in server.requests[1].body.decode()
    assert Path("effects").read_text() == "x\n"


async def test_stop_interrupts_a_session_and_then_takes_it_off_the_list():
    async with ProviderServer([bash("echo x >> effects; sleep 1000")]) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        # A word of the title without quotes is no message for the model.
        message = await run(None, "attach", session_dir.name, "up", "--plain")
        several = await run(None, "stop", "tidy", "up")
        for ran in (message, several):
            assert (ran.code, ran.out) == (2, ""), ran
            assert "name one session; words of its title need quotes" in ran.err
        first = await run(None, "stop", session_dir.name)
        assert "  interrupted  " in await ps(session_dir)
        second = await run(None, "stop", session_dir.name)
        third = await run(None, "stop", session_dir.name)
    assert first.out == f"{session_dir.name} is interrupted; `treadle attach` continues it\n"
    assert second.out == f"{session_dir.name} is not in the background any more\n"
    assert (third.code, third.out) == (1, "")
    assert await ps(session_dir) == ""


async def test_quiet_prints_the_id_alone():
    async with ProviderServer([FakeReply(text="All is done.")]) as server:
        ran = await run(server, "--bg", "go", "--quiet")
        session_dir = Library().find(ran.out.strip())
        await ends(session_dir)
    assert (ran.code, ran.err) == (0, "")


async def test_a_new_task_after_stop_is_the_only_one():
    replies = [bash("echo x >> effects; sleep 1000"), FakeReply(text="All is done.")]
    async with ProviderServer(replies) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        await run(None, "stop", session_dir.name)
        await begin(server, "--resume", session_dir.name, "count the files", *FREELY)
        await until(lambda: len(server.requests) == 2)
        await ends(session_dir)
    sent = server.requests[1].body.decode()
    assert "count the files" in sent
    assert CONTINUED_TEXT not in sent


async def test_one_supervisor_starts_the_runs_and_ends_when_idle():
    async with ProviderServer(lambda _: FakeReply(text="Hello.")) as server:
        await begin(server, "hello")
        folder = Path.home() / ".treadle/supervisor"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o600
        [pid] = read_words(folder / "lock")
        second = await run(None, "supervisor")
        assert second.code == exit_codes.SESSION_BUSY
        assert "runs already" in second.err
        await ends(await begin(server, "again"))
        assert read_words(folder / "lock") == [pid]
        await until(lambda: not (folder / "socket").exists())
        await ends(await begin(server, "after it has ended"))
        assert read_words(folder / "lock") != [pid]


async def test_a_supervisor_that_cannot_listen_says_why_at_once():
    (Path.home() / ".treadle/supervisor/socket").mkdir(parents=True)
    async with ProviderServer(lambda _: FakeReply(text="Hello.")) as server:
        ran = await run(server, "--bg", "hello")
    assert ran.code == exit_codes.ERROR
    assert "the supervisor in " in ran.err
    assert "Is a directory: 'socket'" in ran.err


async def test_a_run_has_the_environment_of_its_caller():
    replies = [bash("echo $VIRTUAL_ENV >> found"), FakeReply(text="ok")] * 2
    async with ProviderServer(replies) as server:
        await ends(await begin(server, "look", *FREELY, VIRTUAL_ENV="/venvs/one"))
        await ends(await begin(server, "look", *FREELY, VIRTUAL_ENV="/venvs/two"))
    assert Path("found").read_text() == "/venvs/one\n/venvs/two\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_a_session_works_in_the_background_in_a_worktree_which_stays():
    await make_repository()
    async with ProviderServer((bash("echo done > one.txt"), FakeReply("Done."))) as server:
        session_dir = await begin(server, "change one", "--worktree", "fix", *FREELY)
        await ends(session_dir)
    assert "done" in await ps(session_dir)
    folder = Path(Library().get_summary(session_dir).folder)
    assert (folder.name, (folder / "one.txt").read_text()) == ("fix", "done\n")
    assert Path("one.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--bg",), "no prompt: write it after --bg,"),
        (("--bg", "go", "--output-format", "json"), "--output-format does not work with --bg"),
        (("--bg", "go", "--dry-run"), "--dry-run does not work with --bg"),
        (("--bg", "/files:ask me"), "there is no command /files:ask"),
        (("--bg", "go", "--model", "unknown/model"), "unknown"),
    ],
)
async def test_what_cannot_work_is_said_at_once(words: tuple[str, ...], problem: str):
    ran = await run(None, *words)
    assert ran.code == 2
    assert problem in ran.err
    assert (await run(None, "ps")).out.startswith("no sessions in the background")


@needs_tmux
async def test_a_session_leaves_the_terminal_after_its_round_and_works_on(tmp_path: Path):
    async with ProviderServer(WORK) as server:
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("tidy up", *FREELY)
            await until(lambda: Path("effects").exists())
            await terminal.send("/detach")
            await terminal.sees("it goes to the background after this round")
            await open_gate()
            await terminal.sees("it works in the background", "ended with 0")
        [session_dir] = Library().list_session_dirs()
        await until(lambda: len(server.requests) == 2)
        await ends(session_dir)
        assert "  done  " in await ps(session_dir)
    assert Path("effects").read_text() == "x\n"
    assert server.violations == []


@needs_tmux
async def test_a_question_goes_to_the_background_and_comes_back(tmp_path: Path):
    """With the mode and the rules of the terminal, which are not those of the settings."""
    async with ProviderServer(write_or_end) as server:
        with terminal_at(server, tmp_path) as terminal:
            rules = ("--deny", "Bash(git push:*)", "--max-cost", "3")
            await terminal.run("write it", *rules)
            await terminal.sees("Yes, this once")
            await terminal.send("/detach")
            [session_dir] = Library().list_session_dirs()
            await until(lambda: read_choices(session_dir) is not None)
            states = set[str]()

            def is_told() -> bool:
                states.add(describe_work(Library(), Library().get_summary(session_dir)))
                return any(one.startswith("waits for you") for one in states)

            await until(is_told)
            assert "interrupted" not in states
            await terminal.sees("it works in the background", "ended with 0")
            await until(lambda: read_state(session_dir).suspended is not None)
            choices = read_choices(session_dir)
            assert choices is not None
            assert choices.deny == ("Bash(git push:*)",)
            assert choices.flags == {"max_cost": "3", "permission_mode": "ask"}
            assert "waits for you: [write: a.txt]" in await ps(session_dir)
            await terminal.run("attach", session_dir.name)
            await terminal.answer("y", "Enter")
            await terminal.sees("It is written.")
            await terminal.send("/budget")
            await terminal.sees("of $3")
    assert len(server.requests) == 2, "the question was not asked of the model again"
    assert Path("a.txt").read_text() == "one\n"


@needs_tmux
async def test_one_session_in_terminal_background_page_and_editor(tmp_path: Path):
    """With the supervisor and the page killed on the way: each effect is there once."""

    def reply(request: ReceivedRequest) -> FakeReply:
        results = request.body.decode().count('"tool_result"')
        if results == 0:
            return bash("mkfifo gate; echo x >> effects; cat gate")
        if results == 1:
            return FakeReply(calls=(FakeCall("write", {"file_path": "a.txt", "content": "1\n"}),))
        return FakeReply(text="It is written.")

    async with ProviderServer(reply) as server:
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("tidy up", "--sandbox", "off")
            await terminal.answer("y", "Enter")
            await until(lambda: Path("effects").exists())
            [session_dir] = Library().list_session_dirs()
            await terminal.send("/detach")
            await open_gate()
            await terminal.sees("ended with 0")
        [supervisor] = read_words(Path.home() / ".treadle/supervisor/lock")
        os.kill(int(supervisor), signal.SIGKILL)
        await until(lambda: read_state(session_dir).suspended is not None)
        async with web_server(server, Path.cwd()) as page:
            async with open_tab(page, session_dir.name) as tab:
                await tab.send(do="inbox", id="1")
                await tab.wait_until(lambda one: "a.txt" in one.regions.get("questions", ""))
            await page.kill()
        editor = Editor(lambda question, options: options[0].option_id)
        async with connect(server, editor=editor) as on:
            await on.agent.load_session(
                cwd=str(Path.cwd()), session_id=session_dir.name, mcp_servers=[]
            )
            await on.prompt(session_dir.name, "Go on.")
    assert Path("effects").read_text() == "x\n"
    assert Path("a.txt").read_text() == "1\n"
    assert server.violations == []


async def test_the_page_shows_a_session_at_work_and_continues_it_after_its_round():
    async with ProviderServer(WORK) as server:
        session_dir = await begin(server, "tidy up", *FREELY)
        await until(lambda: Path("effects").exists())
        async with (
            web_server(server, Path.cwd()) as page,
            open_tab(page, session_dir.name) as tab,
        ):
            await tab.wait_until(lambda one: "treadle --bg" in one.regions.get("banner", ""))
            await open_gate()
            await tab.wait_until(lambda one: "All is done." in one.text)
            assert read_choices(session_dir) is None
    assert Path("effects").read_text() == "x\n"
    assert len(server.requests) == 2


@needs_tmux
async def test_the_question_of_a_child_agent_waits_too(tmp_path: Path):
    replies = [
        FakeReply(calls=(FakeCall("task", {"description": "write", "prompt": "Write it."}),)),
        FakeReply(calls=(FakeCall("write", {"file_path": "a.txt", "content": "one\n"}),)),
        FakeReply(text="The child wrote it."),
        FakeReply(text="All is done."),
    ]
    async with ProviderServer(replies) as server:
        session_dir = await begin(server, "let it be written")
        await ends(session_dir)
        assert "waits for you: [write: a.txt]" in await ps(session_dir)
        with terminal_at(server, tmp_path) as terminal:
            await terminal.run("attach", session_dir.name)
            await terminal.answer("y", "Enter")
            await terminal.sees("All is done.")
    assert Path("a.txt").read_text() == "one\n"
    assert len(server.requests) == 4
    assert server.violations == []


async def test_the_question_of_a_child_agent_is_answered_without_a_terminal():
    replies = [
        FakeReply(calls=(FakeCall("task", {"description": "write", "prompt": "Write it."}),)),
        FakeReply(calls=(FakeCall("write", {"file_path": "a.txt", "content": "one\n"}),)),
        FakeReply(text="The child wrote it."),
        FakeReply(text="All is done."),
    ]
    async with ProviderServer(replies) as server:
        session_dir = await begin(server, "let it be written")
        await ends(session_dir)
        ran = await run(server, "resume", session_dir.name, "--approve")
    assert (ran.code, ran.out) == (0, "All is done.\n"), ran.err
    assert Path("a.txt").read_text() == "one\n"
    assert len(server.requests) == 4


async def test_the_log_tells_what_the_engine_said_from_what_the_user_said():
    journal = Library().create(Path())
    journal.append(ItemAdded(to_user_item("tidy up")))
    journal.append(ItemAdded(NoticeItem("Git, now: branch main.", "git")))
    await journal.aclose()
    shown = await run(None, "logs", journal.session_id)
    assert shown.out == "> tidy up\n\n· Git, now: branch main.\n\n"


async def test_a_long_rate_limit_waits_for_its_time():
    faults = [ProviderFault("rate_limited", value="3600")]
    async with ProviderServer([FakeReply(text="Hello.")], faults=faults) as server:
        session_dir = await begin(server, "hello")
        await waits(session_dir)
        assert "  waits until " in await ps(session_dir)
        wait = find_wait(session_dir, exit_codes.SUSPENDED)
        assert wait is not None
        assert 3_000 < wait <= 3_600
        library = Library()
        summary = library.get_summary(session_dir)
        assert summary.suspended is not None
        entry = msgspec.structs.replace(summary.suspended, wake=WakeCondition("time", at=1.0))
        passed = msgspec.structs.replace(summary, suspended=entry)  # after a reboot
        assert describe_work(library, passed) == "interrupted"
        again = await run(server, "--bg", "--resume", session_dir.name)
        assert again.code == 0, again.err
        await until(lambda: read_state(session_dir).turn is None)
        await until(lambda: find_run(session_dir) is None)
        assert "  done  " in await ps(session_dir)
        assert find_wait(session_dir, exit_codes.SUCCESS) is None


@pytest.mark.parametrize("notifier", ["notify-send", "osascript"])
async def test_the_desktop_is_told_that_a_session_waits(notifier: str, tmp_path: Path):
    if notifier != "notify-send" and shutil.which("notify-send"):
        pytest.skip("notify-send is installed, and is used first")
    program = tmp_path / notifier
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/notified\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    async with ProviderServer(write_or_end) as server:
        session_dir = await begin(server, "write it", PATH=path)
        await until(lambda: read_words(tmp_path / "notified"))
    told = f"write it: needs your answer (treadle attach {session_dir.name})\n"
    assert (tmp_path / "notified").read_text().endswith(f" {told}")


@needs_tmux
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_the_worktree_of_a_detached_session_stays(tmp_path: Path):
    await make_repository()
    replies = [bash(f"mkfifo {tmp_path}/gate; cat {tmp_path}/gate"), FakeReply(text="Done.")]
    async with ProviderServer(replies) as server:
        with terminal_at(server, tmp_path) as terminal:
            words = ("--worktree", "fix", "tidy up", *FREELY)
            await terminal.run(*words)
            await until(lambda: (tmp_path / "gate").exists())
            await terminal.send("/detach")
            await terminal.sees("it goes to the background after this round")
            await asyncio.to_thread((tmp_path / "gate").write_text, "opened")
            await terminal.sees("ended with 0")
        [session_dir] = Library().list_session_dirs()
        await until(lambda: read_state(session_dir).turn is None)
        await until(lambda: find_run(session_dir) is None)
    assert Path(Library().get_summary(session_dir).folder).is_dir()
    assert read_state(session_dir).full_history[-1].text == "Done."


async def test_what_it_runs_with_holds_where_a_question_is_answered_without_a_terminal():
    """`treadle resume ID --approve`: the deny rule of `--bg` is there, too."""

    def reply(request: ReceivedRequest) -> FakeReply:
        if request.body.decode().count('"tool_result"') == 1:
            return bash("touch secret")
        return write_or_end(request)

    async with ProviderServer(reply) as server:
        session_dir = await begin(server, "write it", "--deny", "Bash(touch:*)")
        await waits(session_dir)
        ran = await run(server, "resume", session_dir.name, "--approve", "--allow", "Bash(*)")
    assert ran.code == 0, ran.err
    assert Path("a.txt").exists()
    assert not Path("secret").exists()


async def test_a_limit_from_a_forecast_holds_for_piped_tasks_and_in_the_background():
    async with ProviderServer(lambda _: FakeReply(text="Hello.")) as server:
        for _ in range(8):
            await run(server, "-p", "say hello", "--quiet")
        piped = await run(server, "-p", "--max-cost", "auto", said=b"say hello")
        moved = await run(server, "--bg", "say hello", "--max-cost", "auto")
        session_dir = Library().find(moved.out.strip())
        await ends(session_dir)
    for ran in (piped, moved):
        assert "forecast: about $" in ran.err
        assert "; at most $0.10" in ran.err
    choices = read_choices(session_dir)
    assert choices is not None
    assert choices.flags["max_cost"] == "0.1"
