"""A real terminal for the tests: tmux, to type keys and read the screen."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import until_in_thread
from treadle.testing.provider import ProviderServer

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")

PROGRAM = Path(__file__).parents[3] / "treadle"  # as people start it


def wait_for_draft(text: str) -> None:
    """Wait until what is typed is on the disk."""
    folder = Path.home() / ".treadle/drafts"
    until_in_thread(lambda: any(text in file.read_text() for file in folder.glob("*.json")))


class Terminal:
    """One tmux server of its own, with one window."""

    def __init__(self, place: Path, size: tuple[int, int] = (100, 30)) -> None:
        self._socket = str(place / "tmux.sock")
        width, height = size
        self._start(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height)),
            *("-c", str(Path.cwd()), "sh"),
            env={**os.environ, "TERM": "xterm-256color", "PS1": "$ "},
        )
        # One client for all commands: a process for each of them would take most of the time.
        self._client = subprocess.Popen(
            ["tmux", "-u", "-S", self._socket, "-C", "attach", "-f", "no-output,ignore-size"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._read_answer()  # to attaching
        self.set("status", "off")

    def run(self, *given: str, env: Mapping[str, str] | None = None) -> None:
        """Start the program. Its exit code is shown when it ends."""
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        words = ["env", *words, str(PROGRAM), *given]
        self._tmux("send-keys", "-l", "clear; " + shlex.join(words) + "; echo ended with $?")
        self.press("Enter")

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", "--", text)

    def send(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste, as a terminal does it: with marks around the text."""
        self._start("load-buffer", "-b", "pasted", "-", text=text)
        self._tmux("paste-buffer", "-d", "-p", "-b", "pasted")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def clear(self, text: str) -> None:
        """Clear the prompt, which shows a text. In a turn the key would end that instead."""
        until_in_thread(lambda: not self.title().endswith("working"), self.screen)
        self.press("C-c")
        self.sees(text, gone=True)

    def answer(self, *keys: str) -> None:
        """Press keys in a dialog, when it shows that it takes them."""
        self.sees("▸ ")
        self.press(*keys)

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p").rstrip("\n")

    def colored_screen(self) -> str:
        """The screen with its colours, as escape sequences."""
        return self._tmux("capture-pane", "-p", "-e").rstrip("\n")

    def history(self) -> str:
        """The screen with the scrollback above it."""
        return self._tmux("capture-pane", "-p", "-S", "-500").rstrip("\n")

    def title(self) -> str:
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def clipboard(self) -> str:
        """What the program copied (OSC 52)."""
        return self._tmux("show-buffer").removesuffix("\n")

    def record(self, file: Path) -> None:
        """Keep all that programs write into the terminal."""
        self._tmux("pipe-pane", "-O", f"cat >> {shlex.quote(str(file))}")

    def set(self, name: str, value: str) -> None:
        self._tmux("set-option", "-g", name, value)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def sees(self, *texts: str, gone: bool = False) -> str:
        """Wait until all texts are there, or with `gone` none of them is; the screen then. Gone is
        what several looks in a row do not find: a screen that is drawn again may be empty once."""
        screen, looks = "", 0

        def holds() -> bool:
            nonlocal screen, looks
            screen = self.screen()
            looks = looks + 1 if all((text in screen) is not gone for text in texts) else 0
            return looks == (5 if gone else 1)

        problem = "stays" if gone else "does not come"
        until_in_thread(holds, lambda: f"{' or '.join(map(repr, texts))} {problem}:\n{screen}")
        return screen

    def shows_title(self, title: str) -> None:
        until_in_thread(lambda: self.title() == title, self.title)

    def pid(self) -> int:
        """The program's process."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(children[-1])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid(), number)

    def renew(self) -> None:
        """Start another shell: a killed program leaves the terminal in raw mode."""
        self._tmux("respawn-pane", "-k", "-c", str(Path.cwd()), "sh")

    def close(self) -> None:
        self._start("kill-server")
        self._client.communicate()

    def _start(self, *words: str, text: str = "", env: Mapping[str, str] | None = None) -> None:
        command = ["tmux", "-S", self._socket, *words]
        subprocess.run(command, check=True, capture_output=True, text=True, input=text, env=env)

    def _tmux(self, *words: str) -> str:
        assert self._client.stdin is not None
        quoted = ("'" + word.replace("'", "'\\''") + "'" for word in words)
        self._client.stdin.write(" ".join(quoted) + "\n")
        self._client.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> str:
        """The lines between %begin and %end; others are no answer to a command."""
        assert self._client.stdout is not None
        lines: list[str] = []
        mark = ""
        for line in self._client.stdout:
            word, _, rest = line.partition(" ")
            if mark and rest == mark and word in ("%end", "%error"):
                assert word == "%end", lines
                break
            if mark:
                lines.append(line)
            elif word == "%begin":
                mark = rest
        return "".join(lines)


class AsyncTerminal:
    """A terminal whose waits let the server answer."""

    def __init__(self, server: ProviderServer, terminal: Terminal) -> None:
        self._terminal = terminal
        self._env = {"ANTHROPIC_API_KEY": "test", "ANTHROPIC_BASE_URL": server.url}

    async def run(self, *words: str) -> None:
        await asyncio.to_thread(self._terminal.run, *words, env=self._env)

    async def sees(self, *texts: str) -> str:
        return await asyncio.to_thread(self._terminal.sees, *texts)

    async def answer(self, *keys: str) -> None:
        await asyncio.to_thread(self._terminal.answer, *keys)

    async def send(self, text: str) -> None:
        await asyncio.to_thread(self._terminal.send, text)

    async def press(self, key: str) -> None:
        await asyncio.to_thread(self._terminal.press, key)


@contextmanager
def terminal_at(server: ProviderServer, place: Path) -> Iterator[AsyncTerminal]:
    terminal = Terminal(place)
    try:
        yield AsyncTerminal(server, terminal)
    finally:
        terminal.close()
