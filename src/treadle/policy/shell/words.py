"""One shell word from its source text: quotes, escapes, braces, tildes, patterns.

Not a tokenizer: where a word begins and ends is told by the tree, and checked here. Expansions are
given as spans, since their contents are commands that the tree lists itself.
"""

import re
from collections.abc import Mapping

from treadle.policy.shell.braces import UnclearBraces, expand_braces
from treadle.policy.shell.facts import Word

_ANSI = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_META = frozenset(" \t\n;&|<>()")
_SPECIAL = frozenset("?#$!")  # always a number
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")  # means itself, whatever stands around it

_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_HOME = re.compile(r"[=:]~")

UNCLEAR = "\0"  # an expansion whose value may run something or hide anything
STATIC = "\2"  # begins the text that a substitution stands for
LISTED = "\1"  # a substitution whose commands are parts of their own, or plain arithmetic

# What begins at this offset: where it ends, and the variable's name or one of the two above.
Spans = Mapping[int, tuple[int, str]]
Char = tuple[str, bool]  # a character, and whether it was quoted


class BadWord(Exception):
    """The text is not one word as bash reads it."""


class _Scan:
    """The state of reading one word."""

    def __init__(self, text: str, spans: Spans, base: int) -> None:
        self.text = text
        self.spans = spans
        self.base = base
        self.chars: list[Char] = []
        self.names: list[str] = []
        self.dynamic = False
        self.data = True
        self.splits = False

    def expansion(self, at: int, *, quoted: bool) -> int:
        """Skip the expansion that begins at `at`, and answer where it ends."""
        span = self.spans.get(self.base + at)
        if span is None:
            raise BadWord("an expansion that was not recognised")
        end, name = span
        if name.startswith(STATIC):
            if quoted or name[1:].isdigit():
                self.chars.extend((c, True) for c in name[1:])
                return end - self.base
            name = LISTED
        if name == UNCLEAR:
            self.data = False
        elif name != LISTED and name not in _SPECIAL:
            self.names.append(name)
        self.splits = self.splits or not (quoted or name in _SPECIAL)
        self.dynamic = True
        return end - self.base

    def escaped(self, at: int) -> None:
        if self.text[at] == "\n":
            raise BadWord("a continued line that was not joined")
        self.chars.append((self.text[at], True))

    def single(self, at: int) -> int:
        end = self.text.find("'", at)
        if end < 0:
            raise BadWord("an open quote")
        self.chars.extend((c, True) for c in self.text[at:end])
        if end == at:
            self.chars.append(("", True))
        return end + 1

    def ansi(self, at: int) -> int:
        text = self.text
        self.chars.append(("", True))
        while at < len(text):
            c = text[at]
            if c == "'":
                return at + 1
            if c != "\\":
                self.chars.append((c, True))
                at += 1
                continue
            char, at = _ansi_escape(text, at + 1)
            self.chars.append((char, True))
        raise BadWord("an open quote")

    def double(self, at: int) -> int:
        text = self.text
        self.chars.append(("", True))
        while at < len(text):
            c = text[at]
            if c == '"':
                return at + 1
            if c == "\\" and at + 1 < len(text) and text[at + 1] in '$`"\\\n':
                self.escaped(at + 1)
                at += 2
            elif c == "`" or (c == "$" and _expands(text, at + 1, quoted=True)):
                at = self.expansion(at, quoted=True)
            else:
                self.chars.append((c, True))
                at += 1
        raise BadWord("an open quote")

    def run(self) -> None:
        text, at = self.text, 0
        while at < len(text):
            c = text[at]
            if c == "'":
                at = self.single(at + 1)
            elif c == '"':
                at = self.double(at + 1)
            elif c == "\\":
                if at + 1 >= len(text):
                    raise BadWord("a backslash at the end")
                self.escaped(at + 1)
                at += 2
            elif text.startswith("$'", at):
                at = self.ansi(at + 2)
            elif text.startswith('$"', at):
                # A translated string: the catalogue decides what it says.
                self.dynamic, self.data = True, False
                at = self.double(at + 2)
            elif c == "`" or (c == "$" and _expands(text, at + 1, quoted=False)):
                at = self.expansion(at, quoted=False)
            elif c in "<>" and text.startswith("(", at + 1):
                at = self.expansion(at, quoted=False)
                self.data = False
            elif c in _META and not (c == "(" and at and text[at - 1] in "?*+@!"):
                raise BadWord(f"an unquoted {c!r} inside a word")
            elif c == "(":
                self.dynamic, self.data = True, False  # an extended pattern
                at = len(text)
            else:
                self.chars.append((c, False))
                at += 1


def read_word(text: str, spans: Spans, base: int = 0) -> list[Word]:
    """The words that one source word becomes (several, when braces expand)."""
    if _PLAIN.fullmatch(text):
        return [Word(text, text)]
    whole = _scanned(text, spans, base)
    if whole.dynamic or "{" not in text:
        return [_finish(text, whole)]
    try:
        scans = [_scanned(made, {}, 0) for made in expand_braces(text)]
    except UnclearBraces as unclear:
        raise BadWord(str(unclear)) from unclear
    # A word that braces leave empty vanishes; a quoted empty one holds a mark and stays.
    return [_finish(text, scan) for scan in scans if scan.chars]


def read_value(text: str, spans: Spans, base: int = 0) -> Word:
    """A word that stays one: the value of an assignment, where braces are only characters."""
    return _finish(text, _scanned(text, spans, base))


def _scanned(text: str, spans: Spans, base: int) -> _Scan:
    scan = _Scan(text, spans, base)
    scan.run()
    return scan


def check_body(text: str, spans: Spans, base: int) -> None:
    """BadWord if a here-document's body expands anything that `spans` does not show."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "`" or (text[at] == "$" and _expands(text, at + 1, quoted=True)):
            span = spans.get(base + at)
            if span is None:
                raise BadWord("an expansion that was not recognised")
            at = span[0] - base
        else:
            at += 1


def _finish(source: str, scan: _Scan) -> Word:
    if scan.dynamic:
        return Word(
            _utf8(source), None, data=scan.data, splits=scan.splits, names=tuple(scan.names)
        )
    chars = scan.chars
    if _home_inside(chars):
        return Word(_utf8(source), None)
    if _odd_pattern(chars):
        return Word(_utf8(source), None)
    glob = any(c in "*?[" and not quoted for c, quoted in chars if c)
    tilde = bool(chars) and chars[0] == ("~", False)
    return Word(_utf8(source), _utf8("".join(c for c, _ in chars)), glob=glob, tilde=tilde)


def _odd_pattern(chars: list[Char]) -> bool:
    """Whether it is a pattern that others read otherwise: classes, or quoted marks in it."""
    marks = {char for char in chars if char[0] and char[0] in "*?[]\\"}
    if not any(c in "*?[" and not quoted for c, quoted in marks):
        return False
    text = "".join(c for c, _ in chars)
    return any(quoted for _, quoted in marks) or bool(re.search(r"\[(?:[!^]|.*\[[:.=])", text))


def _home_inside(chars: list[Char]) -> bool:
    """Whether it looks like an assignment to a path of the home: bash expands that anywhere."""
    if ("~", False) not in chars:
        return False
    text = "".join(c for c, _ in chars)
    found = _ASSIGNS.match(text)
    return found is not None and bool(_HOME.search(text, found.end() - 1))


def _utf8(text: str) -> str:
    """Source text travels as one character a byte, so that offsets are the tree's own."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")


def _expands(text: str, at: int, *, quoted: bool) -> bool:
    if at >= len(text):
        return False
    c = text[at]
    return c.isalnum() or c in "_{(?#$!@*-[" or (not quoted and c in "'\"")


def _ansi_escape(text: str, at: int) -> tuple[str, int]:
    if at >= len(text):
        raise BadWord("an open escape")
    c = text[at]
    if c in _ANSI:
        return _ANSI[c], at + 1
    if c in "01234567":
        return _digits(text, at, 3, 8)
    if c == "x":
        return _digits(text, at + 1, 2, 16)
    if c == "u":
        return _digits(text, at + 1, 4, 16)
    if c == "U":
        return _digits(text, at + 1, 8, 16)
    raise BadWord("an escape whose meaning differs between shells")


def _digits(text: str, at: int, most: int, radix: int) -> tuple[str, int]:
    allowed = "0123456789abcdefABCDEF" if radix == 16 else "01234567"
    end = at
    while end < len(text) and end - at < most and text[end] in allowed:
        end += 1
    if end == at:
        raise BadWord("an escape without digits")
    code = int(text[at:end], radix)
    if code == 0 or code > 0x7E:
        # NUL ends the word in bash; bytes above ASCII depend on the locale.
        raise BadWord("an escape for a byte that is not plain text")
    return chr(code), end
