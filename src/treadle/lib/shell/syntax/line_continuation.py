"""Joins continued lines as bash does before it splits words.

Bash drops a backslash and the newline after it, except in single quotes, comments and quoted
here-documents; tree-sitter does not always. So they are dropped here, and `check_join_offsets`
compares quotes and comments with the tree afterwards. Not a parser: what would need one is a doubt.
Used by `parser.py`.
"""

import re
from typing import TYPE_CHECKING

import msgspec

from treadle.lib.shell.syntax.words import PLAIN_ARITHMETIC

if TYPE_CHECKING:
    from tree_sitter import Node

_CONTINUATION = "\\\n"
_NAME = re.compile(r"\$\{\w+\}", re.ASCII)
_DELIMITER = re.compile(r"""<<(-?)[ \t]*(\\?\w+|'\w+'|"\w+")(?=[\s;&|<>)]|$)""", re.ASCII)
_LITERAL_NODES = ("raw_string", "ansi_c_string", "comment")
_BEFORE_COMMENT = " \t\n;&|()<>"


class JoinedText(msgspec.Struct, frozen=True):
    """A text without its continued lines."""

    text: str
    join_offsets: tuple[int, ...] = ()  # where lines were joined
    heredoc_offsets: frozenset[int] = frozenset()  # those of them inside here-documents
    doubt: str = ""  # why the text was left unchanged


class _AmbiguousQuoting(Exception):
    """Only a parser can tell whether this is quoted."""


def join_continued_lines(text: str) -> JoinedText:
    """The text as bash reads it, or the same text with a doubt."""
    if _CONTINUATION not in text:
        return JoinedText(text)
    joiner = _LineJoiner(text)
    try:
        joiner.run()
    except _AmbiguousQuoting as unclear:
        return JoinedText(text, doubt=f"a continued line: {unclear}")
    return JoinedText(
        "".join(joiner.out), tuple(joiner.join_offsets), frozenset(joiner.heredoc_offsets)
    )


def check_join_offsets(joined: JoinedText, root: "Node") -> str:
    """Why the tree of the joined text is unreliable where lines were joined; "" if it is not."""
    end = len(joined.text)
    for at in joined.join_offsets:
        node = root.descendant_for_byte_range(max(at - 1, 0), min(at + 1, end))
        if node is not None and node.type in _LITERAL_NODES:
            return "a continued line inside a quote or a comment"
        while node is not None and node.type != "heredoc_body":
            node = node.parent
        if (node is not None) != (at in joined.heredoc_offsets):
            return "a continued line at the edge of a here-document"
    return ""


class _LineJoiner:
    """Walks the text once. `open_delimiters` are the quotes and parentheses to be closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.out: list[str] = []
        self.out_size = 0
        self.open_delimiters: list[str] = []
        self.join_offsets: list[int] = []
        self.heredoc_offsets: set[int] = set()
        self.pending_heredocs: list[tuple[str, bool, bool]] = []  # delimiter, tabs stripped, quoted
        self.previous_char = "\n"  # "" if it was quoted

    def run(self) -> None:
        while self.position < len(self.text):
            if self.skip_continuation():
                continue
            if self.open_delimiters and self.open_delimiters[-1] == '"':
                self.read_quoted()
            else:
                self.read_unquoted()
        if self.open_delimiters or self.pending_heredocs:
            raise _AmbiguousQuoting("an unclosed quote, parenthesis or here-document")

    def skip_continuation(self) -> bool:
        """Drop a line continuation at the present position, if there is one."""
        if not self.text.startswith(_CONTINUATION, self.position):
            return False
        self.join_offsets.append(self.out_size)
        self.position += 2
        return True

    def copy(self, count: int = 1, previous_char: str = "") -> None:
        piece = self.text[self.position : self.position + count]
        self.out.append(piece)
        self.out_size += len(piece)
        self.position += count
        self.previous_char = previous_char

    def copy_until(self, stop: str) -> None:
        """Copy text in which nothing may be dropped, up to and including `stop`."""
        end = self.text.find(stop, self.position)
        if end < 0:
            raise _AmbiguousQuoting("an unclosed quote, parenthesis or here-document")
        self.copy(end + len(stop) - self.position)

    def read_dollar(self) -> bool:
        """Read a `$`, and return whether it opened anything."""
        text = self.text
        plain = PLAIN_ARITHMETIC.match(text, self.position) or _NAME.match(text, self.position)
        if plain:
            self.copy(plain.end() - self.position)
            return True
        self.copy(previous_char="$")
        while self.skip_continuation():
            pass
        following = text[self.position : self.position + 1]
        if following == "(":
            self.copy(previous_char="(")
            while self.skip_continuation():
                pass
            if text.startswith("(", self.position):
                raise _AmbiguousQuoting("with arithmetic")
            self.open_delimiters.append("(")
        elif following == "{":
            raise _AmbiguousQuoting("with an expansion in braces")
        elif following == "$":
            self.copy()
        return following in ("(", "$")

    def read_quoted(self) -> None:
        c = self.text[self.position]
        if c == '"':
            self.open_delimiters.pop()
            self.copy()
        elif c == "\\":
            self.copy(2)
        elif c == "`":
            self.read_backquotes()
        elif c == "$":
            self.read_dollar()
        else:
            self.copy()

    def read_unquoted(self) -> None:
        c = self.text[self.position]
        if c == "\\":
            self.copy(2)
        elif c == "'":
            self.copy()
            self.copy_until("'")
        elif c == '"':
            self.open_delimiters.append('"')
            self.copy()
        elif c == "`":
            self.read_backquotes()
        elif c == "$":
            if not self.read_dollar() and self.text.startswith("'", self.position):
                self.read_ansi_quotes()
        elif c == "#" and self.previous_char and self.previous_char in _BEFORE_COMMENT:
            end = self.text.find("\n", self.position)
            self.copy((len(self.text) if end < 0 else end) - self.position)
        elif c == "<" and self.text.startswith("<<", self.position):
            self.read_heredoc_start()
        elif c == "\n":
            self.copy(previous_char=c)
            self.read_heredocs()
        else:
            self.read_parenthesis(c)

    def read_parenthesis(self, c: str) -> None:
        if c == "(":
            if self.previous_char == "(":
                raise _AmbiguousQuoting("with arithmetic")
            self.open_delimiters.append("(")
        elif c == ")":
            if not self.open_delimiters:
                raise _AmbiguousQuoting("with a case, or a parenthesis too many")
            self.open_delimiters.pop()
        self.copy(previous_char=c)

    def read_backquotes(self) -> None:
        end = self.position + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text) or _CONTINUATION in self.text[self.position : end]:
            raise _AmbiguousQuoting("inside backquotes")
        self.copy(end + 1 - self.position)

    def read_ansi_quotes(self) -> None:
        self.copy()
        while self.text[self.position : self.position + 1] != "'":
            if self.position >= len(self.text):
                raise _AmbiguousQuoting("an unclosed quote, parenthesis or here-document")
            self.copy(2 if self.text[self.position] == "\\" else 1)
        self.copy()

    def read_heredoc_start(self) -> None:
        if self.text.startswith("<<<", self.position):
            self.copy(3, "<")
            return
        found = _DELIMITER.match(self.text, self.position)
        if found is None:
            raise _AmbiguousQuoting("with an unusual here-document")
        word = found.group(2)
        self.pending_heredocs.append(
            (word.strip("\\'\""), bool(found.group(1)), word[0] in "\\'\"")
        )
        self.copy(found.end() - self.position)

    def read_heredocs(self) -> None:
        """Read the bodies that begin after this newline."""
        for delimiter, tabs, quoted in self.pending_heredocs:
            while True:
                if self.position >= len(self.text):
                    raise _AmbiguousQuoting("a here-document without an end")
                line = self.read_heredoc_line(quoted)
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.pending_heredocs.clear()

    def read_heredoc_line(self, quoted: bool) -> str:
        start = len(self.out)
        while self.position < len(self.text) and self.text[self.position] != "\n":
            if not quoted and self.skip_continuation():
                self.heredoc_offsets.add(self.join_offsets[-1])
            else:
                self.copy(2 if not quoted and self.text[self.position] == "\\" else 1)
        line = "".join(self.out[start:])
        self.copy(previous_char="\n")
        return line
