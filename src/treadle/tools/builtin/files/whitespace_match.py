"""An old text that is in a file but for its white space: found if it is there once.

The lines of the old text are compared with those of the file without their white space. The new
text gets the indentation of the file where it has that of the old text. Pure functions, used by
`edit` when the exact text is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

MAX_LINES = 50_000


class WhitespaceMatch(msgspec.Struct, frozen=True):
    """The characters of the text that the old text means, and what replaces them."""

    start: int
    end: int
    new: str


def find_whitespace_match(text: str, old: str, new: str) -> WhitespaceMatch | None:
    """None if the old text is not there once, or if the new text cannot be indented like it."""
    lines, wanted = text.split("\n"), old.replace("\r\n", "\n").split("\n")
    ends_with_newline = len(wanted) > 1 and not wanted[-1]
    if ends_with_newline:
        wanted.pop()
    start = _find_once(lines, wanted)
    if start is None:
        return None
    found = lines[start : start + len(wanted)]
    indents = _pair_indents(wanted, found)
    if indents is None:
        return None
    indented = _indent_like(new.replace("\r\n", "\n"), indents)
    if indented is None:
        return None
    begin = sum(len(line) + 1 for line in lines[:start])
    end = begin + len("\n".join(found)) + ends_with_newline
    if end > len(text):
        return None
    if found[-1].endswith("\r") and not ends_with_newline:
        end -= 1
    return WhitespaceMatch(begin, end, indented.replace("\n", "\r\n" if "\r\n" in text else "\n"))


def _find_once(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    if len(lines) > MAX_LINES or not any(line.strip() for line in wanted):
        return None
    plain, plain_wanted = _squeeze(lines), _squeeze(wanted)
    last = len(plain) - len(plain_wanted)
    first_line = plain_wanted[0]
    found = [
        at
        for at in range(last + 1)
        if plain[at] == first_line and plain[at : at + len(plain_wanted)] == plain_wanted
    ]
    return found[0] if len(found) == 1 else None


def _squeeze(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def _get_indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _pair_indents(wanted: Sequence[str], found: Sequence[str]) -> dict[str, str] | None:
    """The indentation of the file by that of the old text; None if one has two."""
    indents: dict[str, str] = {}
    for mine, theirs in zip(wanted, found, strict=True):
        if not mine.strip():
            continue
        indent = _get_indent(theirs)
        if indents.setdefault(_get_indent(mine), indent) != indent:
            return None
    return indents


def _indent_like(new: str, indents: Mapping[str, str]) -> str | None:
    out: list[str] = []
    for line in new.split("\n"):
        indent = _map_indent(_get_indent(line), indents) if line.strip() else ""
        if indent is None:
            return None
        out.append(indent + line.lstrip(" \t") if line.strip() else "")
    return "\n".join(out)


def _map_indent(indent: str, indents: Mapping[str, str]) -> str | None:
    """The indentation in the file; one that the old text does not have goes by the others."""
    if indent in indents:
        return indents[indent]
    for mine, theirs in sorted(indents.items(), key=lambda pair: -len(pair[0])):
        if indent.startswith(mine):  # deeper
            return theirs + _convert_unit(indent[len(mine) :], mine, theirs)
    if not indent or all(theirs.endswith(mine) for mine, theirs in indents.items()):
        mine, theirs = min(indents.items(), key=lambda pair: len(pair[0]))
        return theirs.removesuffix(mine) + indent if theirs.endswith(mine) else indent
    return None


def _convert_unit(rest: str, mine: str, theirs: str) -> str:
    """Further indentation, in tabs or spaces as the file has it."""
    if mine and set(mine) == {" "} and set(theirs) == {"\t"} and len(mine) >= len(theirs):
        return "\t" * (len(rest) // (len(mine) // len(theirs)))
    if set(mine) == {"\t"} and theirs and set(theirs) == {" "}:
        return rest.replace("\t", " " * (len(theirs) // len(mine)))
    return rest
