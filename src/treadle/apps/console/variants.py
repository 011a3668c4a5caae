"""What `treadle whatif` tries, and what came of it: its table, as text and as JSON.

Used by cli/trials/whatif.py, which makes it, and by web/trials.py, which reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.lib.text.text import format_dollars

HEADS = ("", "variant", "check", "changes", "cost", "time", "end")
CHECK_RESULTS = {True: "passes", False: "fails", None: "–"}


class Variant(msgspec.Struct):
    """One way to run the turn, and what came of it. `passed` is None without a check."""

    name: str
    model: str
    prompt: str
    session: str = ""
    reason: str = ""
    passed: bool | None = None
    files: int = 0  # that it changed
    changes: str = ""
    cost: float | None = None
    seconds: float = 0.0
    error: str = ""

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """The best is first: it passed, it ended by itself, it was cheap."""
        unknown = float("inf") if self.cost is None else self.cost
        return self.passed is not True, self.reason != "end_turn", unknown


def list_rows(variants: Sequence[Variant]) -> list[tuple[str, ...]]:
    return [
        (
            str(number),
            one.model or one.prompt[:30],
            CHECK_RESULTS[one.passed],
            one.changes,
            "unknown" if one.cost is None else format_dollars(one.cost),
            f"{one.seconds:.1f} s",
            one.error or one.reason,
        )
        for number, one in enumerate(variants, 1)
    ]
