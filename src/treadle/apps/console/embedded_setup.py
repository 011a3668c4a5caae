"""Embedded models that are missing on this machine: downloads them, with a progress bar.

    download_named()   the embedded model that the settings name, or the tiny one if no model at
                       all can run here
    offer_better()     at a terminal, once: asks whether to download the better one

Both run before the session is built. Used by the hosts; uses models/embedded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from treadle.apps.console.console import report_errors
from treadle.apps.settings.settings import Settings
from treadle.core.errors import TreadleError
from treadle.lib.text.text import format_bytes, format_duration

if TYPE_CHECKING:
    from treadle.models.embedded import DownloadProgress, Weights
    from treadle.models.registry.default_model import DefaultModel

CLEANUP_SECONDS = 1.5  # after SIGTERM
_TERMINATED = 128 + signal.SIGTERM


def is_maybe_needed(settings: Settings) -> bool:
    """Whether an embedded model may answer; without loading anything."""
    if settings.model:
        return "embedded" in settings.model

    from treadle.models.registry.default_model import find_keyed_default

    return find_keyed_default(os.environ) is None


async def download_named(settings: Settings) -> None:
    """Download what the first request needs, if it is an embedded model that is missing."""
    from treadle.models.embedded import find_weights, list_available_weights, locate_weights
    from treadle.models.embedded.weights import SMOLLM2, has_engine

    if not has_engine():
        return
    for name in settings.model.split(",") if settings.model else ():
        if (stripped := name.strip()).startswith("embedded/"):
            weights = find_weights(stripped)
            if locate_weights(weights) is None:
                await download_with_progress(weights)
    is_any = settings.model.strip() == "embedded" or not settings.model
    if is_any and not list_available_weights() and not await _has_other_model(settings):
        await download_with_progress(SMOLLM2)


async def _has_other_model(settings: Settings) -> bool:
    from treadle.models.registry.default_model import find_default_model

    return not settings.model and (await find_default_model()).is_available


async def download_with_progress(weights: Weights) -> None:
    from treadle.models.embedded import download_weights

    print(
        f"Downloading {weights.title}, {format_bytes(weights.size)}, {weights.license}. "
        "Ctrl-C stops; the next download resumes.",
        file=sys.stderr,
    )
    bar = ProgressBar(sys.stderr)
    try:
        with _cancel_on_sigterm():
            await download_weights(weights.name, bar.update)
    finally:
        bar.finish()


@contextlib.contextmanager
def _cancel_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the program as before, but what is half done is cleaned up first."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield  # the caller has a handler of its own
        return
    is_terminated = False

    def stop() -> None:
        nonlocal is_terminated
        is_terminated = True
        task.cancel()
        loop.call_later(CLEANUP_SECONDS, os._exit, _TERMINATED)

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if is_terminated:
            raise SystemExit(_TERMINATED) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def offer_better(ask: Callable[[str], str] = input) -> None:
    """Offer once to give a key, or to download the better embedded model; enter does neither.

    Not async: Ctrl-C at the question has to end the program.
    """
    from treadle.models.embedded import locate_weights
    from treadle.models.embedded.weights import QWEN_CODER, get_weights_dir, has_engine
    from treadle.models.registry.default_model import find_default_model

    asked = get_weights_dir() / "asked"
    if not has_engine() or locate_weights(QWEN_CODER) is not None or asked.exists():
        return
    default = asyncio.run(find_default_model())
    if default.is_available and not default.model.startswith("embedded"):
        return
    print(_describe_choice(default))
    size = QWEN_CODER.download_estimate
    question = f"k: give a key, d: download {QWEN_CODER.title} ({size}), Enter: neither: "
    try:
        answer = ask(question).strip().lower()
        while answer not in ("k", "d", "", "n", "no"):  # it is offered only once
            answer = ask("k, d or Enter: ").strip().lower()
    except EOFError:
        return
    asked.parent.mkdir(parents=True, exist_ok=True)
    asked.touch()
    if answer == "k":
        from treadle.apps.console.login import log_in

        report_errors("treadle login", lambda: log_in(ask=ask))
    elif answer == "d":
        try:
            asyncio.run(download_with_progress(QWEN_CODER))
        except TreadleError as error:
            print(f"treadle: {error}", file=sys.stderr)
    else:
        print(f"Later: treadle login, or treadle models get {QWEN_CODER.name}")


def _describe_choice(default: DefaultModel) -> str:
    here = "The tiny SmolLM2 135M is on this machine; it is often wrong."
    if not default.is_available:
        here = "There is no model on this machine yet."
    return (
        "No key of a provider is set, such as ANTHROPIC_API_KEY; no local server answers.\n"
        f"{here}\n"
        "You can give a key now (later: treadle login), or download a better model that needs none "
        "and works offline.\ntreadle tour shows what the program does, without a model."
    )


BAR_WIDTH = 30


class ProgressBar:
    """A bar that is redrawn on a terminal; elsewhere one line for each 10 %."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._stage = ("", "")
        self._start = (0.0, 0)  # time and bytes at the start of this stage
        self._last_line = ""
        self._tenth = -1

    def update(self, progress: DownloadProgress) -> None:
        """A resumed download starts above zero; another phase or source starts a new stage."""
        if progress.phase == "done":
            return
        if (progress.phase, progress.source) != self._stage:
            self._stage = (progress.phase, progress.source)
            self._start, self._tenth = (self._clock(), progress.done), -1
        if self._is_terminal:
            import shutil

            width = shutil.get_terminal_size().columns - 1
            self._redraw(self._format_line(progress, width)[:width])
        elif progress.total and (tenth := progress.done * 10 // progress.total) > self._tenth:
            self._tenth = tenth
            print(self._format_line(progress), file=self._out, flush=True)

    def finish(self) -> None:
        if self._is_terminal and self._last_line:
            print(file=self._out, flush=True)
            self._last_line = ""

    def _redraw(self, line: str) -> None:
        if line != self._last_line:
            self._out.write("\r" + line.ljust(len(self._last_line)))
            self._out.flush()
            self._last_line = line

    def _format_line(self, progress: DownloadProgress, width: int = 200) -> str:
        """The bar takes the room that the figures leave: a longer line could not be redrawn."""
        share = min(1.0, progress.done / progress.total) if progress.total else 0.0
        size = f"{format_bytes(progress.done)} of {format_bytes(progress.total)}"
        speed = self._format_speed(progress.done, progress.total)
        figures = f"{share:4.0%}  {size}{speed}"
        room = max(0, min(BAR_WIDTH, width - len(progress.phase) - len(figures) - 4))
        filled = round(share * room)
        bar = f"[{'#' * filled}{'.' * (room - filled)}] " if room else ""
        return f"{progress.phase} {bar}{figures}"

    def _format_speed(self, done: int, total: int) -> str:
        start_time, start_bytes = self._start
        seconds = self._clock() - start_time
        if seconds < 1 or done <= start_bytes:
            return ""
        speed = (done - start_bytes) / seconds
        return f", {format_bytes(speed)}/s, {format_duration((total - done) / speed)} left"
