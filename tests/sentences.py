"""Sentences that a person may type while a question is open, and a model that asks for ever. None
of them is the key of an answer.

Used by the tests of the terminal and the page, and by benchmarks/random_keys.py.
"""

from __future__ import annotations

import random
from itertools import count

from treadle.testing.provider.http import ReceivedRequest
from treadle.testing.provider.script import FakeCall, FakeReply

BEGINNINGS = (  # separated by bars
    "yes|you|y not|n o|no|never|always|and|also|edit|even|the|that|try|on|or|only|run|read|remove|"
    "stop|so|we|why|wait|1 more|2 of them|3|what|a|e g|t minus|o well|r u sure|w|*|-"
)
WORDS = ("please", "use", "the", "other", "file", "yes", "no", "y", "n", "a", "always", "1", "it")

AT_AN_APPROVAL = 9  # sentences; the next one answers a question
RISKY = ("touch made-{}.txt", "rm -rf made-{}", "git push --force origin made-{}")


def make_sentences(count: int, seed: int) -> list[str]:
    """Each begins with what could be an answer, and has two words or more."""
    chosen = random.Random(seed)
    made = []
    for place in range(count):
        words = [chosen.choice(WORDS) for _ in range(chosen.randint(1, 5))]
        made.append(" ".join((chosen.choice(BEGINNINGS.split("|")), *words, str(place))))
    return made


def make_batches(sentences: list[str]) -> list[list[str]]:
    """The last one of each answers a question."""
    size = AT_AN_APPROVAL + 1
    return [sentences[place : place + size] for place in range(0, len(sentences), size)]


class AskingModel:
    """Each reply asks for something: to approve a command, then to answer a question."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, request: ReceivedRequest) -> FakeReply:
        number = next(self._numbers)
        if number % 2:
            ask: dict[str, object] = {"question": f"Which of {number}?", "options": ["red", "blue"]}
            return FakeReply(calls=(FakeCall("ask", ask),))
        command = RISKY[number // 2 % len(RISKY)].format(number)
        return FakeReply(calls=(FakeCall("bash", {"command": command}),))
