"""Why an old text was not found: the nearest lines, and how they differ.

Pure functions over text, bounded in time for large files. Used by `edit` and `apply_patch`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import nsmallest

from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.builtin.file_text import TYPOGRAPHY, format_numbered_lines, split_lines

MAX_WINDOWS = 24
MAX_LINES = 200_000
MAX_OFFSETS_PER_LINE = 8
"""For a wanted line that repeats: it says little about where a window starts."""

MAX_COMPARED_CHARS = 2_000
MAX_SHOWN_LINES = 20
MIN_RATIO = 0.5
_LINE_NUMBER_PREFIX = compile_lazily(r"\s*\d+(?:\t|→)")


def explain_no_match(text: str, old: str, new: str, name: str) -> str:
    """The message for a model whose old text is not in the file."""
    problem = f"old_string was not found in {name}; nothing was changed."
    wanted = split_lines(old) or [old]
    if strip_line_numbers(old):
        return f"{problem} It begins with line numbers: leave out what `read` puts before a line."
    if new and len(new) > 10 and new.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return f"{problem} new_string is there already: the edit may have been made before."
    lines = split_lines(text)
    window = find_nearest_lines(lines, wanted)
    if window is None:
        return f"{problem} No lines resemble it; read the file again."
    start, end = window
    shown = "\n".join(format_numbered_lines(lines, start, min(end, start + MAX_SHOWN_LINES)))
    difference = _describe_difference(lines[start:end], wanted)
    return f"{problem} The nearest lines are these{difference}:\n{shown}"


def strip_line_numbers(text: str) -> str:
    """The text without the number that `read` puts before each line; "" if a line has none."""
    lines = text.splitlines(keepends=True)
    numbers = [_LINE_NUMBER_PREFIX.match(line) for line in lines]
    if not all(numbers):
        return ""
    return "".join(line[one.end() :] for line, one in zip(lines, numbers, strict=True) if one)


def find_nearest_lines(lines: Sequence[str], wanted: Sequence[str]) -> tuple[int, int] | None:
    """The window of lines that is most like the wanted ones; None if none is similar."""
    from difflib import SequenceMatcher

    size = min(len(wanted), len(lines))
    best, best_ratio = None, MIN_RATIO
    matcher = SequenceMatcher(None, "", _join_for_comparison(wanted))
    last = len(lines) - size
    candidates = _find_candidate_starts(lines[:MAX_LINES], wanted)
    for start in dict.fromkeys(max(0, min(start, last)) for start in candidates):
        matcher.set_seq1(_join_for_comparison(lines[start : start + size]))
        if matcher.quick_ratio() > best_ratio and (ratio := matcher.ratio()) > best_ratio:
            best, best_ratio = (start, start + size), ratio
    return best


def _join_for_comparison(lines: Sequence[str]) -> str:
    # Every line has its newline, so no more of them than characters can count.
    return "\n".join(line.strip() for line in lines[:MAX_COMPARED_CHARS])[:MAX_COMPARED_CHARS]


def _find_candidate_starts(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a window may start, the most promising first: by whole lines, else by words."""
    where: dict[str, list[int]] = {}
    for offset, line in enumerate(wanted):
        offsets = where.setdefault(line.strip(), [])
        if len(offsets) < MAX_OFFSETS_PER_LINE:
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
    return nsmallest(MAX_WINDOWS, votes, key=lambda start: -votes[start])


def _describe_difference(file_lines: Sequence[str], wanted: Sequence[str]) -> str:
    """How the lines differ, if the difference is hard to see."""
    if [line.rstrip() for line in file_lines] == [line.rstrip() for line in wanted]:
        return " (they differ in spaces at the end of lines)"
    if [line.strip() for line in file_lines] == [line.strip() for line in wanted]:
        tabs = any("\t" in line[: len(line) - len(line.lstrip())] for line in file_lines)
        return f" (they differ in indentation only; the file uses {'tabs' if tabs else 'spaces'})"
    if _normalize(file_lines) == _normalize(wanted):
        return " (they differ in spaces, quotation marks or dashes)"
    for in_file, in_old in zip(file_lines, wanted, strict=False):
        if in_file != in_old:
            first = f"  old_string: {in_old[:200]}\n  the file:   {in_file[:200]}\n"
            return f"; the first difference:\n{first}"
    return ""


def _normalize(lines: Sequence[str]) -> str:
    return "".join("".join(lines).translate(TYPOGRAPHY).split())
