"""./treadle in checkouts of its own: every way in which a first start can go, without a network.

The checkout is real (launcher, set-up, source), its lock files name nothing, and its installer is a
small script that a test can make wait or fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from treadle._version import __version__

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"treadle {__version__}\n"


class Checkout:
    """A checkout with spaces in its path and a fake uv that logs its calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        skip = shutil.ignore_patterns("__pycache__")
        for name in ("src", "scripts"):
            shutil.copytree(ROOT / name, root / name, ignore=skip)
        shutil.copy(ROOT / "treadle", root)
        for name in ("requirements.lock", "requirements-dev.lock", "scripts/weights.lock"):
            (root / name).write_text("")
        (root / ".tools" / "bin").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "installer.lock", root / ".tools")
        self.installer_does("true")

    def installer_does(self, command: str) -> None:
        uv = self.root / ".tools" / "bin" / "uv"
        uv.write_text(f'#!/bin/sh\necho "$@" >>"{self.root}/installs"\n{command}\n')
        uv.chmod(0o755)

    @property
    def installs(self) -> int:
        log = self.root / "installs"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def start(self, *arguments: str, program: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [program or self.root / "treadle", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, program: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*arguments, program=program)
        out, err = process.communicate()
        return process.returncode, out, err


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


def test_the_first_start_sets_up_and_says_so_and_the_second_is_silent(checkout: Checkout):
    code, out, err = checkout.run("--version")
    assert (code, out) == (0, VERSION)
    assert "setting up" in err
    assert "installing" in err
    assert checkout.run("--version") == (0, VERSION, "")
    assert checkout.installs == 1


def test_arguments_and_exit_code_pass_through(checkout: Checkout):
    code, out, err = checkout.run("help", "no-such;command")
    assert (code, out) == (2, "")
    assert "no-such;command" in err


def test_a_start_through_symlinks_from_another_folder(checkout: Checkout, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "one").symlink_to("../a checkout/treadle")
    (tmp_path / "bin" / "two").symlink_to(tmp_path / "bin" / "one")
    assert checkout.run("--version", program=tmp_path / "bin" / "two")[:2] == (0, VERSION)


def test_the_program_stays_in_the_user_s_folder_and_takes_no_module_from_it(checkout: Checkout):
    (checkout.root / "src/treadle/__main__.py").write_text("import os; print(os.getcwd())")
    Path("os.py").write_text("raise SystemExit('taken from the current folder')")
    assert checkout.run()[:2] == (0, f"{Path.cwd()}\n")


def test_a_moved_checkout_still_starts(checkout: Checkout, tmp_path: Path):
    checkout.run("--version")
    checkout.root.rename(tmp_path / "moved")
    checkout.root = tmp_path / "moved"
    assert checkout.run("--version") == (0, VERSION, "")


def test_a_changed_lock_brings_the_environment_up_to_date_in_place(checkout: Checkout):
    checkout.run("--version")
    (kept := checkout.root / ".venv" / "kept").touch()
    os.utime(checkout.root / "requirements.lock")
    code, _, err = checkout.run("--version")
    assert code == 0
    assert "setting up" in err
    assert checkout.installs == 2
    assert kept.exists()


@pytest.mark.parametrize("broken", ["bin/python", "ready"])
def test_a_broken_environment_is_made_anew(checkout: Checkout, broken: str):
    checkout.run("--version")
    (remains := checkout.root / ".venv" / "remains").touch()
    (checkout.root / ".venv" / broken).unlink()
    assert checkout.run("--version")[:2] == (0, VERSION)
    assert not remains.exists()


def test_an_interpreter_that_went_away_is_noticed(checkout: Checkout):
    checkout.run("--version")
    python = checkout.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    assert checkout.run("--version")[:2] == (0, VERSION)


def test_two_first_starts_at_once_set_up_once(checkout: Checkout):
    os.mkfifo(checkout.root / "go")
    checkout.installer_does(f'read -r _ <"{checkout.root}/go"')
    first = checkout.start("--version")
    # Opening the pipe waits until the installer of the first has begun: it holds the lock.
    with (checkout.root / "go").open("w") as go:
        second = checkout.start("--version")
        assert second.stderr is not None
        assert "waiting" in second.stderr.readline()
        go.write("go\n")
    assert first.communicate()[0] == VERSION
    assert second.communicate()[0] == VERSION
    assert checkout.installs == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_set_up_that_was_stopped_half_way_is_redone(checkout: Checkout, how: signal.Signals):
    os.mkfifo(checkout.root / "go")
    checkout.installer_does(f'read -r _ <"{checkout.root}/go"')
    process = checkout.start("--version")
    with (checkout.root / "go").open("w"):
        os.killpg(process.pid, how)
        out, err = process.communicate()
    assert process.returncode in (128 + how, -how)
    assert out == ""
    if how == signal.SIGINT:
        assert "Traceback" not in err
        assert "interrupted" in err
    checkout.installer_does("true")
    assert checkout.run("--version")[:2] == (0, VERSION)


def test_a_failing_install_says_why_and_what_to_do(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (checkout.root / "requirements.lock").write_text(
        f"no-such-package==1 --hash=sha256:{'0' * 64}\n"
    )
    checkout.installer_does("echo 'the mirror is down'; exit 1")
    code, out, err = checkout.run("--version")
    assert (code, out) == (1, "")
    assert "the mirror is down" in err
    assert "run this again" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("version", ["Python 3.9.2", None])
def test_a_missing_or_old_python_is_one_clear_sentence(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (tools / name).symlink_to(str(shutil.which(name)))
    if version:
        old = tools / "python3"
        old.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' || exit 1\n")
        old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    code, out, err = checkout.run("--version")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "3.11" in err
    assert (version or "none") in err


def test_saying_the_version_loads_no_more_than_the_interpreter():
    code = (
        "import sys; before = set(sys.modules); import treadle.__main__;"
        "print(*sorted(set(sys.modules) - before))"
    )
    environment = {"PYTHONPATH": str(ROOT / "src")}
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True
    )
    assert loaded.stdout.split() == [
        "__future__",
        "treadle",
        "treadle.__main__",
        "treadle._version",
        "treadle.apps",
        "treadle.apps.cli",
        "treadle.apps.cli.main",
        "treadle.lib",
        "treadle.lib.lazy_exports",
    ]
