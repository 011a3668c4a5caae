"""The base of the reader: tokens, doubts, and words with the expansions in them.

`words.py` reads the text of a word; this module finds its expansions in the tree, and passes the
commands inside substitutions on. Base of `simple_command.py` (one command) and `parser.py` (the
whole line).
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.ast import NO_CD, Assignment, CdPaths, Redirect, SimpleCommand, Word
from treadle.lib.shell.syntax.tokens import Token, check_tokens
from treadle.lib.shell.syntax.words import (
    PLAIN_ARITHMETIC,
    Expansion,
    ExpansionSpans,
    InvalidWord,
    decode_source,
    read_word,
)
from treadle.lib.text.word_set import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_DEPTH = 60
INVALID_SYNTAX = "it is not valid shell syntax; check quotes, brackets and operators"
WORD_NODES = word_set(
    "word string raw_string ansi_c_string translated_string concatenation number "
    "simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion brace_expression extglob_pattern regex"
)
_EXPANSION_NODES = word_set(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion"
)
_VARIABLE = re.compile(r'(?P<quote>"?)\$(?:\{(?P<braced>\w+)\}|(?P<name>\w+))(?P=quote)')
_TRIM_EXPANSION = re.compile(r"\$\{([A-Za-z_]\w*)(?:%%?|##?)[\w.,*/?+@-]*\}", re.ASCII)
_NUMERIC_SUBSTITUTIONS = frozenset({"$(nproc)", "$(nproc --all)", "`nproc`"})
_CAT_HEREDOC = re.compile(
    r"\$\(cat <<[ \t]*(?P<quote>['\"])(?P<end>\w+)(?P=quote)\n(?P<body>.*)\n(?P=end)\n?[ \t]*\)",
    re.DOTALL,
)


def describe_node(kind: str) -> str:
    """The reason for a part of the syntax tree that is not supported."""
    return INVALID_SYNTAX if kind == "ERROR" else f"shell syntax that is not supported: {kind}"


class CommandParts(msgspec.Struct):
    """The parts of a simple command while it is read."""

    index: int = 0  # of the command, for its tokens
    argv: list[Word] = []
    assignments: list[Assignment] = []
    redirects: list[Redirect] = []
    doubts: list[str] = []
    loop_globs: tuple[Word, ...] = ()
    deferred: list["Node"] = []  # the rest of a line on which a here-document begins

    def build(self, source: str, cd_paths: CdPaths | None, is_piped: bool = False) -> SimpleCommand:
        parts = (tuple(self.argv), tuple(self.assignments), tuple(self.redirects), source, cd_paths)
        return SimpleCommand(
            *parts, tuple(self.doubts), is_piped=is_piped, loop_globs=self.loop_globs
        )


class WordReader(ABC):
    """Collects commands, tokens and doubts in one walk over the tree.

    `unwrap` finds the commands inside a command; the parser passes it in.
    """

    def __init__(self, source: str, unwrap: Callable[[SimpleCommand], SimpleCommand]) -> None:
        self.source = source
        self.unwrap = unwrap
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
        """Read one statement; return the folders the shell may be in if it succeeds."""

    @abstractmethod
    def read_redirect(
        self, node: "Node", depth: int, parts: CommandParts
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""

    # ---------------------------------------------------------------- what is collected

    def add_doubt(self, reason: str) -> None:
        self.doubts.append(reason)

    def get_source(self, node: "Node") -> str:
        """The source of a node, one character per byte."""
        return self.source[node.start_byte : node.end_byte]

    def get_text(self, node: "Node") -> str:
        """The source of a node as it was written."""
        return decode_source(self.get_source(node))

    def add_token(self, node: "Node", kind: str, command_index: int = 0) -> None:
        self.tokens.append(Token(node.start_byte, node.end_byte, kind, command_index))

    def add_operator(self, node: "Node") -> None:
        if node.is_missing:
            self.add_doubt(INVALID_SYNTAX)
        elif node.end_byte > node.start_byte and self.get_source(node) != "\n":
            keyword = self.get_source(node)[0].isalpha()
            self.command_index += keyword
            self.add_token(node, "keyword" if keyword else "operator", -self.command_index)

    def start_command(self) -> CommandParts:
        self.command_index += 1
        return CommandParts(self.command_index)

    def add_command(self, node: "Node", parts: CommandParts) -> None:
        self.commands.append(parts.build(self.get_text(node), self.cd_paths))

    def set_variable(self, name: str, value: Word | None) -> None:
        """The variable has this value from here on; `is_assigned_once` checks that at the end."""
        plain = value is not None and value.text is not None and not value.has_tilde
        self.variables[name] = value if plain else None

    # ---------------------------------------------------------------- words

    def read_words(self, node: "Node", depth: int, parts: CommandParts) -> list[Word]:
        self.add_token(node, "word", parts.index)
        source = self.get_source(node)
        if node.type == "process_substitution" and source.startswith("<("):
            self.read_substitutions(node, depth)
            return [Word(decode_source(source), None, is_process_substitution=True)]
        match = _VARIABLE.fullmatch(source)
        variable = match["braced"] or match["name"] if match else ""
        value = self.variables.get(variable)
        is_quoted = match is not None and bool(match["quote"])
        if value is not None and (is_quoted or value.is_glob):
            self.used_variables.add(variable)
            return [replace(value, source=decode_source(source), may_split=not is_quoted)]
        spans = self.read_expansions(node, depth, parts.doubts)
        try:
            return read_word(source, spans, node.start_byte)
        except InvalidWord as error:
            self.add_doubt(str(error))
            return [Word(decode_source(source), None)]

    def read_data_word(self, node: "Node", depth: int, command_index: int) -> list[Word]:
        """A word of a loop or case: data, but its substitutions are commands."""
        words = self.read_words(node, depth, CommandParts(command_index, doubts=self.doubts))
        globs = tuple(w for w in words if w.is_glob)
        if globs:  # the shell reads folders to expand them
            self.add_command(node, CommandParts(loop_globs=globs))
        return words

    def read_expansions(self, node: "Node", depth: int, doubts: list[str]) -> ExpansionSpans:
        """Where the expansions of a word are; the commands in them are collected."""
        spans: dict[int, Expansion] = {}
        if node.type not in _EXPANSION_NODES and not node.child_count:
            return spans
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type not in _EXPANSION_NODES:
                stack.extend(reversed(current.children))
                continue
            expansion = self.classify_expansion(current)
            if expansion.kind == "unknown" and current.type != "process_substitution":
                doubts.append(f"an expansion known only at run time: {self.get_source(current)}")
            spans[current.start_byte] = expansion
            self.read_substitutions(current, depth)
        return spans

    def classify_expansion(self, node: "Node") -> Expansion:
        end, kind, source = node.end_byte, node.type, self.get_source(node)
        if kind == "command_substitution":
            text = _find_static_text(source)
            return Expansion(end, "listed") if text is None else Expansion(end, "static", text)
        if kind == "arithmetic_expansion" and PLAIN_ARITHMETIC.fullmatch(source):
            return Expansion(end, "listed")
        if kind == "expansion" and (trim := _TRIM_EXPANSION.fullmatch(source)):
            return Expansion(end, "variable", trim[1])
        only = node.named_children[0] if node.named_child_count == 1 else None
        name = self.get_source(only) if only else ""
        if kind == "simple_expansion":
            is_plain = name.isidentifier() and name.isascii() and name != "_"
            is_known = is_plain or name in ("?", "#", "$", "!")
        else:
            is_name = only is not None and only.type == "variable_name" and name.isidentifier()
            is_known = is_name and kind == "expansion" and node.child_count == 3
        return Expansion(end, "variable", name) if is_known else Expansion(end, "unknown")

    def read_substitutions(self, node: "Node", depth: int) -> None:
        """The commands inside a substitution, at any depth below `node`."""
        if depth > MAX_DEPTH:
            self.add_doubt("nested too deep")
            return
        if node.type not in ("command_substitution", "process_substitution"):
            for child in node.named_children:
                self.read_substitutions(child, depth + 1)
            return
        outer_tokens, self.tokens = self.tokens, []
        cd_paths, is_piped, self.is_piped = self.cd_paths, self.is_piped, False
        for child in node.children:
            if not child.is_named:
                self.add_operator(child)
            elif child.type in ("file_redirect", "herestring_redirect"):
                redirect, _ = self.read_redirect(child, depth, CommandParts())
                self.add_command(child, CommandParts(redirects=[redirect]))
            else:
                self.read_statement(child, depth + 2)
        if self.source.startswith("`", node.start_byte) and "\\" in self.get_source(node):
            self.add_doubt("escapes inside backquotes")
        self.doubts.extend(check_tokens(self.source, self.tokens, node.start_byte, node.end_byte))
        self.tokens, self.cd_paths, self.is_piped = outer_tokens, cd_paths, is_piped


def is_assigned_once(names: set[str], commands: Iterable[SimpleCommand]) -> bool:
    """Whether the commands, with all inner ones, set each of these variables only once."""
    counts = Counter[str]()
    todo = list(commands)
    while todo:
        command = todo.pop()
        todo += command.inner
        counts.update(a.name for a in command.assignments if a.name in names)
        if command.name in ("read", "eval", "source", "."):
            return False
    return all(count == 1 for count in counts.values())


def _find_static_text(substitution: str) -> str | None:
    """The value of a substitution, if its text shows it."""
    if substitution in _NUMERIC_SUBSTITUTIONS:
        return "1"
    match = _CAT_HEREDOC.fullmatch(substitution)
    if match is None or f"\n{match['end']}\n" in f"\n{match['body']}\n":
        return None
    return match["body"].rstrip("\n")
