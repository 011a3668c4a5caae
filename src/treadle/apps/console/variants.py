"""What `treadle whatif` tries, and what came of it: its table, as text and as JSON.

Used by cli/trials/whatif.py, which makes it, web/trials.py, which reads it, and cost_owners.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.lib.text.text import format_dollars, plural

BRANCH_PREFIX = "whatif-"  # of the names of their branches
HEADS = ("", "variant", "check", "changes", "cost", "time", "end")
CHECK_RESULTS = {True: "passes", False: "fails", None: "–"}


class Variant(msgspec.Struct):
    """One way to run the turn, and what came of it. `passed` is None without a check. `detail` says
    more about the reason, such as the limit; `was_sent`: a model was asked. `denied` are calls."""

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
    detail: str = ""
    was_sent: bool = True
    denied: list[str] = []

    @property
    def is_good(self) -> bool:
        """It passed, or without a check it ended by itself."""
        has_ended = self.reason == "end_turn" if self.passed is None else self.passed
        return has_ended and not self.error

    @property
    def rank(self) -> tuple[bool, float]:
        """The best of the good ones is first: it ended by itself, it was cheap."""
        return self.reason != "end_turn", float("inf") if self.cost is None else self.cost


def list_rows(variants: Sequence[Variant]) -> list[tuple[str, ...]]:
    return [
        (
            str(number),
            one.model or one.prompt[:30],
            CHECK_RESULTS[one.passed],
            one.changes,
            "unknown" if one.cost is None else format_dollars(one.cost),
            f"{one.seconds:.1f} s",
            one.error or _format_end(one),
        )
        for number, one in enumerate(variants, 1)
    ]


def _format_end(variant: Variant) -> str:
    end = ": ".join(filter(None, (variant.reason, variant.detail)))
    denied = plural(len(variant.denied), "call") + " denied"
    return f"{end}, {denied}" if variant.denied else end
