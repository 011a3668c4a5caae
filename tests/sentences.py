"""Sentences that a person may type while a question is open. None of them is the key of an answer.

Used by the tests of the terminal and the page, and by benchmarks/random_keys.py.
"""

from __future__ import annotations

import random

BEGINNINGS = (  # separated by bars
    "yes|you|y not|n o|no|never|always|and|also|edit|even|the|that|try|on|or|only|run|read|remove|"
    "stop|so|we|why|wait|1 more|2 of them|3|what|a|e g|t minus|o well|r u sure|w|*|-"
)
WORDS = ("please", "use", "the", "other", "file", "yes", "no", "y", "n", "a", "always", "1", "it")


def make_sentences(count: int, seed: int) -> list[str]:
    """Each begins with what could be an answer, and has two words or more."""
    chosen = random.Random(seed)
    made = []
    for place in range(count):
        words = [chosen.choice(WORDS) for _ in range(chosen.randint(1, 5))]
        made.append(" ".join((chosen.choice(BEGINNINGS.split("|")), *words, str(place))))
    return made
