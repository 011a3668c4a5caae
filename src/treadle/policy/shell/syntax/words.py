"""One shell word from its source text: quotes, escapes, braces, tildes, patterns.

Not a tokenizer: where a word begins and ends is told by the tree, and checked here. Expansions are
given as spans, since their contents are commands that the tree lists itself.
"""

import re
from collections.abc import Mapping

from treadle.policy.shell.ast import Word
from treadle.policy.shell.syntax.braces import UnsupportedBraces, expand_braces

_ANSI_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_METACHARACTERS = frozenset(" \t\n;&|<>()")
_SPECIAL_PARAMETERS = frozenset("?#$!")  # always a number
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")  # means itself, whatever stands around it

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_INNER_TILDE = re.compile(r"[=:]~")

UNKNOWN_EXPANSION = "\0"  # an expansion whose value may run something or hide anything
STATIC_EXPANSION = "\2"  # begins the text that a substitution stands for
LISTED_EXPANSION = "\1"  # a substitution whose commands are parts of their own, or plain arithmetic

# What begins at this offset: where it ends, and the variable's name or one of the two above.
ExpansionSpans = Mapping[int, tuple[int, str]]
QuotedChar = tuple[str, bool]  # a character, and whether it was quoted


class InvalidWord(Exception):
    """The text is not one word as bash reads it."""


class _WordScanner:
    """The state of reading one word."""

    def __init__(self, text: str, spans: ExpansionSpans, base: int) -> None:
        self.text = text
        self.spans = spans
        self.base = base
        self.chars: list[QuotedChar] = []
        self.variable_names: list[str] = []
        self.is_dynamic = False
        self.is_plain_data = True
        self.may_split = False

    def skip_expansion(self, at: int, *, quoted: bool) -> int:
        """Skip the expansion that begins at `at`, and answer where it ends."""
        span = self.spans.get(self.base + at)
        if span is None:
            raise InvalidWord("an expansion that was not recognised")
        end, name = span
        if name.startswith(STATIC_EXPANSION):
            if quoted or name[1:].isdigit():
                self.chars.extend((c, True) for c in name[1:])
                return end - self.base
            name = LISTED_EXPANSION
        if name == UNKNOWN_EXPANSION:
            self.is_plain_data = False
        elif name != LISTED_EXPANSION and name not in _SPECIAL_PARAMETERS:
            self.variable_names.append(name)
        self.may_split = self.may_split or not (quoted or name in _SPECIAL_PARAMETERS)
        self.is_dynamic = True
        return end - self.base

    def read_escape(self, at: int) -> None:
        if self.text[at] == "\n":
            raise InvalidWord("a continued line that was not joined")
        self.chars.append((self.text[at], True))

    def read_single_quotes(self, at: int) -> int:
        end = self.text.find("'", at)
        if end < 0:
            raise InvalidWord("an open quote")
        self.chars.extend((c, True) for c in self.text[at:end])
        if end == at:
            self.chars.append(("", True))
        return end + 1

    def read_ansi_quotes(self, at: int) -> int:
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
            char, at = _read_ansi_escape(text, at + 1)
            self.chars.append((char, True))
        raise InvalidWord("an open quote")

    def read_double_quotes(self, at: int) -> int:
        text = self.text
        self.chars.append(("", True))
        while at < len(text):
            c = text[at]
            if c == '"':
                return at + 1
            if c == "\\" and at + 1 < len(text) and text[at + 1] in '$`"\\\n':
                self.read_escape(at + 1)
                at += 2
            elif c == "`" or (c == "$" and _is_expansion(text, at + 1, quoted=True)):
                at = self.skip_expansion(at, quoted=True)
            else:
                self.chars.append((c, True))
                at += 1
        raise InvalidWord("an open quote")

    def run(self) -> None:
        text, at = self.text, 0
        while at < len(text):
            c = text[at]
            if c == "'":
                at = self.read_single_quotes(at + 1)
            elif c == '"':
                at = self.read_double_quotes(at + 1)
            elif c == "\\":
                if at + 1 >= len(text):
                    raise InvalidWord("a backslash at the end")
                self.read_escape(at + 1)
                at += 2
            elif text.startswith("$'", at):
                at = self.read_ansi_quotes(at + 2)
            elif text.startswith('$"', at):
                # A translated string: the catalogue decides what it says.
                self.is_dynamic, self.is_plain_data = True, False
                at = self.read_double_quotes(at + 2)
            elif c == "`" or (c == "$" and _is_expansion(text, at + 1, quoted=False)):
                at = self.skip_expansion(at, quoted=False)
            elif c in "<>" and text.startswith("(", at + 1):
                at = self.skip_expansion(at, quoted=False)
                self.is_plain_data = False
            elif c in _METACHARACTERS and not (c == "(" and at and text[at - 1] in "?*+@!"):
                raise InvalidWord(f"an unquoted {c!r} inside a word")
            elif c == "(":
                self.is_dynamic, self.is_plain_data = True, False  # an extended pattern
                at = len(text)
            else:
                self.chars.append((c, False))
                at += 1


def read_word(text: str, spans: ExpansionSpans, base: int = 0) -> list[Word]:
    """The words that one source word becomes (several, when braces expand)."""
    if _PLAIN_WORD.fullmatch(text):
        return [Word(text, text)]
    whole = _scan_word(text, spans, base)
    if whole.is_dynamic or "{" not in text:
        return [_make_word(text, whole)]
    try:
        scans = [_scan_word(made, {}, 0) for made in expand_braces(text)]
    except UnsupportedBraces as unclear:
        raise InvalidWord(str(unclear)) from unclear
    # A word that braces leave empty vanishes; a quoted empty one holds a mark and stays.
    return [_make_word(text, scan) for scan in scans if scan.chars]


def read_assignment_value(text: str, spans: ExpansionSpans, base: int = 0) -> Word:
    """A word that stays one: the value of an assignment, where braces are only characters."""
    return _make_word(text, _scan_word(text, spans, base))


def _scan_word(text: str, spans: ExpansionSpans, base: int) -> _WordScanner:
    scan = _WordScanner(text, spans, base)
    scan.run()
    return scan


def check_heredoc_body(text: str, spans: ExpansionSpans, base: int) -> None:
    """BadWord if a here-document's body expands anything that `spans` does not show."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "`" or (text[at] == "$" and _is_expansion(text, at + 1, quoted=True)):
            span = spans.get(base + at)
            if span is None:
                raise InvalidWord("an expansion that was not recognised")
            at = span[0] - base
        else:
            at += 1


def _make_word(source: str, scan: _WordScanner) -> Word:
    if scan.is_dynamic:
        return Word(
            _decode_source(source),
            None,
            is_plain_data=scan.is_plain_data,
            may_split=scan.may_split,
            variable_names=tuple(scan.variable_names),
        )
    chars = scan.chars
    if _has_inner_tilde(chars):
        return Word(_decode_source(source), None)
    if _is_ambiguous_glob(chars):
        return Word(_decode_source(source), None)
    glob = any(c in "*?[" and not quoted for c, quoted in chars if c)
    tilde = bool(chars) and chars[0] == ("~", False)
    return Word(
        _decode_source(source),
        _decode_source("".join(c for c, _ in chars)),
        is_glob=glob,
        has_tilde=tilde,
    )


def _is_ambiguous_glob(chars: list[QuotedChar]) -> bool:
    """Whether it is a pattern that others read otherwise: classes, or quoted marks in it."""
    marks = {char for char in chars if char[0] and char[0] in "*?[]\\"}
    if not any(c in "*?[" and not quoted for c, quoted in marks):
        return False
    text = "".join(c for c, _ in chars)
    return any(quoted for _, quoted in marks) or bool(re.search(r"\[(?:[!^]|.*\[[:.=])", text))


def _has_inner_tilde(chars: list[QuotedChar]) -> bool:
    """Whether it looks like an assignment to a path of the home: bash expands that anywhere."""
    if ("~", False) not in chars:
        return False
    text = "".join(c for c, _ in chars)
    found = _ASSIGNMENT.match(text)
    return found is not None and bool(_INNER_TILDE.search(text, found.end() - 1))


def _decode_source(text: str) -> str:
    """Source text travels as one character a byte, so that offsets are the tree's own."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")


def _is_expansion(text: str, at: int, *, quoted: bool) -> bool:
    if at >= len(text):
        return False
    c = text[at]
    return c.isalnum() or c in "_{(?#$!@*-[" or (not quoted and c in "'\"")


def _read_ansi_escape(text: str, at: int) -> tuple[str, int]:
    if at >= len(text):
        raise InvalidWord("an open escape")
    c = text[at]
    if c in _ANSI_ESCAPES:
        return _ANSI_ESCAPES[c], at + 1
    if c in "01234567":
        return _read_digits(text, at, 3, 8)
    if c == "x":
        return _read_digits(text, at + 1, 2, 16)
    if c == "u":
        return _read_digits(text, at + 1, 4, 16)
    if c == "U":
        return _read_digits(text, at + 1, 8, 16)
    raise InvalidWord("an escape whose meaning differs between shells")


def _read_digits(text: str, at: int, max_digits: int, radix: int) -> tuple[str, int]:
    allowed = "0123456789abcdefABCDEF" if radix == 16 else "01234567"
    end = at
    while end < len(text) and end - at < max_digits and text[end] in allowed:
        end += 1
    if end == at:
        raise InvalidWord("an escape without digits")
    code = int(text[at:end], radix)
    if code == 0 or code > 0x7E:
        # NUL ends the word in bash; bytes above ASCII depend on the locale.
        raise InvalidWord("an escape for a byte that is not plain text")
    return chr(code), end
