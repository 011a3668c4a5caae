"""How much work code does, in numbers that are the same on every machine and beside other work.

A test that a cost stays small or does not grow compares these; how long something takes is measured
in benchmarks/.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Work:
    """Calls of functions of Python and C by their names. `scanned` is how many bytes or characters
    the methods of strings were called on."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.scanned = 0

    @property
    def calls(self) -> int:
        return self.by_name.total()

    def note(self, frame: FrameType, event: str, called: object) -> None:
        if event == "call":
            self.by_name[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            self.by_name[called.__qualname__] += 1  # type: ignore[attr-defined]
            value = getattr(called, "__self__", None)
            if isinstance(value, (bytes, bytearray, str)):
                self.scanned += len(value)


@contextmanager
def count_work() -> Iterator[Work]:
    """Of this thread, in the block."""
    work = Work()
    sys.setprofile(work.note)
    try:
        yield work
    finally:
        sys.setprofile(None)
