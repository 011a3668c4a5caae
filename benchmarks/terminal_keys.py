"""How long a key takes to the screen, in a real terminal (a pty), in the states that are hard.

    python benchmarks/terminal_keys.py [--keys 30] [--states empty,queue] [--screen inline]

    empty     nothing is there yet                 paste   10 MB were pasted into the prompt
    queue     200 messages are queued              flood   a command writes without end
    vim       vim keys, in insert mode             files   a folder of 60,000 files
    mention   there, after an `@`, when its list is drawn, by turns with a plain letter
    at_once   the same, as soon as the list appears

A letter is written to the terminal, and the time is taken until the program has drawn it. Printed:
median and worst in ms; 50 ms are wanted for the median, on an idle machine. Limits are ratios with
an interval: `mention` and `at_once` to the plain letter before, 1.3 at most; the others to a letter
in `empty`, which is measured in the same run, 2. Printed too: the CPU time of the thread that draws
(Linux), which other programs change less.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import treadle
from benchmarks.measure import Figures, Verdict, find_ratio, parse_options, show_figures

TREADLE = ("-I", str(Path(treadle.__file__).parent / "__main__.py"))
PATIENCE = 120.0  # seconds
STATES = ("empty", "queue", "paste", "flood", "vim", "files", "mention", "at_once")
FILES = 60_000
MOST_OF_PLAIN, MOST_OF_EMPTY = 1.3, 2.0
LETTERS = "qwertyuiopasdfghjklzxcvbnm"


class PtyProgram:
    """The program in a pty of its own."""

    def __init__(self, url: str, home: Path, *flags: str, program: Sequence[str] = TREADLE) -> None:
        self._fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        folder = home / "project"
        folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *program, *flags],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=folder,
            start_new_session=True,
            env={
                **os.environ,
                "HOME": str(home),
                "TERM": "xterm-256color",
                "ANTHROPIC_API_KEY": "k",
                "ANTHROPIC_BASE_URL": url,
            },
        )
        os.close(other)

    def write(self, data: bytes) -> None:
        """Write all; what the program writes meanwhile is lost only during a long text."""
        while data:
            data = data[os.write(self._fd, data[:4096]) :]
            if data:
                self.read(0)

    def read(self, seconds: float) -> bytes:
        """What the program has written, waiting for the first byte."""
        out = b""
        while select.select([self._fd], [], [], 0 if out else seconds)[0]:
            out += os.read(self._fd, 1 << 16)
        return out

    def wait_for(self, text: bytes) -> float:
        """Seconds until the program writes a text."""
        began, seen = time.monotonic(), b""
        while text not in seen:
            seen = seen[-1000:] + self.read(1)
            if time.monotonic() - began > PATIENCE:
                raise TimeoutError(f"{text!r} does not come: {seen[-500:]!r}")
        return time.monotonic() - began

    def settle(self) -> None:
        while self.read(0.5):
            pass

    def read_cpu(self) -> float:
        """Milliseconds that the main thread has computed; 0 where the system does not tell."""
        try:
            text = Path(f"/proc/{self.process.pid}/schedstat").read_text()
        except OSError:
            return 0.0
        return int(text.split()[0]) / 1e6

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


class KeyTime(NamedTuple):
    """In milliseconds: until the letter was on the screen, and the CPU time of it."""

    wall: float
    cpu: float


def measure_key(program: PtyProgram, number: int) -> KeyTime:
    """The times of a letter, which is deleted again."""
    letter = LETTERS[number % len(LETTERS)].upper().encode()
    program.read(0.05)
    cpu, began = program.read_cpu(), time.monotonic()
    program.write(letter)
    program.wait_for(letter)
    took = KeyTime((time.monotonic() - began) * 1_000, program.read_cpu() - cpu)
    program.write(b"\x7f")
    program.read(0.05)
    return took


def measure_mentions(
    program: PtyProgram, keys: int, *, waits: bool
) -> tuple[list[KeyTime], list[KeyTime]]:
    """The times after an `@`, and of the plain letters before them."""
    plain, mentions = [], []
    for number in range(keys):
        plain.append(measure_key(program, number))
        program.write(b"@")
        program.wait_for(b"part_0")
        if waits:
            program.settle()
        mentions.append(measure_key(program, number))
        program.write(b"\x7f")
        program.settle()
    return mentions, plain


def make_files(folder: Path) -> None:
    for number in range(FILES):
        path = folder / f"part_{number // 1_000}" / f"a_{number}_source.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def run_state(
    state: str, url: str, home: Path, keys: int, screen: str
) -> tuple[list[KeyTime], list[KeyTime] | None]:
    """The times, and those to compare them with."""
    flags = ["--model=claude-sonnet-5-5", "--sandbox=off", "--theme=dark"]
    if state in ("files", "mention", "at_once"):
        make_files(home / "project")
    config = home / ".treadle/config.toml"
    config.parent.mkdir(exist_ok=True)
    vim_keys = "vim_keys = true\n" if state == "vim" else ""
    config.write_text(f'screen = "{screen}"\n{vim_keys}')
    program = PtyProgram(url, home, *flags, "--permission-mode=auto", "--allow=Bash")
    try:
        program.wait_for(b"Do you trust")
        time.sleep(2)  # until it takes keys
        program.write(b"y")
        program.write(b"\r")
        program.wait_for(b"/help")
        if state in ("files", "mention", "at_once"):
            program.settle()  # the files are listed
        if state in ("mention", "at_once"):
            return measure_mentions(program, keys, waits=state == "mention")
        if state in ("queue", "flood"):
            program.write(b"go\r")
            program.wait_for(b"running bash")
        if state == "queue":
            for number in range(200):  # each by itself: together they would be a paste
                program.write(f"message {number}".encode())
                program.wait_for(str(number)[-1].encode())  # a key is drawn by itself
                program.write(b"\r")
                program.wait_for("↳".encode())
        if state == "paste":
            program.write(b"\x1b[200~" + b"word " * 2_000_000 + b"\x1b[201~")
            program.wait_for(b"[paste")
        return [measure_key(program, number) for number in range(keys)], None
    finally:
        program.close()


def check_state(
    state: str, times: list[KeyTime], plain: list[KeyTime], most: float, verdict: Verdict
) -> None:
    walls = [one.wall for one in times]
    median, longest = statistics.median(walls), max(walls)
    cpu, plain_cpu = (statistics.median(one.cpu for one in some) for some in (times, plain))
    print(f"{state:7} shown after {median:6.1f} ms (median), at most {longest:6.1f} ms; "
          f"CPU {cpu:.1f} and {plain_cpu:.1f} ms")  # fmt: skip
    if times is plain:
        return
    pairs = [(one.wall, other.wall) for one, other in zip(times, plain, strict=True)]
    verdict.check(f"  {state}, of a plain letter", find_ratio(pairs), most)


async def run(states: list[str], keys: int, screen: str, *, as_json: bool) -> int:
    from treadle.testing.provider.script import FakeCall, FakeReply
    from treadle.testing.provider.server import ProviderServer

    verdict, figures, empty = Verdict(), Figures(), list[KeyTime]()
    if "empty" not in states:
        states = ["empty", *states]
    for state in sorted(states, key=STATES.index):
        with tempfile.TemporaryDirectory() as name:
            command = "yes" if state == "flood" else "sleep 600"
            script = [FakeReply("I run it.", calls=(FakeCall("bash", {"command": command}),))]
            async with ProviderServer(script, strict=False) as server:
                taken = await asyncio.to_thread(
                    run_state, state, server.url, Path(name), keys, screen
                )
        times, plain = taken
        empty = empty or times
        figures[f"a key, {state}"] = (statistics.median(one.wall for one in times), "ms")
        figures[f"a key, {state}, CPU"] = (statistics.median(one.cpu for one in times), "ms")
        if not as_json:
            most = MOST_OF_EMPTY if plain is None else MOST_OF_PLAIN
            check_state(state, times, plain or empty, most, verdict)
    if as_json:
        show_figures(figures, as_json=True)
        return 0
    return verdict.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, default=30)
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--screen", choices=("full", "inline"), default="full")
    options = parse_options(parser)
    states = options.states.split(",")
    return asyncio.run(run(states, options.keys, options.screen, as_json=options.json))


if __name__ == "__main__":
    sys.exit(main())
