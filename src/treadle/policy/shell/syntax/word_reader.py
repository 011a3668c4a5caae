"""The ground of the reader: tokens, doubts, and words with what is expanded in them.

A word's own text is read by `words.py`; here its expansions are found in the tree, and the commands
inside substitutions handed on. Above: `simple_command.py` (one command) and `parser.py` (the whole line).
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.policy.shell.ast import NO_CD, CdPaths, Redirect, SimpleCommand, Word
from treadle.policy.shell.syntax.tokens import Token, check_tokens
from treadle.policy.shell.syntax.words import (
    LISTED_EXPANSION,
    STATIC_EXPANSION,
    UNKNOWN_EXPANSION,
    InvalidWord,
    read_word,
)
from treadle.policy.wordset import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60
WORD_NODES = word_set(
    "word string raw_string ansi_c_string translated_string concatenation number "
    "simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion brace_expression extglob_pattern regex"
)
_EXPANSION_NODES = word_set(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion"
)
_QUOTED_VARIABLE = re.compile(r'"\$(?:\{(\w+)\}|(\w+))"')
_TRIM_EXPANSION = re.compile(r"\$\{([A-Za-z_]\w*)(?:%%?|##?)[\w.,*/?+@-]*\}", re.ASCII)
_NUMERIC_SUBSTITUTIONS = frozenset({"$(nproc)", "$(nproc --all)", "`nproc`"})
_CAT_HEREDOC = re.compile(
    r"\$\(cat <<[ \t]*(?P<quote>['\"])(?P<end>\w+)(?P=quote)\n(?P<body>.*)\n(?P=end)\n?[ \t]*\)",
    re.DOTALL,
)
_PLAIN_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")


class WordReader(ABC):
    """Collects parts, tokens and doubts while a tree is walked once."""

    def __init__(self, source: str, script_depth: int = 0) -> None:
        self.source = source
        self.script_depth = script_depth
        self.variables: dict[str, Word | None] = {}
        self.used_variables: set[str] = set()
        self.commands: list[SimpleCommand] = []
        self.tokens: list[Token] = []
        self.doubts: list[str] = []
        self.assigned_variables: set[str] = set()
        self.cd_paths: CdPaths | None = NO_CD
        self.heredoc_lines: set[int] = set()
        self.command_index = 0
        self.is_piped = False

    @abstractmethod
    def read_statement(self, node: "Node", depth: int) -> CdPaths | None:
        """Read one statement; answer where the shell stands if it succeeds."""

    @abstractmethod
    def read_redirect(
        self,
        node: "Node",
        depth: int,
        command_index: int,
        doubts: list[str],
        deferred: list["Node"],
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""

    def add_doubt(self, reason: str) -> None:
        self.doubts.append(reason)

    def get_source(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte]

    def add_token(self, node: "Node", kind: str, command_index: int = 0) -> None:
        self.tokens.append(Token(node.start_byte, node.end_byte, kind, command_index))

    def add_operator(self, node: "Node") -> None:
        if node.is_missing:
            self.add_doubt("does not parse as a shell command")
        elif node.end_byte > node.start_byte and self.get_source(node) != "\n":
            keyword = self.get_source(node)[0].isalpha()
            self.command_index += keyword
            self.add_token(node, "keyword" if keyword else "operator", -self.command_index)

    def set_variable(self, name: str, value: Word | None) -> None:
        """A variable has this value from here on; `still_known` says in the end if that was so."""
        plain = value is not None and value.text is not None and not value.has_tilde
        self.variables[name] = value if plain else None

    def read_words(
        self, node: "Node", depth: int, command_index: int, doubts: list[str]
    ) -> list[Word]:
        self.add_token(node, "word", command_index)
        if node.type == "process_substitution" and self.get_source(node).startswith("<("):
            self.read_substitutions(node, depth)
            return [Word(decode_source(self.get_source(node)), None, is_process_substitution=True)]
        variable = _match_quoted_variable(self.get_source(node))
        value = self.variables.get(variable)
        if value is not None:
            self.used_variables.add(variable)
            return [replace(value, source=decode_source(self.get_source(node)))]
        spans = self.read_expansions(node, depth, doubts)
        try:
            return read_word(self.get_source(node), spans, node.start_byte)
        except InvalidWord as bad:
            self.add_doubt(str(bad))
            return [Word(decode_source(self.get_source(node)), None)]

    def read_data_word(self, node: "Node", depth: int, command_index: int) -> list[Word]:
        """A word of a loop or case: data, but its substitutions are commands."""
        troubles: list[str] = []
        words = self.read_words(node, depth, command_index, troubles)
        listed = tuple(w for w in words if w.is_glob)
        for trouble in troubles:
            self.add_doubt(trouble)
        if listed:  # the shell looks up what a pattern stands for
            self.commands.append(SimpleCommand((), source=decode_source(self.get_source(node)), cd_paths=self.cd_paths,
                                   loop_globs=listed))  # fmt: skip
        return words

    def read_expansions(
        self, node: "Node", depth: int, doubts: list[str]
    ) -> dict[int, tuple[int, str]]:
        """Where the expansions of a word are; the commands in them become parts."""
        spans: dict[int, tuple[int, str]] = {}
        if node.type not in _EXPANSION_NODES and not node.child_count:
            return spans
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type not in _EXPANSION_NODES:
                stack.extend(reversed(current.children))
                continue
            name = self.get_static_text(current) or self.get_expansion_name(current)
            if name == UNKNOWN_EXPANSION and current.type != "process_substitution":
                doubts.append(
                    f"an expansion that only the shell can read: {self.get_source(current)}"
                )
            spans[current.start_byte] = (current.end_byte, name)
            self.read_substitutions(current, depth)
        return spans

    def get_static_text(self, node: "Node") -> str:
        """The text that it stands for, if that can be read off it: marked, or ""."""
        if node.type != "command_substitution":
            return ""
        text = self.get_source(node)
        if text in _NUMERIC_SUBSTITUTIONS:
            return STATIC_EXPANSION + "1"
        found = _CAT_HEREDOC.fullmatch(text)
        if found is None or f"\n{found['end']}\n" in f"\n{found['body']}\n":
            return ""
        return STATIC_EXPANSION + found["body"].rstrip("\n")

    def get_expansion_name(self, node: "Node") -> str:
        kind, named = node.type, node.named_children
        if kind == "expansion" and (found := _TRIM_EXPANSION.fullmatch(self.get_source(node))):
            return found[1]
        if kind == "simple_expansion" and len(named) == 1:
            name = self.get_source(named[0])
            plain = name.isidentifier() and name.isascii() and name != "_"
            return name if plain or name in ("?", "#", "$", "!") else UNKNOWN_EXPANSION
        if kind == "expansion" and len(node.children) == 3 and len(named) == 1:
            name = self.get_source(named[0])
            return (
                name
                if named[0].type == "variable_name" and name.isidentifier()
                else UNKNOWN_EXPANSION
            )
        if kind == "arithmetic_expansion":
            return (
                LISTED_EXPANSION
                if _PLAIN_ARITHMETIC.fullmatch(self.get_source(node))
                else UNKNOWN_EXPANSION
            )
        return LISTED_EXPANSION if kind == "command_substitution" else UNKNOWN_EXPANSION

    def read_substitutions(self, node: "Node", depth: int) -> None:
        """The commands inside a substitution, at any depth below `node`."""
        if depth > MAX_DEPTH:
            self.add_doubt("nested too deep")
            return
        if node.type not in ("command_substitution", "process_substitution"):
            for child in node.named_children:
                self.read_substitutions(child, depth + 1)
            return
        outer, self.tokens = self.tokens, []
        moves, piped, self.is_piped = self.cd_paths, self.is_piped, False
        for child in node.children:
            if not child.is_named:
                self.add_operator(child)
            elif child.type in ("file_redirect", "herestring_redirect"):
                troubles: list[str] = []
                redirect, _ = self.read_redirect(child, depth, 0, troubles, [])
                self.commands.append(
                    SimpleCommand(
                        (), (), (redirect,), decode_source(self.get_source(child)), self.cd_paths
                    )
                )
            else:
                self.read_statement(child, depth + 2)
        if "`" in self.source[node.start_byte : node.start_byte + 1] and "\\" in self.get_source(
            node
        ):
            self.add_doubt("escapes inside backquotes")
        self.doubts.extend(check_tokens(self.source, self.tokens, node.start_byte, node.end_byte))
        self.tokens, self.cd_paths, self.is_piped = outer, moves, piped


def is_assigned_once(names: set[str], commands: Iterable[SimpleCommand]) -> bool:
    """Whether these variables are set once only, by all that the parts do."""
    counted = Counter[str]()
    todo = list(commands)
    while todo:
        part = todo.pop()
        todo += part.inner
        counted.update(a.name for a in part.assignments if a.name in names)
        if part.name in ("read", "eval", "source", "."):
            return False
    return all(count == 1 for count in counted.values())


def _match_quoted_variable(text: str) -> str:
    """The variable whose value, as one word, the text stands for."""
    found = _QUOTED_VARIABLE.fullmatch(text)
    return found[1] or found[2] if found else ""


def decode_source(source: str) -> str:
    """Source text, which travels as one character a byte, as it was written."""
    return source if source.isascii() else source.encode("latin-1").decode("utf-8", "replace")
