"""Types sentences at open approvals and questions of the real program, in a real terminal.

At an approval a sentence is a message, at a question of the model it is the answer; both arrive
whole. Used by test_typed_sentences.py and benchmarks/random_keys.py.
"""

from __future__ import annotations

import json
import random

from tests.apps.tui.harness import exists
from tests.apps.tui.tmux import Terminal
from tests.patience import until_in_thread
from tests.sentences import make_batches
from treadle.testing.provider.server import ProviderServer


def type_sentences(
    on: Terminal, server: ProviderServer, mode: str, sentences: list[str], seed: int
) -> None:
    """Type them all; `mode` is "", "--inline" or "--plain". Raises if one was taken as an answer
    to an approval, or did not arrive."""
    env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    given = [one for one in (mode, "--model=claude-sonnet-4-5", "--sandbox=off") if one]
    first = len(server.generation_requests)
    is_plain, chosen = mode == "--plain", random.Random(seed)
    on.run(*given, env=env)
    on.sees("Do you trust the files in this")
    if is_plain:
        on.send("y")
        on.sees("[ask] >")
    else:
        on.answer("y", "Enter")
        on.sees("sandbox  off")
    on.send("go")
    for place, batch in enumerate(make_batches(sentences)):
        on.sees(f"made-{2 * place}")
        for sentence in batch[:-1]:
            if chosen.random() < 0.5:  # when the dialog takes keys, or as soon as it is there
                on.sees("Allow, 1 to" if is_plain else "▸ ")
            _send(on, sentence, is_plain)
        _deny(on, is_plain, f"Which of {2 * place + 1}?")
        body = server.generation_requests[-1].body.decode()
        lost = [one for one in batch[:-1] if json.dumps(one)[1:-1] not in body]
        assert lost == [], f"lost at an approval: {lost}\n{on.screen()}"
        assert len(server.generation_requests) - first == 2 * place + 2
        answer = batch[-1]
        on.sees("own words" if is_plain else "▸ ")
        _send(on, answer, is_plain)
        on.sees(f"made-{2 * place + 2}")
        body = server.generation_requests[-1].body.decode()
        assert json.dumps(answer)[1:-1] in body, f"lost: {answer!r}\n{on.screen()}"
    assert not exists(".treadle/settings.local.json")
    made = [number for number in range(2 * len(sentences)) if exists(f"made-{number}.txt")]
    assert made == [], f"a sentence ran a command: {made}"
    on.renew()


def _send(on: Terminal, sentence: str, is_plain: bool) -> None:
    """Enter is pressed when the sentence stands in the prompt, all of it."""
    on.type(sentence)
    if not is_plain:
        on.sees(f"› {sentence}")
    on.press("Enter")
    if not is_plain:
        on.sees(f"› {sentence}\n", gone=True)


def _deny(on: Terminal, is_plain: bool, then: str) -> None:
    """Deny the call; `then` is shown. A line that comes before the prompt is there is a message."""
    if not is_plain:
        on.answer("n", "Enter")
        on.sees(then)
        return

    def is_denied() -> bool:
        screen = on.screen()
        if screen.rstrip().endswith("Allow, 1 to 6:"):
            on.send("n")
            until_in_thread(lambda: on.screen() != screen)
        return then in screen

    until_in_thread(is_denied, on.screen)
