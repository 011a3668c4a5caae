"""The shared permission cases, and what a mode gets wrong with them: wrong allows, needless asks.

`python -m tests.permissions.shared_cases` prints the figures of each mode; `-v` also the lines.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from treadle.permissions.modes import PermissionMode
from treadle.permissions.rule_cases import CaseResult, RuleCase, read_cases, run_cases
from treadle.tools.builtin import describe_access

FILES = ("permission_cases.jsonl", "permission_cases_2.jsonl")
MODES = [mode for mode in get_args(PermissionMode) if mode != "bypass"]
# Tests of their own, which no mode changes.
OTHER_TOOLS = ("startup", "sandbox", "remember")
# Asked about in the mode ask, and no more than a plain file inside the folder that is written, or
# removed with a checkpoint behind it.
PLAIN_WRITES = frozenset({"P012", "P022", "P038"})
# Expected to be asked about, although a rule of the case allows it: `Bash(git mv:*)`.
RULED = frozenset({"B291"})


class Tally(NamedTuple):
    """What a mode got wrong."""

    wrong_allows: list[tuple[RuleCase, CaseResult]]
    needless_asks: list[tuple[RuleCase, CaseResult]]
    harmless: int

    @property
    def asked_share(self) -> float:
        return len(self.needless_asks) / self.harmless


def load_cases() -> list[RuleCase]:
    """The calls of both files."""
    cases = [case for file in FILES for case in read_cases(Path(__file__).parent / file)]
    return [case for case in cases if case.tool not in OTHER_TOOLS]


def expect(case: RuleCase, mode: PermissionMode) -> str:
    """The verdict that a case should get in a mode without a sandbox."""
    if mode == "ask" and case.id in RULED:
        return "allow"
    if mode in ("accept-edits", "auto"):
        if case.id in PLAIN_WRITES:
            return "allow"
        return case.expect_accept_edits or case.expect
    return case.expect


def count(cases: Sequence[RuleCase], mode: PermissionMode) -> Tally:
    """What a mode gets wrong. In plan mode what is not read is denied: that is no question."""
    results = [*zip(cases, run_cases([*cases], describe_access, mode), strict=True)]
    wrong = [(c, r) for c, r in results if r.verdict == "allow" and expect(c, mode) != "allow"]
    harmless = [(c, r) for c, r in results if expect(c, mode) == "allow"]
    needless = [(c, r) for c, r in harmless if r.verdict != "allow"]
    return Tally(wrong, [] if mode == "plan" else needless, len(harmless))


def main() -> None:
    cases = load_cases()
    for mode in MODES:
        tally = count(cases, mode)
        wrong, asked = len(tally.wrong_allows), len(tally.needless_asks)
        print(f"{mode:12} {wrong:3} wrong allows, {asked:3} of {tally.harmless} harmless asked")
        if "-v" in sys.argv:
            for kind, found in (("ALLOWED", tally.wrong_allows), ("ASKED", tally.needless_asks)):
                for case, result in found:
                    line = case.input.get("command", case.input)
                    print(f"  {kind} {case.id} {line!r}: {result.reason}")


if __name__ == "__main__":
    main()
