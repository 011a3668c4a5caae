"""Whether a stray key ever answers an approval: keys at random moments, at the speed of a person.

    python benchmarks/random_keys.py [--keys 10000] [--seed 15] [--sentences 1000]

With `--sentences` so many sentences are typed at open approvals and questions of the real program:
in a terminal (tmux), full screen, inline and plain, and on the page (chromium). Otherwise the app
runs with the clock of the typist, on the scripted model, in an empty folder. Printed: keys,
questions, answers, how long a question was on the screen before the key of its answer at least, and
the answers that came too early. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

RUN_KEYS = 500  # with one app; a new one begins with an empty transcript


async def run(keys: int, seed: int) -> int:
    import pytest

    from tests.apps.tui.harness import StoppedClock, running_app, scripted
    from tests.apps.tui.random_keys import READ_SECONDS, Answer, Typist, make_script
    from treadle.models.scripted import Pause

    answers: list[Answer] = []
    early: list[Answer] = []
    typed = questions = refusals = 0
    began = time.monotonic()
    while typed < keys:
        clock, pauses = StoppedClock(), list[Pause]()
        with pytest.MonkeyPatch.context() as patch:
            model = scripted(make_script(pauses))
            async with running_app(patch, model, clock=clock) as on:
                typist = Typist(on, clock, seed + typed)
                try:
                    await typist.type(min(RUN_KEYS, keys - typed), pauses)
                finally:
                    typist.stop()
        answers += typist.answers
        typed, questions = typed + typist.keys, questions + typist.questions
        refusals += typist.refusals
        early = [answer for answer in answers if answer.seen_for < READ_SECONDS]
        counts = f"{typed:,} keys, {questions:,} questions, {len(answers):,} answers"
        print(f"{counts}, {len(early)} too early", flush=True)
    print(f"closed with esc: {refusals:,}")
    print(f"shortest time on the screen: {min(answer.seen_for for answer in answers):.2f} s")
    print(f"answered before it could be read: {len(early)} {early[:3] or ''}")
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if early else 0


def type_sentences(total: int, seed: int, home: Path) -> int:
    from tests.sentences import make_sentences

    hosts = {"full screen": "", "inline": "--inline", "plain": "--plain", "page": None}
    sentences, share = make_sentences(total, seed), -(-total // len(hosts))
    for place, (host, mode) in enumerate(hosts.items()):
        began = time.monotonic()
        typed = sentences[place * share : (place + 1) * share]
        folder = home / host / "project"
        folder.mkdir(parents=True)
        os.chdir(folder)
        # Raises at the first one that answers or is lost.
        if mode is None:
            type_on_page(typed, seed, folder)
        else:
            asyncio.run(type_in_terminal(mode, typed, seed, folder.parent))
        seconds = time.monotonic() - began
        print(f"{host}: {len(typed)} sentences, no answer, {seconds:.0f} s", flush=True)
    return 0


async def type_in_terminal(mode: str, sentences: list[str], seed: int, place: Path) -> None:
    from contextlib import closing

    from tests.apps.tui import typed_sentences
    from tests.apps.tui.tmux import Terminal
    from tests.sentences import AskingModel
    from treadle.testing.provider.server import ProviderServer

    async with ProviderServer(AskingModel(), strict=False) as server:
        with closing(Terminal(place, (80, 24))) as terminal:
            typing = typed_sentences.type_sentences
            await asyncio.to_thread(typing, terminal, server, mode, sentences, seed)


def type_on_page(sentences: list[str], seed: int, folder: Path) -> None:
    from tests.apps.web.conftest import Site
    from tests.apps.web.typed_sentences import type_sentences

    site = Site(folder.parent)
    try:
        site.run(type_sentences(site, folder, sentences, seed))
    finally:
        site.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--sentences", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        if options.sentences:
            return type_sentences(options.sentences, options.seed, Path(home))
        folder = Path(home) / "project"
        folder.mkdir()
        os.chdir(folder)
        return asyncio.run(run(options.keys, options.seed))


if __name__ == "__main__":
    sys.exit(main())
