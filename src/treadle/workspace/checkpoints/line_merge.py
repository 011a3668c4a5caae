"""Merges two changes of one text, line by line, if they concern different lines.

Used by `restore_plan`: an undo keeps what the user changed since.
"""

from __future__ import annotations

MAX_COMPARED = 4_000_000  # lines of the one times lines of the other; beyond it takes seconds

_Edit = tuple[int, int, tuple[bytes, ...]]


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`base` with the changes of both; None if they touch, or if it is no text."""
    if any(b"\0" in one for one in (base, ours, theirs)):
        return None
    lines = base.splitlines(keepends=True)
    edits = _list_edits(lines, ours), _list_edits(lines, theirs)
    if edits[0] is None or edits[1] is None:
        return None
    merged: list[bytes] = []
    end = -1  # of the last edit
    for start, stop, new in sorted({*edits[0], *edits[1]}):
        if start <= end:
            return None
        merged += [*lines[max(end, 0) : start], *new]
        end = stop
    return b"".join([*merged, *lines[max(end, 0) :]])


def _list_edits(old: list[bytes], text: bytes) -> list[_Edit] | None:
    """Which lines of the old text become which new ones; None if that takes too long."""
    new = text.splitlines(keepends=True)
    shared = min(len(old), len(new))
    first = next((at for at in range(shared) if old[at] != new[at]), shared)
    last = next(
        (at for at in range(shared - first) if old[-1 - at] != new[-1 - at]), shared - first
    )
    olds, news = old[first : len(old) - last], new[first : len(new) - last]
    if len(olds) * len(news) > MAX_COMPARED:
        return None
    from difflib import SequenceMatcher

    codes = SequenceMatcher(None, olds, news, autojunk=False).get_opcodes()
    return [
        (first + start, first + stop, tuple(news[begin:end]))
        for kind, start, stop, begin, end in codes
        if kind != "equal"
    ]
