"""Reads one shell word from its source text: quotes, escapes, braces, tildes, patterns.

Not a tokenizer: the tree tells where a word begins and ends, and this module checks it. The caller
passes the expansions inside a word as spans, since the commands in them are listed separately.
Here-documents are read a second time, to compare with the tree. `guess_commands` splits a line that
does not parse.

Source text is handled as one character per byte, so that its offsets are those of the tree:
`encode_source` and `decode_source` convert.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.lib.shell.syntax.braces import UnsupportedBraces, expand_braces
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

_ANSI_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r",
    "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_METACHARACTERS = frozenset(" \t\n;&|<>()")
_SPECIAL_PARAMETERS = frozenset("?#$!")  # always a number
PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")  # means itself in every context

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
PLAIN_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")
_KEYWORDS = word_set(
    "if then elif else fi for while until do done case in esac select function time coproc ! { } [["
)
_TOKEN = compile_lazily(
    r"""'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s;&|()`'"\\]+|\n|[;&|()`]|[^\S\n]+|.""", re.DOTALL
)
_INNER_TILDE = re.compile(r"[=:]~")

# unknown: may run commands or have any value. listed: a substitution whose commands are listed
# separately, or plain arithmetic. variable: `text` is its name. static: `text` is its value.
ExpansionKind = Literal["unknown", "listed", "variable", "static"]


class Expansion(NamedTuple):
    """An expansion inside a word: where it ends, and what is known about its value."""

    end: int
    kind: ExpansionKind
    text: str = ""


ExpansionSpans = Mapping[int, Expansion]  # by the offset at which they begin
QuotedChar = tuple[str, bool]  # a character, and whether it was quoted


class InvalidWord(Exception):
    """The text is not one word to bash."""


def encode_source(text: str) -> str:
    """Text as one character per byte."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def decode_source(source: str) -> str:
    """Source text as it was written."""
    return source if source.isascii() else source.encode("latin-1").decode("utf-8", "replace")


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
        """Skip the expansion that begins at `at`, and return where it ends."""
        expansion = self.spans.get(self.base + at)
        if expansion is None:
            raise InvalidWord("an expansion that was not recognised")
        end, kind, text = expansion
        if kind == "static" and (quoted or text.isdigit()):
            self.chars.extend((c, True) for c in text)
            return end - self.base
        is_number = kind == "variable" and text in _SPECIAL_PARAMETERS
        if kind == "unknown":
            self.is_plain_data = False
        elif kind == "variable" and not is_number:
            self.variable_names.append(text)
        self.may_split = self.may_split or not (quoted or is_number)
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
                # A translated string: the message catalogue decides its text.
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
    if PLAIN_WORD.fullmatch(text):
        return [Word(text, text)]
    whole = _scan_word(text, spans, base)
    if whole.is_dynamic or "{" not in text:
        return [_make_word(text, whole)]
    try:
        scans = [_scan_word(made, {}, 0) for made in expand_braces(text)]
    except UnsupportedBraces as unclear:
        raise InvalidWord(str(unclear)) from unclear
    # A word that braces leave empty vanishes; a quoted empty one has a mark in `chars`.
    return [_make_word(text, scan) for scan in scans if scan.chars]


def read_assignment_value(text: str, spans: ExpansionSpans, base: int = 0) -> Word:
    """The value of an assignment: always one word, in which braces are plain characters."""
    return _make_word(text, _scan_word(text, spans, base))


def _scan_word(text: str, spans: ExpansionSpans, base: int) -> _WordScanner:
    scan = _WordScanner(text, spans, base)
    scan.run()
    return scan


def check_heredoc_body(text: str, spans: ExpansionSpans, base: int) -> None:
    """Raise InvalidWord if a here-document's body has an expansion that is not in `spans`."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "`" or (text[at] == "$" and _is_expansion(text, at + 1, quoted=True)):
            expansion = spans.get(base + at)
            if expansion is None:
                raise InvalidWord("an expansion that was not recognised")
            at = expansion.end - base
        else:
            at += 1


def _make_word(source: str, scan: _WordScanner) -> Word:
    source = decode_source(source)
    if scan.is_dynamic:
        return Word(
            source,
            None,
            is_plain_data=scan.is_plain_data,
            may_split=scan.may_split,
            variable_names=tuple(scan.variable_names),
        )
    chars = scan.chars
    if _has_inner_tilde(chars) or _is_ambiguous_glob(chars):
        return Word(source, None)
    text = decode_source("".join(c for c, _ in chars))
    is_glob = any(c in "*?[" and not quoted for c, quoted in chars if c)
    return Word(source, text, is_glob=is_glob, has_tilde=chars[:1] == [("~", False)])


def _is_ambiguous_glob(chars: list[QuotedChar]) -> bool:
    """Whether programs read the pattern in different ways: classes, or quoted marks in it."""
    marks = {char for char in chars if char[0] and char[0] in "*?[]\\"}
    if not any(c in "*?[" and not quoted for c, quoted in marks):
        return False
    text = "".join(c for c, _ in chars)
    return any(quoted for _, quoted in marks) or bool(re.search(r"\[(?:[!^]|.*\[[:.=])", text))


def _has_inner_tilde(chars: list[QuotedChar]) -> bool:
    """Whether it looks like `NAME=~/x`: bash expands that tilde anywhere."""
    if ("~", False) not in chars:
        return False
    text = "".join(c for c, _ in chars)
    match = ASSIGNMENT.match(text)
    return match is not None and bool(_INNER_TILDE.search(text, match.end() - 1))


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


# ---------------------------------------------------------------- here-documents


def check_heredoc(
    source: str, start: "Node", body: "Node | None", end: "Node", seen_lines: set[int]
) -> str:
    """Why bash would read another here-document than the tree; "" if it reads the same."""
    newline = source.find("\n", start.end_byte)
    if newline < 0:
        return "a here-document without an end"
    if newline in seen_lines:
        return "two here-documents on one line"
    seen_lines.add(newline)
    word = source[start.start_byte : start.end_byte]
    delimiter = _parse_delimiter(word)
    if delimiter is None:
        return "a here-document with an unusual delimiter"
    tabs = source[: start.start_byte].rstrip(" \t").endswith("<<-")
    at = newline + 1
    if body is not None and body.start_byte < at:
        return "a here-document that begins too early"
    while at <= len(source):
        stop = source.find("\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        if (line.lstrip("\t") if tabs else line) == delimiter:
            return (
                ""
                if at <= end.start_byte < end.end_byte <= stop
                else "an unclear end of here-document"
            )
        at = stop + 1
    return "a here-document without an end"


def get_heredoc_text(source: str, start: "Node", body: "Node | None") -> str | None:
    """The text of a here-document, or None if the shell would expand something in it."""
    if body is None:
        return ""
    text = source[body.start_byte : body.end_byte]
    if not is_heredoc_quoted(source, start) and any(c in "$`\\" for c in text):
        return None
    return decode_source(text)


def is_heredoc_quoted(source: str, start: "Node") -> bool:
    """Whether the delimiter is quoted, so that the body is plain text."""
    return any(c in "'\"\\" for c in source[start.start_byte : start.end_byte])


def _parse_delimiter(word: str) -> str | None:
    plain = word.strip("'\"").replace("\\", "")
    if not plain or not all(c.isalnum() or c in "_-.!+" for c in plain):
        return None
    return plain if word in (plain, f"'{plain}'", f'"{plain}"', "\\" + plain) else None


# ---------------------------------------------------------------- lines that do not parse


def guess_commands(source: str) -> tuple[SimpleCommand, ...]:
    """The commands that the text seems to contain: rather too many than too few.

    Used to deny, never to allow."""
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
