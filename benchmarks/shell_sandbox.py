"""Where the oracle's lines are run: a folder of stand-ins, strace, and bubblewrap where it works.

Knows nothing of what the lines mean. Many lines share one start of strace; which line a system call
belongs to is read off the tree of processes. What was tried counts as done: inside the sandbox most
of it cannot succeed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from benchmarks.shell_lines import STAND_INS

_REAL = ("bash", "env", "timeout", "nice", "nohup", "xargs", "sh", "cat")
_FAILING = ("nnn", "missing")
_CALLS = (
    "execve,execveat,open,openat,openat2,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,"
    "renameat2,truncate,symlink,symlinkat,link,linkat,clone,clone3,fork,vfork"
)
# A command that is not found becomes one that is, so that strace sees its words.
_NOT_FOUND = {"BASH_FUNC_command_not_found_handle%%": '() {  missing "$@"\n}'}

_RUNNER = r"""
import ctypes, json, os, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans of a line come back here
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
folder, bash, limit = sys.argv[1], sys.argv[2], float(sys.argv[3])
with open(folder + "/batch.json") as file:
    batch = json.load(file)
for number, line in enumerate(batch["lines"]):
    pid = os.fork()
    if not pid:
        os.setsid()
        os.chdir(f"{folder}/lines/{number}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.execve(bash, ["bash", "-c", line], batch["environment"])
    end = time.monotonic() + limit
    while True:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if done:
            continue
        left = end - time.monotonic()
        if left < -1:
            break
        if left <= 0:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            time.sleep(0.01)
            continue
        signal.sigtimedwait([signal.SIGCHLD], left)
"""


class Seen(msgspec.Struct):
    """What one line did: the argument lists of the programs, the files opened for writing."""

    ran: list[list[str]] = []
    written: set[str] = set()


class Ground:
    """A folder to run lines in. Close it when done."""

    def __init__(self, limit: float = 1.0) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="treadle-oracle-")).resolve()
        self.limit = limit
        self.bash = shutil.which("bash") or "/bin/bash"
        programs = self.folder / "bin"
        programs.mkdir()
        (self.folder / "tmp").mkdir()
        for name in (*STAND_INS, "missing"):
            stands_for = "false" if name in _FAILING else "true"
            (programs / name).symlink_to(shutil.which(stands_for) or f"/bin/{stands_for}")
        for name in _REAL:
            found = shutil.which(name)
            if found:
                (programs / name).symlink_to(found)
        self.environment = {
            "PATH": str(programs),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": "/nowhere",
            "LC_ALL": "C.UTF-8",
            **_NOT_FOUND,
        }

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self, number: int) -> str:
        """The folder in which a line of the batch is run."""
        return f"{self.folder}/lines/{number}"

    @cached_property
    def sandbox(self) -> list[str]:
        """The words that put a command into bubblewrap; none where it does not work."""
        program = shutil.which("bwrap")
        if program is None:
            return []
        words = [
            program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
            "--cap-drop", "ALL", "--die-with-parent", "--new-session",
            "--bind", str(self.folder), str(self.folder), "--",
        ]  # fmt: skip
        works = subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        return words if works else []

    def run(self, lines: Sequence[str]) -> list[Seen]:
        """Run the lines, each in a folder of its own, and say what each did."""
        log = self.folder / "log"
        shutil.rmtree(self.folder / "lines", ignore_errors=True)
        for number in range(len(lines)):
            Path(self.place(number)).mkdir(parents=True)
        batch = {"lines": lines, "environment": self.environment}
        (self.folder / "batch.json").write_text(json.dumps(batch))
        command = [
            *self.sandbox,
            "strace", "-f", "--seccomp-bpf", "-qq", "-xx", "-s", "65536", "-e", "signal=none",
            "-e", f"trace={_CALLS}", "-o", str(log),
            sys.executable, "-I", "-S", "-c", _RUNNER, str(self.folder), self.bash, str(self.limit),
        ]  # fmt: skip
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            check=True, timeout=60 + (self.limit + 2) * len(lines),
        )  # fmt: skip
        return self._read(log.read_text(errors="replace"), len(lines))

    def _read(self, log: str, count: int) -> list[Seen]:
        calls = list(_calls(log))
        runner = calls[0][0]
        parents = {
            int(answer): pid
            for pid, call, answer in calls
            if re.match(r"clone3?\(|v?fork\(", call) and answer.isdigit()
        }
        lines = [child for child, parent in parents.items() if parent == runner]
        if len(lines) != count:
            raise RuntimeError(f"{len(lines)} of {count} lines were run")
        seen = {pid: Seen() for pid in lines}
        started: set[int] = set()
        for pid, call, _ in calls:
            line = pid
            while line not in seen and line in parents:
                line = parents[line]
            if line not in seen:
                continue
            if line == pid and line not in started:
                if call.startswith("execve("):
                    started.add(line)  # the shell itself
                continue
            self._note(seen[line], call, self.place(lines.index(line)))
        return [seen[pid] for pid in lines]

    def _note(self, seen: Seen, call: str, work: str) -> None:
        strings = [_decode(s) for s in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', call)]
        if call.startswith("execve"):
            # The program by its path: what it is told to be called may be anything.
            seen.ran.append(
                strings[2:] if strings[1:2] == ["missing"] else strings[:1] + strings[2:]
            )
        elif strings and not re.match(r"open|clone|v?fork", call):
            seen.written.add(os.path.normpath(f"{work}/{strings[-1]}"))
        elif strings and re.search(r"O_(?:WRONLY|RDWR|CREAT|TRUNC)", call):
            path = os.path.normpath(os.path.join(work, strings[0]))  # noqa: PTH118 (text)
            if not path.startswith(("/dev/", "/proc/", str(self.folder / "tmp"))):
                seen.written.add(path)


def _calls(log: str) -> list[tuple[int, str, str]]:
    """Each call as (process, its text, its answer), with those that were interrupted made whole."""
    calls: list[tuple[int, str, str]] = []
    begun: dict[int, str] = {}
    for entry in log.splitlines():
        found = re.match(r"(\d+)\s+(.*)", entry)
        if found is None:
            continue
        pid, text = int(found.group(1)), found.group(2)
        if text.endswith("<unfinished ...>"):
            begun[pid] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<..."):
            text = begun.pop(pid, "") + text.partition("resumed>")[2]
        call, _, answer = text.rpartition(" = ")
        calls.append((pid, call, answer))
    # Cut off by the end: it was tried all the same.
    calls += [(pid, text, "") for pid, text in begun.items()]
    return calls


def _decode(text: str) -> str:
    return bytes.fromhex(text.replace("\\x", "")).decode("utf-8", "replace")
