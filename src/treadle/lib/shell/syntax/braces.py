"""Brace expansion as in bash: on the word as written, before quotes are removed.

Bash searches instead of parsing: an opening brace counts if a comma or `..` of its own comes before
a closing one. Sequences other than plain numbers are not supported. Used by `words.py` and path
patterns.
"""

import re

_MAX_EXPANSIONS = 256
_MAX_BRACES = 64  # the search looks at the rest of the word from each of them
_SEQUENCE = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})")
_PADDED_NUMBER = re.compile(r"-?0[0-9]")


class UnsupportedBraces(Exception):
    """How bash expands these braces is not known here."""


def expand_braces(word: str) -> list[str]:
    """The words that one word expands to; it must contain no other expansion."""
    if "{" not in word:
        return [word]
    pieces = _split_pieces(word)
    if "{" not in pieces:
        return [word]
    if pieces.count("{") > _MAX_BRACES:
        raise UnsupportedBraces("too many braces")
    if any(piece[:2] == "$'" and "\\" in piece for piece in pieces):
        # Bash ends the quote at the first ', escaped or not, when it searches for braces.
        raise UnsupportedBraces("braces next to an escaped quote")
    return ["".join(made) for made in _expand(pieces)]


def _split_pieces(word: str) -> list[str]:
    """The characters; a quoted part, with its quotes, is one piece."""
    pieces: list[str] = []
    at = 0
    while at < len(word):
        c, end = word[at], at + 1
        if c == "\\":
            end = at + 2
        elif c == "'":
            end = word.find("'", end) + 1
        elif c == '"' or word.startswith("$'", at):
            end += c == "$"
            quote = word[end - 1]
            while end < len(word) and word[end] != quote:
                end += 2 if word[end] == "\\" else 1
            end += 1
        if end <= at or end > len(word):
            raise UnsupportedBraces("an open quote next to braces")
        pieces.append(word[at:end])
        at = end
    return pieces


def _expand(pieces: list[str]) -> list[list[str]]:
    found = _find_first_pair(pieces)
    if found is None:
        return [pieces]
    start, end = found
    body = pieces[start + 1 : end]
    items = (
        [w for item in _split_items(body) for w in _expand(item)]
        if "," in body
        else _expand_sequence(body)
    )
    rest = _expand(pieces[end + 1 :])
    if len(items) * len(rest) > _MAX_EXPANSIONS:
        raise UnsupportedBraces("too many words from braces")
    return [[*pieces[:start], *item, *after] for item in items for after in rest]


def _find_first_pair(pieces: list[str]) -> tuple[int, int] | None:
    """The first pair of braces that expands."""
    for start, piece in enumerate(pieces):
        if piece != "{":
            continue
        if pieces[start + 1 : start + 2] in ([], ["}"]):
            if start and pieces[start - 1][-1].isspace():
                raise UnsupportedBraces("empty braces after a blank")
            if not start:
                continue
        end = _find_closing(pieces, start + 1)
        if end is not None:
            return start, end
    return None


def _find_closing(pieces: list[str], at: int) -> int | None:
    """Where the brace closes: a } before its first separator is a plain character."""
    depth, separated = 0, False
    while at < len(pieces):
        piece = pieces[at]
        if piece == "}" and depth == 0 and separated:
            return at
        if piece == "{":
            depth += 1
        elif piece == "}" and depth:
            depth -= 1
        elif depth == 0 and (piece == "," or _is_range(pieces, at)):
            separated = True
        at += 1
    return None


def _is_range(pieces: list[str], at: int) -> bool:
    return pieces[at : at + 2] == [".", "."] and pieces[at + 2 : at + 3] != ["}"]


def _split_items(body: list[str]) -> list[list[str]]:
    items: list[list[str]] = [[]]
    depth = 0
    for piece in body:
        if piece == "{":
            depth += 1
        elif piece == "}" and depth:
            depth -= 1
        if piece == "," and depth == 0:
            items.append([])
        else:
            items[-1].append(piece)
    return items


def _expand_sequence(body: list[str]) -> list[list[str]]:
    found = _SEQUENCE.fullmatch("".join(body))
    if found is None or any(_PADDED_NUMBER.match(number) for number in found.groups()):
        raise UnsupportedBraces("a brace sequence")
    first, last = int(found.group(1)), int(found.group(2))
    if abs(last - first) > _MAX_EXPANSIONS:
        raise UnsupportedBraces("too many words from braces")
    step = 1 if last >= first else -1
    return [[str(n)] for n in range(first, last + step, step)]
