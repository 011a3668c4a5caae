"""The effects of a sed script: most only print, but `w` writes files and `e` runs commands.

A small parser for common scripts. What it cannot read is a doubt.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

_GRAMMAR = OptionGrammar(
    "efl",
    word_set("--expression --file --line-length"),
    reads=word_set("-f --file"),
    runs=word_set("-i --in-place"),
)
_IN_PLACE_OPTION = compile_lazily(r"-[nErsuz]*i(.*)|--in-place(?:=(.*))?$", re.DOTALL)
_LABEL = compile_lazily(r"[ \t]*([^\s;}]*)[ \t]*(?=[;\n]|$)")


class _UnsupportedScript(Exception):
    """This parser cannot read the script."""


def analyze_sed(words: Sequence[Word]) -> Effects:
    """The effects of `sed`, its scripts included."""
    # -i takes a suffix only if joined to it (`-i.bak`); after a lone `-i` comes the script.
    matches = [_IN_PLACE_OPTION.match(w.text or "") for w in words]
    suffixes = [m.group(1) or m.group(2) or "" for m in matches if m]
    words = [Word(w.source, "-i") if m else w for w, m in zip(words, matches, strict=True)]
    options, operands = scan_options(words, _GRAMMAR)
    names = {option.name for option in options}
    scripts = [o.value for o in options if o.name in ("-e", "--expression") and o.value is not None]
    doubts = ["a script from a file"] if names & _GRAMMAR.reads else []
    if not scripts and operands and not doubts:
        scripts.append(operands.pop(0))
    reads: list[Word] = list(operands)
    writes: list[Word] = list(operands) if names & _GRAMMAR.runs else []
    if any(c in suffix for suffix in suffixes for c in "/*"):
        doubts.append("a backup file in another folder or with another name")
    for suffix in filter(None, suffixes):
        writes += [replace(w, text=f"{w.text}{suffix}") for w in operands if w.text]
    for script in scripts:
        if script.text is None:
            doubts.append("the sed script is known only when the command runs")
            continue
        try:
            parser = _ScriptParser(script.text)
            parser.run()
        except _UnsupportedScript as error:
            doubts.append(f"a sed script: {error}")
            continue
        reads += [Word(p, p) for p in parser.reads]
        writes += [Word(p, p) for p in parser.writes]
    return Effects(
        is_read_only=not writes, reads=tuple(reads), writes=tuple(writes), doubts=tuple(doubts)
    )


class _ScriptParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.reads: list[str] = []
        self.writes: list[str] = []

    def peek(self) -> str:
        return self.text[self.position] if self.position < len(self.text) else ""

    def take(self) -> str:
        c = self.peek()
        if not c:
            raise _UnsupportedScript("it ends too early")
        self.position += 1
        return c

    def skip(self, chars: str) -> None:
        while self.peek() and self.peek() in chars:
            self.position += 1

    def read_line(self) -> str:
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        text, self.position = self.text[self.position : end], end
        return text

    def run(self) -> None:
        while True:
            self.skip(" \t\n;")
            if not self.peek():
                return
            self.skip_address()
            self.skip(" \t")
            if self.peek() == ",":
                self.position += 1
                self.skip(" \t")
                self.skip_address()
            self.skip(" \t!")
            self.parse_command(self.take())

    def skip_address(self) -> None:
        c = self.peek()
        if c.isdigit() or (c and c in "$+~"):
            self.position += 1
            while self.peek().isdigit() or self.peek() == "~":
                self.position += 1
        elif c and c in "/\\":
            self.position += 1
            delimiter = "/" if c == "/" else self.take()
            self.skip_until(delimiter)
            while self.peek() and self.peek() in "IM":
                self.position += 1

    def skip_until(self, delimiter: str) -> None:
        """Skip past the next delimiter, with regard to escapes and bracket expressions."""
        if delimiter in "\n\\;":
            raise _UnsupportedScript("an unusual delimiter")
        while (c := self.take()) != delimiter:
            if c == "\\":
                self.take()
            elif c == "\n":
                raise _UnsupportedScript("a newline in an expression")
            elif (
                c == "["
                and delimiter in self.text[self.position : self.text.find("]", self.position + 1)]
            ):
                raise _UnsupportedScript("the delimiter inside brackets")

    def parse_command(self, c: str) -> None:
        if c in "{}=dDgGhHnNpPxzF":
            return
        if c in "lqQL":
            self.skip(" \t0123456789")
        elif c in "bTt:":
            self.parse_label(c)
        elif c == "#":
            self.read_line()
        elif c in "rR":
            self.reads.append(self.read_line().strip(" \t"))
        elif c in "wW":
            self.writes.append(self.read_line().strip(" \t"))
        elif c == "s":
            self.parse_substitute()
        elif c == "y":
            delimiter = self.take()
            self.skip_until(delimiter)
            self.skip_until(delimiter)
        elif c in "aic":
            text = self.read_line()
            # An odd number of backslashes continues the text.
            while (len(text) - len(text.rstrip("\\"))) % 2 and self.peek():
                self.position += 1
                text = self.read_line()
        elif c == "e":
            raise _UnsupportedScript("e runs a command")
        else:
            raise _UnsupportedScript(f"the command {c!r}")
        self.skip(" \t")
        if self.peek() and self.peek() not in ";}\n#":
            raise _UnsupportedScript("text after a command")

    def parse_label(self, c: str) -> None:
        """A label ends at a blank or semicolon; another command may follow."""
        label = _LABEL.match(self.text, self.position)
        if label is None or (c == ":" and not label[1]):
            raise _UnsupportedScript("text after a label")
        self.position = label.end()

    def parse_substitute(self) -> None:
        delimiter = self.take()
        self.skip_until(delimiter)
        self.skip_replacement(delimiter)
        while (c := self.peek()) and (c.isdigit() or c in "gpiIemMw"):
            self.position += 1
            if c == "e":
                raise _UnsupportedScript("the flag e runs a command")
            if c == "w":
                self.writes.append(self.read_line().strip(" \t"))
                return

    def skip_replacement(self, delimiter: str) -> None:
        while (c := self.take()) != delimiter:
            if c == "\\":
                self.take()
