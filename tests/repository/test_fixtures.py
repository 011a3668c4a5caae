"""The fixtures and limits of conftest.py work."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import NetworkClosed, NoLeaks

FAR = "192.0.2.1"  # reserved for documentation: no host has it


def test_in_the_background_of_a_shell_children_of_tests_still_get_signals():
    child = "import signal; print([signal.getsignal(n) == signal.SIG_IGN for n in (1, 2, 3)])"
    code = (
        "import subprocess, sys; from tests.conftest import give_children_default_signals as give; "
        f"run = lambda: subprocess.run([sys.executable, '-c', {child!r}]); run(); give(); run()"
    )
    ran = subprocess.run(
        ["sh", "-c", """trap '' HUP INT QUIT; exec "$@" """, "sh", sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["[True, True, True]", "[False, False, False]"]


def test_a_warning_is_an_error():
    with pytest.raises(DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_connecting_to_a_far_host_is_refused_at_once():
    with socket.socket() as sock, pytest.raises(NetworkClosed, match=FAR):
        sock.connect((FAR, 80))


def test_a_far_name_is_not_even_looked_up():
    with pytest.raises(NetworkClosed, match=r"example\.com"):
        socket.getaddrinfo("example.com", 443)


def test_a_datagram_to_a_far_host_is_refused():
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(NetworkClosed):
        sock.sendto(b"x", (FAR, 53))


async def test_asyncio_reaches_loopback_and_no_further():
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    with pytest.raises(NetworkClosed):
        await asyncio.open_connection(FAR, 80)
    with pytest.raises(NetworkClosed):
        await asyncio.open_connection("example.com", 80)


def test_unix_sockets_are_open():
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x")
        assert right.recv(1) == b"x"


def test_home_and_current_folder_are_empty_and_the_test_s_own(own_place: Path):
    assert Path.home() == own_place / "home"
    assert list(Path.home().iterdir()) == []
    assert Path.cwd() == own_place / "cwd"
    assert list(Path.cwd().iterdir()) == []
    assert os.environ["XDG_CONFIG_HOME"].startswith(str(own_place))


def test_no_key_or_setting_of_the_person_who_runs_the_tests_is_seen():
    suspects = [name for name in os.environ if name.endswith("_API_KEY") or "TREADLE" in name]
    assert suspects == []


@settings(max_examples=5)
@given(st.integers())
async def test_async_tests_may_be_property_tests(number: int):
    await asyncio.sleep(0)
    assert isinstance(number, int)


def test_property_tests_leave_no_folder_behind():
    assert not Path(".hypothesis").exists()
    assert settings().database is None
    assert settings().deadline is None


def test_a_task_left_behind_is_noticed():
    async def leave_one() -> None:
        leave_one.task = asyncio.create_task(asyncio.Event().wait())  # type: ignore[attr-defined]

    with pytest.raises(AssertionError, match="tasks left behind"):
        NoLeaks().run(leave_one())


def test_an_open_descriptor_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NoLeaks, "patience", 0.0)
    leaks = NoLeaks()
    with socket.socket(), pytest.raises(AssertionError, match="descriptor"):
        leaks.check()
    leaks.check()


def test_a_running_and_an_unreaped_child_are_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NoLeaks, "patience", 0.0)
    leaks = NoLeaks()
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        with pytest.raises(AssertionError, match="running"):
            leaks.check()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(AssertionError, match="unreaped"):
            leaks.check()
    leaks.check()


def test_a_thread_left_behind_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NoLeaks, "patience", 0.0)
    leaks, done = NoLeaks(), threading.Event()
    thread = threading.Thread(target=done.wait, name="leftover")
    thread.start()
    with pytest.raises(AssertionError, match="leftover"):
        leaks.check()
    done.set()
    thread.join()
    leaks.check()


async def test_a_tidy_test_passes_the_leak_check(no_leaks: NoLeaks):
    command = [sys.executable, "-c", ""]
    child = await asyncio.create_subprocess_exec(*command)
    assert await child.wait() == 0
    await asyncio.to_thread(len, "work")
