"""Records the session that README.md shows: docs/images/session.svg.

    python scripts/recording.py

The real program runs in a real terminal (tmux), in a folder that is made for it, against a provider
on loopback that replies by a script. Keys are typed as a person would. tests/ has the terminal.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.terminal_svg import Frame, draw_animation  # noqa: E402 - the root is needed first
from tests.apps.tui.tmux import PROGRAM, Terminal  # noqa: E402 - the same
from treadle.testing import FakeCall, FakeReply, ProviderServer  # noqa: E402 - the same

FILE = ROOT / "docs/images/session.svg"
SIZE = (92, 24)
PROMPT = "a discount above the sum gives a negative total: fix it"
FILES = {
    "cart.py": "def total(prices, discount=0):\n    return sum(prices) - discount\n",
    "test_cart.py": """\
import unittest

from cart import total


class TotalTest(unittest.TestCase):
    def test_it_is_never_negative(self):
        self.assertEqual(total([5, 3], discount=10), 0)
""",
}
REPLIES = [
    FakeReply(
        "I read the code and its test first.",
        calls=(
            FakeCall("read", {"file_path": "cart.py"}),
            FakeCall("read", {"file_path": "test_cart.py"}),
        ),
    ),
    FakeReply(
        "The discount is subtracted without a lower limit.",
        calls=(
            FakeCall(
                "edit",
                {
                    "file_path": "cart.py",
                    "old_string": "return sum(prices) - discount",
                    "new_string": "return max(0, sum(prices) - discount)",
                },
            ),
        ),
    ),
    FakeReply(calls=(FakeCall("bash", {"command": "python3 -m unittest -q"}),)),
    FakeReply("Fixed: `total()` is never below zero. The test passes."),
]


class Recorder:
    """Types into a terminal, and keeps what it shows."""

    def __init__(self, terminal: Terminal, home: Path) -> None:
        self.terminal = terminal
        self.home = str(home)
        self.frames: list[Frame] = []

    def keep(self, seconds: float) -> None:
        screen = self.terminal.colored_screen().replace(self.home, "/home/me")
        if self.frames and self.frames[-1].screen == screen:
            last = self.frames.pop()
            seconds += last.seconds
        self.frames.append(Frame(screen, seconds))

    def type(self, text: str) -> None:
        """Type a text in small pieces, each of them seen."""
        for end in range(4, len(text) + 4, 4):
            self.terminal.type(text[end - 4 : end])
            self.terminal.sees(text[:end].rstrip()[-30:])
            self.keep(0.04)
        self.keep(0.3)

    def answer(self, text: str, key: str, seconds: float) -> None:
        """Answer a question about this text, when it takes keys."""
        self.terminal.sees(text)
        self.terminal.sees("▸ ")
        self.keep(seconds)
        self.terminal.type(key)
        self.terminal.press("Enter")
        self.terminal.sees("▸ ", gone=True)


def play(recorder: Recorder, environment: Mapping[str, str]) -> None:
    """The story: a change is approved, the program is killed at the next question, which waits when
    it is continued; its answer, and undo."""
    terminal = recorder.terminal
    terminal.run("--model=claude-sonnet-5-5", env=environment)
    recorder.answer("trust", "y", 0.1)
    recorder.frames.clear()
    terminal.sees("/help")
    recorder.keep(0.6)
    recorder.type(PROMPT)
    terminal.press("Enter")
    recorder.answer("max(0, sum(prices)", "y", 1.6)
    terminal.sees("unittest", "▸ ")
    recorder.keep(1.0)
    terminal.kill()
    terminal.sees("ended with")
    terminal.renew()
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    terminal.send(f'treadle() {{ env {given} {PROGRAM} "$@"; }}; PS1="$ "; clear')
    terminal.sees("clear", gone=True)
    recorder.type("# that was kill -9, in the middle of the turn")
    terminal.press("Enter")
    terminal.sees("the turn\n$")
    recorder.type("treadle --continue")
    terminal.press("Enter")
    terminal.sees("press enter to continue")
    recorder.keep(1.2)
    terminal.press("Enter")
    recorder.answer("unittest", "y", 1.8)
    terminal.sees("The test passes.")
    terminal.sees("esc interrupts", gone=True)
    recorder.keep(1.4)
    recorder.type("/undo")
    terminal.press("Enter")
    terminal.sees("restored cart.py")
    recorder.keep(2.4)


async def record(place: Path) -> list[Frame]:
    """Make the folder, start the provider and the terminal, and play the story."""
    home = place / "home"
    folder = home / "shop"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    async with ProviderServer(REPLIES, strict=False) as server:
        environment = {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
            "TREADLE_THEME": "dark",
            "COLORTERM": "truecolor",
            "PYTHONDONTWRITEBYTECODE": "1",  # the only file that changes is the agent's
        }
        before = Path.cwd()
        os.chdir(folder)
        terminal = Terminal(place, SIZE)
        try:
            recorder = Recorder(terminal, home)
            await asyncio.to_thread(play, recorder, environment)
        finally:
            terminal.close()
            os.chdir(before)
    return recorder.frames


def main() -> int:
    if shutil.which("tmux") is None:
        print("recording: tmux is not installed; scripts/debian-packages installs it")
        return 1
    with tempfile.TemporaryDirectory(prefix="treadle-recording-") as place:
        frames = asyncio.run(record(Path(place)))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(draw_animation(frames, *SIZE, title="A session of Treadle in the terminal"))
    print(f"{FILE.relative_to(ROOT)}: {len(frames)} screens, {FILE.stat().st_size // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
