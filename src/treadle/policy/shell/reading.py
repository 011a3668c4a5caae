"""The ground of the reader: tokens, doubts, and words with what is expanded in them.

A word's own text is read by `words.py`; here its expansions are found in the tree, and the commands
inside substitutions handed on. Above: `simple.py` (one command) and `tree.py` (the whole line).
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.policy.listed import listed
from treadle.policy.shell.facts import START, Moves, Part, Redirect, Word
from treadle.policy.shell.tokens import Token, check_tokens
from treadle.policy.shell.words import LISTED, STATIC, UNCLEAR, BadWord, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

DEPTH_LIMIT = 60
WORDS = listed(
    "word string raw_string ansi_c_string translated_string concatenation number "
    "simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion brace_expression extglob_pattern regex"
)
_EXPANSIONS = listed(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion"
)
_WHOLE = re.compile(r'"\$(?:\{(\w+)\}|(\w+))"')
_TRIMMED = re.compile(r"\$\{([A-Za-z_]\w*)(?:%%?|##?)[\w.,*/?+@-]*\}", re.ASCII)
_NUMBERS = frozenset({"$(nproc)", "$(nproc --all)", "`nproc`"})
_PRINTED = re.compile(
    r"\$\(cat <<[ \t]*(?P<quote>['\"])(?P<end>\w+)(?P=quote)\n(?P<body>.*)\n(?P=end)\n?[ \t]*\)",
    re.DOTALL,
)
_PLAIN_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")


class WordReader(ABC):
    """Collects parts, tokens and doubts while a tree is walked once."""

    def __init__(self, source: str, script_depth: int = 0) -> None:
        self.source = source
        self.script_depth = script_depth
        self.known: dict[str, Word | None] = {}
        self.relied_on: set[str] = set()
        self.parts: list[Part] = []
        self.tokens: list[Token] = []
        self.doubts: list[str] = []
        self.assigned: set[str] = set()
        self.moves: Moves | None = START
        self.heredoc_lines: set[int] = set()
        self.owner = 0
        self.piped = False

    @abstractmethod
    def statement(self, node: "Node", depth: int) -> Moves | None:
        """Read one statement; answer where the shell stands if it succeeds."""

    @abstractmethod
    def redirect(
        self, node: "Node", depth: int, owner: int, troubles: list[str], late: list["Node"]
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""

    def doubt(self, reason: str) -> None:
        self.doubts.append(reason)

    def slice(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte]

    def token(self, node: "Node", kind: str, owner: int = 0) -> None:
        self.tokens.append(Token(node.start_byte, node.end_byte, kind, owner))

    def operator(self, node: "Node") -> None:
        if node.is_missing:
            self.doubt("does not parse as a shell command")
        elif node.end_byte > node.start_byte and self.slice(node) != "\n":
            keyword = self.slice(node)[0].isalpha()
            self.owner += keyword
            self.token(node, "keyword" if keyword else "operator", -self.owner)

    def learn(self, name: str, value: Word | None) -> None:
        """A variable has this value from here on; `still_known` says in the end if that was so."""
        plain = value is not None and value.text is not None and not value.tilde
        self.known[name] = value if plain else None

    def words(self, node: "Node", depth: int, owner: int, troubles: list[str]) -> list[Word]:
        self.token(node, "word", owner)
        if node.type == "process_substitution" and self.slice(node).startswith("<("):
            self.substitutions(node, depth)
            return [Word(text_of(self.slice(node)), None, stream=True)]
        variable = _variable(self.slice(node))
        value = self.known.get(variable)
        if value is not None:
            self.relied_on.add(variable)
            return [replace(value, source=text_of(self.slice(node)))]
        spans = self.expansions(node, depth, troubles)
        try:
            return read_word(self.slice(node), spans, node.start_byte)
        except BadWord as bad:
            self.doubt(str(bad))
            return [Word(text_of(self.slice(node)), None)]

    def loose_word(self, node: "Node", depth: int, owner: int) -> list[Word]:
        """A word of a loop or case: data, but its substitutions are commands."""
        troubles: list[str] = []
        words = self.words(node, depth, owner, troubles)
        listed = tuple(w for w in words if w.glob)
        for trouble in troubles:
            self.doubt(trouble)
        if listed:  # the shell looks up what a pattern stands for
            self.parts.append(Part((), source=text_of(self.slice(node)), moves=self.moves,
                                   patterns=listed))  # fmt: skip
        return words

    def expansions(
        self, node: "Node", depth: int, troubles: list[str]
    ) -> dict[int, tuple[int, str]]:
        """Where the expansions of a word are; the commands in them become parts."""
        spans: dict[int, tuple[int, str]] = {}
        if node.type not in _EXPANSIONS and not node.child_count:
            return spans
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type not in _EXPANSIONS:
                stack.extend(reversed(current.children))
                continue
            name = self.static(current) or self.expansion_name(current)
            if name == UNCLEAR and current.type != "process_substitution":
                troubles.append(f"an expansion that only the shell can read: {self.slice(current)}")
            spans[current.start_byte] = (current.end_byte, name)
            self.substitutions(current, depth)
        return spans

    def static(self, node: "Node") -> str:
        """The text that it stands for, if that can be read off it: marked, or ""."""
        if node.type != "command_substitution":
            return ""
        text = self.slice(node)
        if text in _NUMBERS:
            return STATIC + "1"
        found = _PRINTED.fullmatch(text)
        if found is None or f"\n{found['end']}\n" in f"\n{found['body']}\n":
            return ""
        return STATIC + found["body"].rstrip("\n")

    def expansion_name(self, node: "Node") -> str:
        kind, named = node.type, node.named_children
        if kind == "expansion" and (found := _TRIMMED.fullmatch(self.slice(node))):
            return found[1]
        if kind == "simple_expansion" and len(named) == 1:
            name = self.slice(named[0])
            plain = name.isidentifier() and name.isascii() and name != "_"
            return name if plain or name in ("?", "#", "$", "!") else UNCLEAR
        if kind == "expansion" and len(node.children) == 3 and len(named) == 1:
            name = self.slice(named[0])
            return name if named[0].type == "variable_name" and name.isidentifier() else UNCLEAR
        if kind == "arithmetic_expansion":
            return LISTED if _PLAIN_ARITHMETIC.fullmatch(self.slice(node)) else UNCLEAR
        return LISTED if kind == "command_substitution" else UNCLEAR

    def substitutions(self, node: "Node", depth: int) -> None:
        """The commands inside a substitution, at any depth below `node`."""
        if depth > DEPTH_LIMIT:
            self.doubt("nested too deep")
            return
        if node.type not in ("command_substitution", "process_substitution"):
            for child in node.named_children:
                self.substitutions(child, depth + 1)
            return
        outer, self.tokens = self.tokens, []
        moves, piped, self.piped = self.moves, self.piped, False
        for child in node.children:
            if not child.is_named:
                self.operator(child)
            elif child.type in ("file_redirect", "herestring_redirect"):
                troubles: list[str] = []
                redirect, _ = self.redirect(child, depth, 0, troubles, [])
                self.parts.append(Part((), (), (redirect,), text_of(self.slice(child)), self.moves))
            else:
                self.statement(child, depth + 2)
        if "`" in self.source[node.start_byte : node.start_byte + 1] and "\\" in self.slice(node):
            self.doubt("escapes inside backquotes")
        self.doubts.extend(check_tokens(self.source, self.tokens, node.start_byte, node.end_byte))
        self.tokens, self.moves, self.piped = outer, moves, piped


def still_known(names: set[str], parts: Iterable[Part]) -> bool:
    """Whether these variables are set once only, by all that the parts do."""
    counted = Counter[str]()
    todo = list(parts)
    while todo:
        part = todo.pop()
        todo += part.inner
        counted.update(a.name for a in part.assignments if a.name in names)
        if part.name in ("read", "eval", "source", "."):
            return False
    return all(count == 1 for count in counted.values())


def _variable(text: str) -> str:
    """The variable whose value, as one word, the text stands for."""
    found = _WHOLE.fullmatch(text)
    return found[1] or found[2] if found else ""


def text_of(source: str) -> str:
    """Source text, which travels as one character a byte, as it was written."""
    return source if source.isascii() else source.encode("latin-1").decode("utf-8", "replace")
