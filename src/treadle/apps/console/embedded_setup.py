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
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from treadle.apps.console.console import report_errors
from treadle.apps.settings.settings import Settings
from treadle.core.errors import TreadleError
from treadle.lib.text.text import format_bytes

if TYPE_CHECKING:
    from treadle.models.embedded import Weights
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
    from treadle.apps.console.progress_bar import ProgressBar
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
    size = format_bytes(QWEN_CODER.size)
    question = f"k: give a key, d: download {QWEN_CODER.title} ({size}), Enter: neither: "
    try:
        answer = ask(question)
    except EOFError:
        return
    asked.parent.mkdir(parents=True, exist_ok=True)
    asked.touch()
    if answer.strip().lower() == "k":
        from treadle.apps.console.login import log_in

        report_errors("treadle login", lambda: log_in(ask=ask))
    elif answer.strip().lower() == "d":
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
        "You can give a key now, or download a better model that needs none and works offline."
    )
