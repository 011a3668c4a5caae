"""Where a motion of vim goes in a text.

Pure functions over offsets; vim_keys.py uses the table. A motion that has no target returns None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Literal

import msgspec

# "exclusive": the character at the far end is not part of it. "lines": whole lines.
MotionKind = Literal["exclusive", "inclusive", "lines"]


class MotionInput(msgspec.Struct, frozen=True):
    """`count` is 1 if the user gave none (`has_count`). `argument` is the character of f t F T."""

    text: str
    cursor: int
    count: int = 1
    has_count: bool = False
    argument: str = ""


MotionFunction = Callable[[MotionInput], int | None]


class Motion(msgspec.Struct, frozen=True):
    kind: MotionKind
    find: MotionFunction


def line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """The offset of the line break, or of the end of the text."""
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def first_nonblank(text: str, offset: int) -> int:
    start, end = line_start(text, offset), line_end(text, offset)
    line = text[start:end]
    return start + len(line) - len(line.lstrip(" \t"))


def move_lines(text: str, offset: int, by: int) -> int | None:
    """The same column some lines away; None if there is no such line."""
    column, target = offset - line_start(text, offset), offset
    for _ in range(abs(by)):
        edge = line_end(text, target) + 1 if by > 0 else line_start(text, target) - 1
        if edge < 0 or edge > len(text):
            return None
        target = edge
    start = line_start(text, target)
    return min(start + column, line_end(text, start))


def find_line(text: str, number: int) -> int:
    """The start of a line, counted from 1; of the last one if there are not so many."""
    start = 0
    for _ in range(number - 1):
        end = text.find("\n", start)
        if end < 0:
            break
        start = end + 1
    return start


# ------------------------------------------------------------------ words

# A word; a run of other signs; an empty line. With capitals (W, B, E): all that is not a blank.
_SMALL_WORD = re.compile(r"\w+|[^\w\s]+|(?<=\n)(?=\n)")
_BIG_WORD = re.compile(r"\S+|(?<=\n)(?=\n)")


def _next_word(pattern: re.Pattern[str]) -> MotionFunction:
    def find(given: MotionInput) -> int:
        starts = (match.start() for match in pattern.finditer(given.text, given.cursor))
        later = (start for start in starts if start > given.cursor)
        # A search that begins inside a word finds the rest of that word first, not a new word.
        return _take(later, given.count, len(given.text))

    return find


def _word_end(pattern: re.Pattern[str]) -> MotionFunction:
    def find(given: MotionInput) -> int:
        found = pattern.finditer(given.text, given.cursor)
        ends = (match.end() - 1 for match in found if match[0])  # not at an empty line
        later = (end for end in ends if end > given.cursor)
        return _take(later, given.count, max(len(given.text) - 1, 0))

    return find


def _previous_word(pattern: re.Pattern[str]) -> MotionFunction:
    def find(given: MotionInput) -> int:
        starts = [match.start() for match in pattern.finditer(given.text, 0, given.cursor)]
        return starts[-given.count] if given.count <= len(starts) else 0

    return find


def _take(offsets: Iterable[int], count: int, default: int) -> int:
    return next(islice(offsets, count - 1, None), default)


def find_word(text: str, cursor: int, *, around: bool) -> tuple[int, int] | None:
    """The word at the cursor, as a range; `around`: with the blanks after it, or else before it."""
    start, end = line_start(text, cursor), line_end(text, cursor)
    for match in re.finditer(r"\w+|[^\w\s]+|\s+", text[start:end]):
        if match.start() <= cursor - start < match.end():
            first, last = start + match.start(), start + match.end()
            return _with_blanks(text, first, last) if around else (first, last)
    return None


def _with_blanks(text: str, first: int, last: int) -> tuple[int, int]:
    end = last
    while end < len(text) and text[end] in " \t":
        end += 1
    if end == last:
        while first > 0 and text[first - 1] in " \t":
            first -= 1
    return first, end


# ------------------------------------------------------------------ inside a line


def _left(given: MotionInput) -> int:
    return max(line_start(given.text, given.cursor), given.cursor - given.count)


def _right(given: MotionInput) -> int:
    return min(line_end(given.text, given.cursor), given.cursor + given.count)


def _end_of_line(given: MotionInput) -> int | None:
    target = move_lines(given.text, line_start(given.text, given.cursor), given.count - 1)
    if target is None:
        return None
    return max(line_end(given.text, target) - 1, line_start(given.text, target))


def _find_character(step: int, stop_before: int) -> MotionFunction:
    def find(given: MotionInput) -> int | None:
        start, end = line_start(given.text, given.cursor), line_end(given.text, given.cursor)
        places = range(given.cursor + step, end if step > 0 else start - 1, step)
        found = [place for place in places if given.text[place] == given.argument]
        return found[given.count - 1] - stop_before if given.count <= len(found) else None

    return find


def _go_to_line(given: MotionInput) -> int:
    number = given.count if given.has_count else given.text.count("\n") + 1
    return first_nonblank(given.text, find_line(given.text, number))


def _go_to_first_line(given: MotionInput) -> int:
    return first_nonblank(given.text, find_line(given.text, given.count))


MOTIONS: dict[str, Motion] = {
    "h": Motion("exclusive", _left),
    "l": Motion("exclusive", _right),
    " ": Motion("exclusive", _right),
    "j": Motion("lines", lambda given: move_lines(given.text, given.cursor, given.count)),
    "k": Motion("lines", lambda given: move_lines(given.text, given.cursor, -given.count)),
    "w": Motion("exclusive", _next_word(_SMALL_WORD)),
    "W": Motion("exclusive", _next_word(_BIG_WORD)),
    "b": Motion("exclusive", _previous_word(_SMALL_WORD)),
    "B": Motion("exclusive", _previous_word(_BIG_WORD)),
    "e": Motion("inclusive", _word_end(_SMALL_WORD)),
    "E": Motion("inclusive", _word_end(_BIG_WORD)),
    "0": Motion("exclusive", lambda given: line_start(given.text, given.cursor)),
    "^": Motion("exclusive", lambda given: first_nonblank(given.text, given.cursor)),
    "$": Motion("inclusive", _end_of_line),
    "G": Motion("lines", _go_to_line),
    "gg": Motion("lines", _go_to_first_line),
    "f": Motion("inclusive", _find_character(1, 0)),
    "t": Motion("inclusive", _find_character(1, 1)),
    "F": Motion("exclusive", _find_character(-1, 0)),
    "T": Motion("exclusive", _find_character(-1, -1)),
}
FINDS = "ftFT"
