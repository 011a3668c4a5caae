"""The order of the measurements: all contenders once, then all of them again, and so on.

So a slow minute of the machine falls on all of them, and two figures of one round are a pair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any


def run_rounds(
    title: str, names: Iterable[str], rounds: int, run: Callable[[str], dict[str, Any]]
) -> None:
    """One that failed takes part in no further round."""
    left = list(names)
    for number in range(1, rounds + 1):
        if left:
            print(f"\n{title}: round {number} of {rounds}", file=sys.stderr)
        for name in list(left):
            if "failed" in run(name):
                left.remove(name)
