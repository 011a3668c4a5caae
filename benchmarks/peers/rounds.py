"""The order of the measurements: all contenders once, then all of them again, and so on.

So a slow minute of the machine falls on all of them, and two figures of one round are a pair.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SLOW_SECONDS = 3.0  # of a measurement, with the start of its process
SLOW_ROUNDS = 3


def run_rounds(
    title: str, names: Iterable[str], rounds: int, run: Callable[[str], dict[str, Any]]
) -> None:
    """A slow contender takes part in the first three rounds, one that failed in no further one."""
    left = list(names)
    for number in range(1, rounds + 1):
        if left:
            print(f"\n{title}: round {number} of {rounds}", file=sys.stderr)
        for name in list(left):
            began = time.monotonic()
            row = run(name)
            is_slow = time.monotonic() - began > SLOW_SECONDS
            if "failed" in row or (is_slow and number >= SLOW_ROUNDS):
                left.remove(name)
