"""Continued lines, joined as bash joins them before it splits words.

Bash drops a backslash and the newline after it everywhere but in single quotes, comments and quoted
here-documents; the tree has its own ideas. So they are dropped here, and the tree is asked
afterwards whether it sees the same quotes and comments at each of those places. Not a parser: what
would need one is a doubt. Above: `tree.py`.
"""

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tree_sitter import Node

_BREAK = "\\\n"
_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")
_NAME = re.compile(r"\$\{\w+\}", re.ASCII)
_DELIMITER = re.compile(r"""<<(-?)[ \t]*(\\?\w+|'\w+'|"\w+")(?=[\s;&|<>)]|$)""", re.ASCII)
_LITERAL = ("raw_string", "ansi_c_string", "comment")
_BEFORE_COMMENT = " \t\n;&|()<>"


class Joined(msgspec.Struct, frozen=True):
    """A text without its continued lines; `joints` are where they were, `bodies` those of them
    inside here-documents. `doubt` says why it was left as it is.
    """

    text: str
    joints: tuple[int, ...] = ()
    bodies: frozenset[int] = frozenset()
    doubt: str = ""


class _Unclear(Exception):
    """Only a parser could tell whether this is quoted."""


def join_lines(text: str) -> Joined:
    """The text as bash reads it."""
    if _BREAK not in text:
        return Joined(text)
    joiner = _Joiner(text)
    try:
        joiner.run()
    except _Unclear as unclear:
        return Joined(text, doubt=f"a continued line: {unclear}")
    return Joined("".join(joiner.out), tuple(joiner.joints), frozenset(joiner.bodies))


def check_joints(joined: Joined, root: "Node") -> str:
    """Why the tree of the joined text is not to be trusted at a joint; "" when it is."""
    end = len(joined.text)
    for at in joined.joints:
        node = root.descendant_for_byte_range(max(at - 1, 0), min(at + 1, end))
        if node is not None and node.type in _LITERAL:
            return "a continued line inside a quote or a comment"
        while node is not None and node.type != "heredoc_body":
            node = node.parent
        if (node is not None) != (at in joined.bodies):
            return "a continued line at the edge of a here-document"
    return ""


class _Joiner:
    """Walks the text once. `open` holds what has to be closed: quotes and parentheses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.out: list[str] = []
        self.size = 0
        self.open: list[str] = []
        self.joints: list[int] = []
        self.bodies: set[int] = set()
        self.waiting: list[tuple[str, bool, bool]] = []  # delimiter, tabs stripped, quoted
        self.last = "\n"  # the character before, when it was not quoted

    def run(self) -> None:
        while self.at < len(self.text):
            if self.joins():
                continue
            if self.open and self.open[-1] == '"':
                self.quoted()
            else:
                self.bare()
        if self.open or self.waiting:
            raise _Unclear("something is left open")

    def joins(self) -> bool:
        """Drop a continued line that stands here."""
        if not self.text.startswith(_BREAK, self.at):
            return False
        self.joints.append(self.size)
        self.at += 2
        return True

    def take(self, count: int = 1, last: str = "") -> None:
        piece = self.text[self.at : self.at + count]
        self.out.append(piece)
        self.size += len(piece)
        self.at += count
        self.last = last

    def until(self, stop: str) -> None:
        """Past a stretch that is text, or that nothing may be dropped from."""
        end = self.text.find(stop, self.at)
        if end < 0:
            raise _Unclear("something is left open")
        self.take(end + len(stop) - self.at)

    def dollar(self) -> bool:
        """What a $ opens; whether it opened anything."""
        text = self.text
        plain = _ARITHMETIC.match(text, self.at) or _NAME.match(text, self.at)
        if plain:
            self.take(plain.end() - self.at)
            return True
        self.take(last="$")
        while self.joins():
            pass
        following = text[self.at : self.at + 1]
        if following == "(":
            self.take(last="(")
            while self.joins():
                pass
            if text.startswith("(", self.at):
                raise _Unclear("with arithmetic")
            self.open.append("(")
        elif following == "{":
            raise _Unclear("with an expansion in braces")
        elif following == "$":
            self.take()
        return following in ("(", "$")

    def quoted(self) -> None:
        c = self.text[self.at]
        if c == '"':
            self.open.pop()
            self.take()
        elif c == "\\":
            self.take(2)
        elif c == "`":
            self.backquotes()
        elif c == "$":
            self.dollar()
        else:
            self.take()

    def bare(self) -> None:
        c = self.text[self.at]
        if c == "\\":
            self.take(2)
        elif c == "'":
            self.take()
            self.until("'")
        elif c == '"':
            self.open.append('"')
            self.take()
        elif c == "`":
            self.backquotes()
        elif c == "$":
            if not self.dollar() and self.text.startswith("'", self.at):
                self.ansi()
        elif c == "#" and self.last and self.last in _BEFORE_COMMENT:
            end = self.text.find("\n", self.at)
            self.take((len(self.text) if end < 0 else end) - self.at)
        elif c == "<" and self.text.startswith("<<", self.at):
            self.here()
        elif c == "\n":
            self.take(last=c)
            self.documents()
        else:
            self.parenthesis(c)

    def parenthesis(self, c: str) -> None:
        if c == "(":
            if self.last == "(":
                raise _Unclear("with arithmetic")
            self.open.append("(")
        elif c == ")":
            if not self.open:
                raise _Unclear("with a case, or a parenthesis too many")
            self.open.pop()
        self.take(last=c)

    def backquotes(self) -> None:
        end = self.at + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text) or _BREAK in self.text[self.at : end]:
            raise _Unclear("inside backquotes")
        self.take(end + 1 - self.at)

    def ansi(self) -> None:
        self.take()
        while self.text[self.at : self.at + 1] != "'":
            if self.at >= len(self.text):
                raise _Unclear("something is left open")
            self.take(2 if self.text[self.at] == "\\" else 1)
        self.take()

    def here(self) -> None:
        if self.text.startswith("<<<", self.at):
            self.take(3, "<")
            return
        found = _DELIMITER.match(self.text, self.at)
        if found is None:
            raise _Unclear("with an unusual here-document")
        word = found.group(2)
        self.waiting.append((word.strip("\\'\""), bool(found.group(1)), word[0] in "\\'\""))
        self.take(found.end() - self.at)

    def documents(self) -> None:
        """The bodies that begin after this newline."""
        for delimiter, tabs, quoted in self.waiting:
            while True:
                if self.at >= len(self.text):
                    raise _Unclear("a here-document without its end")
                line = self.body_line(quoted)
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.waiting.clear()

    def body_line(self, quoted: bool) -> str:
        begun = len(self.out)
        while self.at < len(self.text) and self.text[self.at] != "\n":
            if not quoted and self.joins():
                self.bodies.add(self.joints[-1])
            else:
                self.take(2 if not quoted and self.text[self.at] == "\\" else 1)
        line = "".join(self.out[begun:])
        self.take(last="\n")
        return line
