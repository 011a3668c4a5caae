"""What every test stands on: a closed network, a home of its own, a way to be async, a leak check.

The time limit and warnings as errors are in pyproject.toml. Tests may reach loopback and unix
sockets; a process that a test starts is not fenced in, so it has to be one that stays at home.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import ipaddress
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import configuration, settings

from tests import postgres
from tests.bytecode import compile_once
from tests.law_check import LawCheck
from tests.postgres import postgres_server, postgres_url, shared_postgres
from tests.preloaded import connections, interpreters
from tests.replay_check import ReplayCheck
from treadle.lib import function_thread

__all__ = ["postgres_server", "postgres_url", "shared_postgres"]  # fixtures

T = TypeVar("T")

# ------------------------------------------------------------------ property tests

# Hypothesis keeps tables of characters in a folder: by default that would litter the checkout.
configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "treadle-hypothesis")
settings.register_profile("local", deadline=None, database=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# ------------------------------------------------------------------ network


class NetworkClosed(RuntimeError):
    """A test reached for the network. Not an OSError: code under test would take that in stride."""


def _is_near(host: object) -> bool:
    if host is None or host in ("", b"", "localhost", b"localhost"):
        return True
    text = host.decode(errors="replace") if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _close_network(patch: pytest.MonkeyPatch) -> None:
    def refuse(host: object) -> None:
        if not _is_near(host):
            raise NetworkClosed(f"tests may reach loopback only, not {host!r}")

    def guard_address(name: str) -> None:
        real = getattr(socket.socket, name)

        def guarded(self: socket.socket, *arguments: Any) -> Any:
            # connect(address), connect_ex(address), sendto(data, [flags,] address)
            if self.family in (socket.AF_INET, socket.AF_INET6):
                refuse(arguments[-1][0])
            return real(self, *arguments)

        patch.setattr(socket.socket, name, guarded)

    def guard_name(name: str) -> None:
        real = getattr(socket, name)

        def guarded(host: object, *arguments: Any, **options: Any) -> Any:
            refuse(host)
            return real(host, *arguments, **options)

        patch.setattr(socket, name, guarded)

    for name in ("connect", "connect_ex", "sendto"):
        guard_address(name)
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
        guard_name(name)


def give_children_default_signals() -> None:
    """Behind `nohup`, or in the background of a shell, these signals are ignored, and every child
    would ignore them too. With a handler that does nothing we do as before, and children do not."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    give_children_default_signals()
    patch = pytest.MonkeyPatch()
    _close_network(patch)
    config.add_cleanup(patch.undo)
    if config.getoption("numprocesses", default=None):  # this process will start workers
        compile_once(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests are a million objects, which no garbage collection has to walk."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-order", metavar="SEED", help="run the tests in an order of its own")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("random_order")
    return None if seed is None else f"random order: --random-order={seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first: one that starts last would leave the other workers without work."""
    if (seed := config.getoption("random_order")) is not None:
        shuffle(items, random.Random(seed))  # the same order in every worker
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if (group := choose_group(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker of xdist: a version of pytest that it does not fit drops the groups silently."""
    if session.config.getoption("loadgroup", default=False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") is not None:
                assert "@" in item.nodeid, f"xdist has no group for {item.nodeid}"


def shuffle(items: list[pytest.Item], dice: random.Random) -> None:
    """Files in any order, and the tests of each: what a file shares is made once all the same."""
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    files = list(by_file.values())
    dice.shuffle(files)
    for tests in files:
        dice.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


# Each worker that runs such a test makes these once more, which takes seconds.
SHARED_FIXTURES = {"shared_postgres": postgres.GROUP}


def choose_group(item: pytest.Item) -> str | None:
    """The tests of a group have one worker: those that use the same expensive fixture, and those
    that use one that their file makes once."""
    if item.get_closest_marker("xdist_group") is not None:
        return None
    info = getattr(item, "_fixtureinfo", None)
    fixtures = {} if info is None else info.name2fixturedefs
    for name, group in SHARED_FIXTURES.items():
        if name in fixtures:
            return group
    shares = any(found[-1].scope == "module" for found in fixtures.values())
    return item.path.stem if shares else None


# ------------------------------------------------------------------ home, cwd, environment

# Whatever could make a test depend on who runs it: keys, accounts, proxies, the git repository
# whose hook started the tests, settings of our own.
_FOREIGN_PREFIXES = (
    "ANTHROPIC_",
    "AWS_",
    "AZURE_",
    "CLAUDE_",
    "GEMINI_",
    "GIT_",
    "GOOGLE_",
    "OPENAI_",
    "OTEL_",
    "TREADLE_",
    "XDG_",
)
_FOREIGN_SUFFIXES = ("_API_KEY", "_TOKEN", "_PROXY")


def _is_foreign(name: str) -> bool:
    return name.upper().startswith(_FOREIGN_PREFIXES) or name.upper().endswith(_FOREIGN_SUFFIXES)


@contextmanager
def make_place(monkeypatch: pytest.MonkeyPatch, parent: str | None = None) -> Iterator[Path]:
    """An empty home and an empty current folder beside it, both in a new folder in `parent`."""
    place = Path(tempfile.mkdtemp(prefix="treadle-test-", dir=parent)).resolve()
    for name in filter(_is_foreign, list(os.environ)):
        monkeypatch.delenv(name)
    folders = {
        "HOME": "home",
        "XDG_CONFIG_HOME": "home/.config",
        "XDG_DATA_HOME": "home/.local/share",
        "XDG_STATE_HOME": "home/.local/state",
        "XDG_CACHE_HOME": "home/.cache",
        "XDG_RUNTIME_DIR": "run",
    }
    for name, folder in folders.items():
        monkeypatch.setenv(name, str(place / folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for folder in ("home", "run", "cwd"):
        (place / folder).mkdir(mode=0o700)
    monkeypatch.chdir(place / "cwd")
    yield place
    # Undone here and not by monkeypatch's own end, which comes later: a current folder that is
    # gone would be the next test's trouble.
    monkeypatch.undo()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home and a current folder for this test alone."""
    with make_place(monkeypatch) as place:
        yield place


# ------------------------------------------------------------------ the law of the state


@pytest.fixture(autouse=True)
def live_equals_log(monkeypatch: pytest.MonkeyPatch, own_place: Path) -> Iterator[None]:
    """Every session of every test: its live state is the fold of its log."""
    check = LawCheck()
    with monkeypatch.context() as patch:
        check.install(patch)
        yield
    assert check.problems == []


@pytest.fixture(autouse=True)
def sessions_replay_equal(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, own_place: Path
) -> Iterator[None]:
    """Every session of every test of a fault: a replay comes to the same transcript."""
    name, file = request.node.name, request.node.path
    if not name.startswith("test_fault_") and file.parent.name != "faults":
        yield
        return
    places = [own_place]
    if "tmp_path" in request.fixturenames:
        places.append(request.getfixturevalue("tmp_path"))
    check = ReplayCheck()
    with monkeypatch.context() as patch:
        check.install(patch)
        yield
    check.add_folders(*places)
    assert asyncio.run(check.find_problems()) == []


# ------------------------------------------------------------------ async tests


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_…`, also under hypothesis' @given, each in a loop of its own."""
    leaks = pyfuncitem.funcargs.get("no_leaks")
    run: Callable[[Coroutine[Any, Any, Any]], Any] = (
        leaks.run if isinstance(leaks, NoLeaks) else asyncio.run
    )
    test = pyfuncitem.obj
    if (handle := getattr(test, "hypothesis", None)) is not None:
        if inspect.iscoroutinefunction(inner := handle.inner_test):
            handle.inner_test = lambda *args, **kwargs: run(inner(*args, **kwargs))
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


# ------------------------------------------------------------------ leaks


def pytest_runtest_teardown() -> None:
    """What a failed test left open is its own error: the traceback would keep it until the next
    test, which would then fail."""
    if hasattr(sys, "last_traceback"):
        for name in {"last_exc", "last_traceback", "last_type", "last_value"} & vars(sys).keys():
            delattr(sys, name)
        gc.collect()


class NoLeaks:
    """What this process holds now; `check()` fails if it holds more than at the start."""

    # How long the end of threads and children may take to be seen; a leak waits this long in vain.
    patience = 20.0

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()  # a million objects of earlier tests would be walked before each test
        self._before = self._held()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """asyncio.run that also fails for tasks left behind, which asyncio.run would cancel."""
        return asyncio.run(self._watching_tasks(work))

    async def _watching_tasks(self, work: Awaitable[T]) -> T:
        before = asyncio.all_tasks()
        result = await work
        for _ in range(10):  # a cancelled task needs a few rounds of the loop to be done
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - before
        assert not left, f"tasks left behind: {sorted(map(repr, left))}"
        return result

    def check(self) -> None:
        deadline = time.monotonic() + self.patience
        while left := self._left():
            assert time.monotonic() < deadline, f"left behind: {left}"
            gc.collect()
            time.sleep(0.01)

    def _left(self) -> list[str]:
        return sorted(self._held() - self._before)

    @staticmethod
    def _held() -> set[str]:
        threads = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate()}
        return threads | _descriptors() | _children()


def _descriptors() -> set[str]:
    held = set()
    kept = {str(connection.fileno()) for connection in connections.values()}
    for link in Path("/proc/self/fd").iterdir():
        if link.name in kept:
            continue
        try:
            held.add(f"descriptor {link.name} -> {link.readlink()}")
        except FileNotFoundError:  # the one that listed the folder
            continue
    return held


def _children() -> set[str]:
    held = set()
    kept = {str(process.pid) for process in interpreters}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name in kept:
            continue
        try:
            text = (process / "stat").read_text()
        except OSError:  # it ended while we looked
            continue
        name, _, rest = text.rpartition(")")
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid():
            held.add(f"process {name}) {'unreaped' if state == 'Z' else 'running'}")
    return held


@pytest.fixture
def no_leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[NoLeaks]:
    """Fail the test if it leaves tasks, threads, child processes or descriptors behind.

    Tasks are seen in `async def` tests, and in others through `no_leaks.run(...)`.
    """
    monkeypatch.setattr(function_thread, "IDLE_SECONDS", 0.01)
    leaks = NoLeaks()
    yield leaks
    leaks.check()
