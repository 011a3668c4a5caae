"""What a line that does not parse seems to run: enough to deny by, never to allow by.

A rough splitter: it would rather see a command where there is none than miss one. Used only where
the tree has doubts.
"""

import re

from treadle.policy.listed import listed
from treadle.policy.shell.facts import Part, Word
from treadle.policy.shell.words import BadWord, read_word

_KEYWORDS = listed(
    "if then elif else fi for while until do done case in esac select function time coproc ! { } [["
)
_PIECE = re.compile(
    r"""'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s;&|()`'"\\]+|\n|[;&|()`]|[^\S\n]+|.""", re.DOTALL
)


def guess_parts(source: str) -> tuple[Part, ...]:
    """The commands that the text seems to hold."""
    parts: list[Part] = []
    for segment in _segments(source):
        words: list[Word] = []
        for piece in segment:
            words.extend(_word(piece))
        while words and words[0].text in _KEYWORDS:
            words.pop(0)
        if words:
            parts.append(Part(tuple(words), source=" ".join(segment)))
    return tuple(parts)


def _segments(source: str) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    word = ""
    for match in _PIECE.finditer(source.replace("\\\n", "")):
        piece = match.group()
        if piece in ";&|()`\n":
            if word:
                segments[-1].append(word)
            segments.append([])
            word = ""
        elif piece.isspace():
            if word:
                segments[-1].append(word)
            word = ""
        else:
            word += piece
            if piece[0] == '"' and ("`" in piece or "$(" in piece):
                segments[:0] = _segments(piece.strip('"'))
    if word:
        segments[-1].append(word)
    return segments


def _word(piece: str) -> list[Word]:
    try:
        return read_word(piece, {})
    except BadWord:
        return [Word(piece, None)]
