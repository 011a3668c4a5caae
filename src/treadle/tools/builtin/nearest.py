"""Why an old text was not found: the lines that come closest, and in what they differ.

Pure functions over text, bounded in time for large files. `edit` and `apply_patch` stand above.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from heapq import nsmallest

from treadle.tools.builtin.text import lines_of

MOST_WINDOWS = 24
MOST_LOOKED_AT = 200_000
MOST_PLACES = 8
"""Of a wanted line that comes again and again: it says little about where a window starts."""

MOST_COMPARED = 2_000
MOST_SHOWN = 20
ENOUGH = 0.5
_NUMBERED = re.compile(r"\s*\d+(?:\t|→)")


def near_miss(text: str, old: str, new: str, name: str) -> str:
    """What to tell a model whose old text is not in the file."""
    said = f"old_string was not found in {name}; nothing was changed."
    wanted = lines_of(old) or [old]
    if all(_NUMBERED.match(line) for line in wanted):
        return f"{said} It begins with line numbers: leave out what `read` puts before each line."
    if new and len(new) > 10 and new.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return f"{said} new_string is there already: the edit may have been made before."
    lines = lines_of(text)
    found = nearest(lines, wanted)
    if found is None:
        return f"{said} No lines resemble it; read the file again."
    start, end = found
    shown = "\n".join(
        f"{number + 1:>6}\t{lines[number][:500]}"
        for number in range(start, min(end, start + MOST_SHOWN))
    )
    difference = _difference(lines[start:end], wanted)
    return f"{said} The nearest lines are these{difference}:\n{shown}"


def nearest(lines: Sequence[str], wanted: Sequence[str]) -> tuple[int, int] | None:
    """The window of lines that is most like the wanted ones; None if nothing is like them."""
    size = min(len(wanted), len(lines))
    best, best_ratio = None, ENOUGH
    matcher = SequenceMatcher(None, "", _compared(wanted))
    last = len(lines) - size
    starts = [max(0, min(start, last)) for start in _candidates(lines[:MOST_LOOKED_AT], wanted)]
    for start in dict.fromkeys(starts):
        matcher.set_seq1(_compared(lines[start : start + size]))
        if matcher.quick_ratio() > best_ratio and (ratio := matcher.ratio()) > best_ratio:
            best, best_ratio = (start, start + size), ratio
    return best


def _compared(lines: Sequence[str]) -> str:
    # Every line has its newline, so no more of them than characters can count.
    return "\n".join(line.strip() for line in lines[:MOST_COMPARED])[:MOST_COMPARED]


def _candidates(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a window may start, the most promising first: by whole lines, else by words."""
    where: dict[str, list[int]] = {}
    for offset, line in enumerate(wanted):
        offsets = where.setdefault(line.strip(), [])
        if len(offsets) < MOST_PLACES:
            offsets.append(offset)
    where.pop("", None)
    votes: dict[int, float] = {}
    for number, line in enumerate(lines):
        for offset in where.get(line.strip(), ()):
            votes[number - offset] = votes.get(number - offset, 0) + 1
    if not votes:
        anchor, offset = max((len(line.strip()), -at) for at, line in enumerate(wanted))
        words = set(re.findall(r"\w+", wanted[-offset]))
        for number, line in enumerate(lines):
            common = len(words & set(re.findall(r"\w+", line))) if words else 0
            if common:
                votes[number + offset] = common / (1 + abs(len(line.strip()) - anchor))
    return nsmallest(MOST_WINDOWS, votes, key=lambda start: -votes[start])


def _difference(there: Sequence[str], wanted: Sequence[str]) -> str:
    """In words, what the lines differ in, when it is something that one does not see."""
    if [line.rstrip() for line in there] == [line.rstrip() for line in wanted]:
        return " (they differ in blanks at the end of lines)"
    if [line.strip() for line in there] == [line.strip() for line in wanted]:
        tabs = any("\t" in _indent(line) for line in there)
        return f" (they differ in indentation only; the file uses {'tabs' if tabs else 'spaces'})"
    if _plain(there) == _plain(wanted):
        return " (they differ in blanks, quotation marks or dashes)"
    for one, other in zip(there, wanted, strict=False):
        if one != other:
            mine, theirs = other[:200], one[:200]
            return f"; the first difference:\n  old_string: {mine}\n  the file:   {theirs}\n"
    return ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_TYPOGRAPHY = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-"})


def _plain(lines: Sequence[str]) -> str:
    return "".join("".join(lines).translate(_TYPOGRAPHY).split())
