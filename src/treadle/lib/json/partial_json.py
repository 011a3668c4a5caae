"""JSON text that is not complete yet, as a stream gives it: the values that can be read so far.

Pure functions, used for outputs that are shown while they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from treadle.lib.text.lazy_regex import compile_lazily

_CLOSERS = {"{": "}", "[": "]"}
# The first half of a character that is written as two escapes.
_HALF_PAIR = compile_lazily(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")


def read_partial_json(text: str) -> Iterator[Any]:
    """The values in an incomplete text, the most complete first.

    First with its open text and containers closed, then without the last part of the innermost
    container, then of the next one, and so on. A number at the end may still grow: it is left out.
    """
    text = text.rstrip() if text.rstrip().endswith(("}", "]", '"')) else text
    open_containers, in_text = _scan(text)
    closers = [_CLOSERS[text[opened]] for opened, _ in open_containers]
    if in_text:
        yield from _try(_strip_escape(text) + '"' + "".join(reversed(closers)))
    elif text.endswith(("}", "]", '"', "true", "false", "null")):
        yield from _try(text + "".join(reversed(closers)))
    for depth in range(len(open_containers) - 1, -1, -1):
        _, last_end = open_containers[depth]
        yield from _try(text[:last_end] + "".join(reversed(closers[: depth + 1])))


def _scan(text: str) -> tuple[list[tuple[int, int]], bool]:
    """The containers that are open at the end: where each begins, and where its last complete part
    ends. And whether the end is inside a text."""
    opened: list[tuple[int, int]] = []
    in_text = is_escaped = False
    for position, character in enumerate(text):
        if in_text:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                in_text = False
        elif character == '"':
            in_text = True
        elif character in _CLOSERS:
            opened.append((position, position + 1))
        elif character in "}]" and opened:
            opened.pop()
        elif character == "," and opened:
            opened[-1] = (opened[-1][0], position)
    return opened, in_text


def _strip_escape(text: str) -> str:
    """The text without an escape sequence that is cut off at its end."""
    start = text.rfind("\\u", len(text) - 5)
    if start >= 0 and len(text) - start < 6:
        text = text[:start]
    text = _HALF_PAIR.sub("", text)
    backslashes = len(text) - len(text.rstrip("\\"))
    return text[:-1] if backslashes % 2 else text


def _try(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        return
