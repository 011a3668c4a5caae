"""`treadle send` between two homes, with an ssh that runs here; killed at each step."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apps.program import Ran, finish, run, start
from tests.patience import until
from treadle.apps.cli.background_sessions import send
from treadle.apps.console import exit_codes
from treadle.core.errors import SessionBusy, StoreError
from treadle.sessions import Library
from treadle.sessions.detached import transfer
from treadle.sessions.history import read_state
from treadle.sessions.log.lock import SENDING_FILE
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
STEPS = ("start", "files", "ready", "commit", "done", "end")
MARK = len(transfer.START_MARK)
TARGETS = ("sender", "receiver", "both")

# Relays between the sender and the receiver of the other home; at a step it kills one of them.
SSH = """#!{python}
import os, signal, subprocess, sys, threading
assert sys.argv[1:3] == ["box", "treadle"], sys.argv
env = dict(os.environ, HOME={home!r}, XDG_DATA_HOME={home!r} + "/data", XDG_STATE_HOME={home!r})
step, target = os.environ.get("KILL", " ").split(" ")
other = subprocess.Popen(
    [sys.executable, "-I", {program!r}, *sys.argv[3:]],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0,
)

def reach(name):
    if name != step:
        return
    here = os.getppid()
    if target != "sender":
        other.kill()
        other.wait()
    if target != "receiver":
        os.kill(here, signal.SIGKILL)
    if target == "sender":
        other.stdin.close()
        other.wait()
    os._exit(255)

replies = 0
is_sent = "--receive" in sys.argv  # from here to there

def relay(source, target, is_reply):
    global replies
    while piece := os.read(source, 65536):
        replies += is_reply
        if is_reply:
            reach("ready" if replies == 1 else "done")
        elif replies == 1:
            reach("commit")
        os.write(target, piece)
        if is_reply and replies == 2:
            reach("end")
        elif replies == 0:
            reach("files")

def answer():
    relay(other.stdout.fileno(), 1, is_sent)
    os._exit(other.wait())

reach("start")
os.write(1, os.environ.get("BANNER", "").encode() + other.stdout.read({mark}))
threading.Thread(target=answer).start()
relay(0, other.stdin.fileno(), not is_sent)
other.stdin.close()
"""


class TwoHomes:
    """This one, and that of the machine `box`."""

    def __init__(self, place: Path) -> None:
        import treadle

        self.home = place / "box"
        self.home.mkdir()
        program = str(Path(treadle.__file__).parent / "__main__.py")
        script = SSH.format(python=sys.executable, home=str(self.home), program=program, mark=MARK)
        (place / "ssh").write_text(script)
        (place / "ssh").chmod(0o755)
        self.path: dict[str, Any] = {"PATH": f"{place}:{os.environ['PATH']}"}
        self.there: dict[str, Any] = {
            "HOME": str(self.home),
            "XDG_DATA_HOME": f"{self.home}/data",
            "XDG_STATE_HOME": str(self.home),
        }
        self.libraries = (Library(), Library(self.home / "data/treadle/sessions"))

    async def send(self, *words: str, kill: str = " ", banner: str = "") -> Ran:
        return await run(None, "send", *words, KILL=kill, BANNER=banner, **self.path)

    def list_owners(self) -> list[int]:
        """Where there is a session that can be opened: 0 here, 1 there."""
        return [
            number
            for number, library in enumerate(self.libraries)
            for one in library.list_session_dirs()
            if not (one / SENDING_FILE).exists()
        ]


@pytest.fixture
def homes(tmp_path: Path) -> TwoHomes:
    return TwoHomes(tmp_path)


async def make_session() -> str:
    """A session whose turn wrote a file."""
    call = FakeCall("write", {"file_path": "a.txt", "content": "one\n"})
    async with ProviderServer([FakeReply(calls=(call,)), FakeReply("It is written.")]) as server:
        ran = await run(server, "-p", "write it", *FREELY)
    assert ran.code == 0, ran.err
    [session_dir] = Library().list_session_dirs()
    return session_dir.name


async def test_a_session_goes_to_another_home_with_its_checkpoints_and_comes_back(homes: TwoHomes):
    session = await make_session()
    before = read_state(Library().find(session))
    sent = await homes.send(session, "box")
    assert sent.code == 0, sent.err
    assert sent.out == f"{session} is on box: ssh -t box treadle attach {session}\n"
    assert homes.list_owners() == [1]
    assert read_state(homes.libraries[1].find(session)) == before
    undone = await run(None, "undo", **homes.there)
    assert undone.code == 0, undone.err
    assert not Path("a.txt").exists()
    async with ProviderServer([FakeReply("Here, too.")]) as server:
        more = await run(server, "-p", "--resume", session, "And?", *FREELY, **homes.there)
    assert (more.code, more.out) == (0, "Here, too.\n")
    back = await homes.send("--from", "box", session)
    assert (back.code, back.out) == (0, f"{session} is here: treadle attach {session}\n"), back.err
    assert homes.list_owners() == [0]
    after = read_state(Library().find(session))
    assert after.turns == before.turns + 1
    assert after.usage.cost is not None
    assert before.usage.cost is not None
    assert after.usage.cost > before.usage.cost


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("step", STEPS)
async def test_whoever_is_killed_at_any_step_one_side_has_the_session(
    homes: TwoHomes, step: str, target: str
):
    session = await make_session()
    before = read_state(Library().find(session))
    killed = await homes.send(session, "box", kill=f"{step} {target}")
    assert killed.code != 0 or step == "end"
    assert len(homes.list_owners()) <= 1
    if homes.list_owners() != [0]:
        refused = await run(None, "-p", "--resume", session, "Go on.")
        is_gone = step in ("done", "end") and refused.code == exit_codes.SESSION_NOT_FOUND
        assert is_gone or refused.code == exit_codes.SESSION_BUSY, refused.err
    again = await homes.send(session, "box")
    assert again.code in (0, exit_codes.SESSION_NOT_FOUND), again.err
    assert homes.list_owners() == [1]
    assert read_state(homes.libraries[1].find(session)) == before


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_whoever_is_killed_on_the_way_back_one_side_has_the_session(
    homes: TwoHomes, step: str
):
    session = await make_session()
    assert (await homes.send(session, "box")).code == 0
    await homes.send("--from", "box", session, kill=f"{step} both")
    assert len(homes.list_owners()) <= 1
    again = await homes.send("--from", "box", session)
    assert homes.list_owners() == [0], again.err


HELD = FakeReply(calls=(FakeCall("bash", {"command": "touch began; cat pause"}),))


async def start_held_run(server: ProviderServer, *words: str) -> str:
    """A session in the background, whose call ends when something opens the pipe."""
    begun = await run(server, "--bg", *words, *FREELY)
    await until(lambda: Path("began").exists())
    return begun.out.strip()


@pytest.mark.parametrize("banner", ["Welcome!\n{\n", "no end of line"])
async def test_what_a_login_shell_prints_is_skipped(homes: TwoHomes, banner: str):
    session = await make_session()
    sent = await homes.send(session, "box", banner=banner)
    assert (sent.code, homes.list_owners()) == (0, [1]), sent
    back = await homes.send("--from", "box", session, banner=banner)
    assert (back.code, homes.list_owners()) == (0, [0]), back


async def test_a_machine_that_does_not_answer_stops_no_run(tmp_path: Path):
    (tmp_path / "ssh").write_text("#!/bin/sh\necho This account is closed.\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    path: dict[str, Any] = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    os.mkfifo("pause")
    async with ProviderServer([HELD, FakeReply("It went on.")]) as server:
        session = await start_held_run(server, "work")
        sent = await run(server, "send", session, "box", **path)
        fetched = await run(server, "send", "--from", "box", session, **path)
        os.close(os.open("pause", os.O_WRONLY))
        followed = await run(server, "logs", "-f", session)
    for ran in (sent, fetched):
        assert ran.code == exit_codes.ERROR, ran
        assert "box does not answer" in ran.err
        assert ran.err.endswith("Nothing was changed. It said: This account is closed.\n")
    assert "It went on." in followed.out, followed


async def test_a_run_that_was_stopped_for_nothing_is_named(homes: TwoHomes):
    session = await make_session()
    there = homes.libraries[1].root / Library().find(session).parent.name / session
    there.mkdir(parents=True)
    os.mkfifo("pause")
    async with ProviderServer([HELD, FakeReply("It went on.")]) as server:
        await start_held_run(server, "--resume", session, "Go on.")
        process = await start(server, "send", session, "box", KILL=" ", **homes.path)
        assert process.stderr is not None
        assert b"it is sent after this round" in await process.stderr.readline()
        os.close(os.open("pause", os.O_WRONLY))
        refused = await finish(process)
    assert refused.code == exit_codes.ERROR, refused
    assert f"session {session} is there already" in refused.err
    assert f"its run was stopped: `treadle attach {session}` there continues it" in refused.err


async def test_who_does_not_wait_for_the_round_lets_the_session_work_on(homes: TwoHomes):
    session = await make_session()
    os.mkfifo("pause")
    async with ProviderServer([HELD, FakeReply("It went on.")]) as server:
        await start_held_run(server, "--resume", session, "Go on.")
        process = await start(server, "send", session, "box", KILL=" ", **homes.path)
        assert process.stderr is not None
        assert b"it is sent after this round" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert process.returncode == exit_codes.ABORTED
        os.close(os.open("pause", os.O_WRONLY))
        followed = await run(None, "logs", "-f", session)
    assert followed.out.endswith("It went on.\n\n"), followed
    assert homes.list_owners() == [0]


async def test_a_forgotten_id_is_a_wrong_command_line():
    ran = await run(None, "send", "--from", "box")
    assert (ran.code, ran.err.startswith("usage: treadle send ID HOST")) == (2, True), ran


async def test_what_cannot_be_sent_stays_and_says_why(homes: TwoHomes):
    session = await make_session()
    folder = Path.cwd()
    there = homes.libraries[1].root / Library().find(session).parent.name / session
    there.mkdir(parents=True)
    refused = await homes.send(session, "box")
    assert refused.code == 1
    assert f"session {session} is there already" in refused.err
    there.rmdir()
    elsewhere = folder.rename(f"{folder}-moved")
    os.chdir(elsewhere)
    refused = await homes.send(session, "box")
    elsewhere.rename(folder)
    os.chdir(folder)
    assert f"there is no folder {folder}" in refused.err
    assert homes.list_owners() == [0]
    assert (await homes.send(session, "-oProxyCommand=touch x")).code == exit_codes.USAGE_ERROR
    assert (await homes.send("--from", "box", "x;touch y")).code == exit_codes.USAGE_ERROR
    unknown = await homes.send("--from", "box", "261119-aaaaaa")
    assert (unknown.code, "box did not send the session" in unknown.err) == (1, True), unknown


async def test_a_receiver_that_ended_after_its_decision_finishes_at_the_next_attempt(
    homes: TwoHomes, monkeypatch: pytest.MonkeyPatch
):
    """From the decision on it is the receiver's, although it is not in its place yet."""
    session = await make_session()
    here, there = homes.libraries

    def attempt() -> None:
        one, other = socket.socketpair()
        with one, other, one.makefile("rwb") as to, other.makefile("rwb") as source:
            serving = threading.Thread(target=send._receive, args=(there, source, source))
            serving.start()
            try:
                stream: Any = to
                transfer.Sender(here, stream, stream).send(here.find(session), "box", {})
            finally:
                one.shutdown(socket.SHUT_RDWR)
                serving.join()

    def fail(*arguments: object) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "finish", fail)
        with pytest.raises(StoreError, match="killed here"):
            attempt()
    assert homes.list_owners() == []
    with pytest.raises(SessionBusy, match="is being sent to another machine"):
        here.resume(session)
    attempt()
    assert homes.list_owners() == [1]


@pytest.mark.parametrize(
    ("began_with", "advice"),
    [("box", "`treadle send ID box` finishes that"), ("-", "--from … ID` there finishes that")],
)
async def test_only_the_machine_that_may_have_a_session_is_asked_for_it(
    began_with: str, advice: str
):
    """Another one knows nothing of it, and would say that it did not come."""
    session_dir = Library().find(await make_session())
    transfer.mark_sending(session_dir, began_with)
    asked = io.BytesIO()
    with pytest.raises(SessionBusy) as raised:
        transfer.Sender(Library(), asked, io.BytesIO()).send(session_dir, "other", {})
    assert advice.replace("ID", session_dir.name) in str(raised.value)
    assert not asked.getvalue()
    assert (session_dir / SENDING_FILE).exists()


@pytest.mark.parametrize(
    ("session", "name", "size", "problem"),
    [
        ("../../elsewhere", "session/journal.jsonl", 1, "is not a session ID"),
        ("261119-aaaaaa", "session/../../x", 1, "a file is not allowed"),
        ("261119-aaaaaa", "", 1, "a file is not allowed"),
        ("261119-aaaaaa", "session/x", -1, "a file is not allowed"),
        ("261119-aaaaaa", "session/\0", 1, "a file is not allowed"),
    ],
)
def test_a_sender_writes_nowhere_else(
    session: str, name: str, size: int, problem: str, tmp_path: Path
):
    library = Library(tmp_path / "sessions")
    package = transfer.Package(session, str(tmp_path), ((name, size),))
    request = transfer.TransferRequest("receive", "a1", package)
    back = io.BytesIO()
    source = io.BytesIO(msgspec.json.encode(request) + b"\nx")
    assert send._receive(library, source, back) == ""
    first = back.getvalue().splitlines()[0]
    reply = msgspec.json.decode(first, type=transfer.TransferReply)
    assert (reply.state, problem in reply.problem) == ("refused", True), reply
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and one.name == "x"]


def test_a_content_of_a_checkpoint_that_is_here_is_not_replaced(tmp_path: Path):
    library = Library(tmp_path / "sessions")
    own = library.checkpoint_dir(tmp_path) / "objects" / "ab" / "abcd"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine")
    package = transfer.Package("261119-aaaaaa", str(tmp_path), (("objects/abcd", 5),))
    requests = [
        msgspec.json.encode(transfer.TransferRequest("receive", "a1", package)) + b"\nother",
        msgspec.json.encode(transfer.TransferRequest("commit", "a1")) + b"\n",
    ]
    (tmp_path / "incoming" / "a1" / "session").mkdir(parents=True)
    send._receive(library, io.BytesIO(b"".join(requests)), io.BytesIO())
    assert own.read_bytes() == b"mine"
