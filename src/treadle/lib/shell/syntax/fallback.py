"""Guesses the commands of a line that does not parse: used to deny, never to allow.

A rough splitter that finds too many commands rather than too few. Used only for lines with doubts.
"""

import re

from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.lib.shell.syntax.words import InvalidWord, read_word
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

_KEYWORDS = word_set(
    "if then elif else fi for while until do done case in esac select function time coproc ! { } [["
)
_TOKEN = compile_lazily(
    r"""'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s;&|()`'"\\]+|\n|[;&|()`]|[^\S\n]+|.""", re.DOTALL
)


def guess_commands(source: str) -> tuple[SimpleCommand, ...]:
    """The commands that the text seems to contain."""
    commands: list[SimpleCommand] = []
    for segment in _split_segments(source):
        words: list[Word] = []
        for piece in segment:
            words.extend(_read_piece(piece))
        while words and words[0].text in _KEYWORDS:
            words.pop(0)
        if words:
            commands.append(SimpleCommand(tuple(words), source=" ".join(segment)))
    return tuple(commands)


def _split_segments(source: str) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    word = ""
    for match in _TOKEN.finditer(source.replace("\\\n", "")):
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
                segments[:0] = _split_segments(piece.strip('"'))
    if word:
        segments[-1].append(word)
    return segments


def _read_piece(piece: str) -> list[Word]:
    try:
        return read_word(piece, {})
    except InvalidWord:
        return [Word(piece, None)]
