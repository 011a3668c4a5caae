"""Reads one simple command of the tree: words with their expansions, assignments, redirections.

Base of the reader in `parser.py`, which knows how commands are combined and reads the commands
inside substitutions. `words.py` reads the text of a word.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.ast import (
    NO_CD,
    Assignment,
    CdPaths,
    Redirect,
    RedirectEffect,
    SimpleCommand,
    Word,
    apply_cd,
    merge_cd_paths,
)
from treadle.lib.shell.syntax.words import (
    PLAIN_ARITHMETIC,
    PLAIN_WORD,
    Expansion,
    ExpansionSpans,
    InvalidWord,
    check_heredoc,
    check_heredoc_body,
    decode_source,
    get_heredoc_text,
    is_heredoc_quoted,
    read_assignment_value,
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
RESERVED_WORDS = word_set(
    "if then elif else fi for while until do done case esac select function in { } ! ]]"
)
_REDIRECT_EFFECTS: dict[str, RedirectEffect] = {
    "<": "read", ">": "write", ">>": "write", ">|": "write", "&>": "write", "&>>": "write",
    "<>": "both", "<&": "copy", ">&": "copy", "<&-": "copy", ">&-": "copy",
}  # fmt: skip
REDIRECT_NODES = ("file_redirect", "herestring_redirect", "heredoc_redirect")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^=]*\])?\+?=")  # or to an element
_SAME_SHELL_BUILTINS = word_set("command builtin eval time")  # run in the shell itself
_OTHER_ARGUMENT_NODES = ("command_name", "=", "==", "$", "=~", "!=")
_DESCRIPTOR_TARGET = re.compile(r"[0-9]+-?|-|[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_STATE_COMMANDS = RESERVED_WORDS | _SAME_SHELL_BUILTINS | {"read", "cd", "pushd", "popd"}


class Token(NamedTuple):
    """A piece of source that the reader understood."""

    start: int
    end: int
    kind: str  # word keyword operator redirect descriptor comment heredoc
    command_index: int  # the command it belongs to


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


class CommandReader(ABC):
    """Collects commands, tokens and doubts in one walk over the tree."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.variables: dict[str, Word | None] = {}
        self.used_variables: set[str] = set()
        self.may_be_split = False  # one of them is used without quotes: IFS decides what it becomes
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
    def read_substitutions(self, node: "Node", depth: int) -> None:
        """The commands inside a substitution, at any depth below `node`."""

    @abstractmethod
    def unwrap(self, command: SimpleCommand) -> SimpleCommand:
        """The command with the commands that it runs."""

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
        start, end = node.start_byte, node.end_byte
        self.tokens.append(Token(start, end, "word", parts.index))
        source = self.source[start:end]
        if PLAIN_WORD.fullmatch(source):  # most words
            return [Word(source, source)]
        if node.type == "process_substitution" and source.startswith("<("):
            self.read_substitutions(node, depth)
            return [Word(decode_source(source), None, is_process_substitution=True)]
        match = _VARIABLE.fullmatch(source)
        variable = match["braced"] or match["name"] if match else ""
        value = self.variables.get(variable)
        is_quoted = match is not None and bool(match["quote"])
        is_plain = value is not None and PLAIN_WORD.fullmatch(value.text or "") is not None
        is_argument = node.type != "command_name"
        if value is not None and (is_quoted or value.is_glob or (is_plain and is_argument)):
            self.used_variables.add(variable)
            self.may_be_split = self.may_be_split or not is_quoted
            return [replace(value, source=decode_source(source), may_split=not is_quoted)]
        spans = self.read_expansions(node, depth, parts.doubts)
        try:
            return read_word(source, spans, start)
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

    # ---------------------------------------------------------------- one command

    def read_simple_command(
        self, node: "Node", depth: int, extra_redirects: tuple["Node", ...]
    ) -> CdPaths | None:
        """One simple command; `extra_redirects` are redirections that the tree has above it."""
        parts = self.start_command()
        for child in (*node.children, *extra_redirects):
            if child.type == "heredoc_redirect" and child in extra_redirects:
                parts.argv += self.recover_dropped_dash(node, child, parts.index)
            if child.type == "variable_assignment":
                self.read_assignment(child, depth, parts)
            elif child.type in REDIRECT_NODES:
                redirect, more = self.read_redirect(child, depth, parts)
                parts.redirects.append(redirect)
                parts.argv += more
            elif child.type in WORD_NODES or child.type in _OTHER_ARGUMENT_NODES:
                parts.argv += self.read_words(child, depth, parts)
            else:
                self.read_statement(child, depth + 1)
                self.add_doubt(f"{describe_node(child.type)} in a command")
        last = max((node, *extra_redirects), key=attrgetter("end_byte"))
        text = self.source[node.start_byte : last.end_byte]
        text = text if text.isascii() else decode_source(text)
        command = parts.build(text, self.cd_paths, self.is_piped)
        self.commands.append(command)
        success = self.cd_paths
        if command.argv and command.argv[0].text in _STATE_COMMANDS:
            success = self.apply_to_shell(command)
        if parts.deferred:
            self.read_deferred(parts.deferred, depth)
        return success

    def apply_to_shell(self, command: SimpleCommand) -> CdPaths | None:
        """Note what the command changes in the shell; return the folders if it succeeds."""
        name = command.name
        if name in RESERVED_WORDS:
            self.add_doubt("a reserved word where a command is expected")
        if name == "read":
            self.assigned_variables.update(w.text for w in command.argv[1:] if w.text)
        if name in ("cd", "pushd", "popd"):
            success = apply_cd(self.cd_paths, command.argv)
            self.cd_paths = merge_cd_paths(self.cd_paths, success)
            return success
        if name in _SAME_SHELL_BUILTINS and _runs_cd(self.unwrap(command)):
            self.cd_paths = None
        return self.cd_paths

    def read_deferred(self, nodes: Iterable["Node"], depth: int) -> None:
        """The rest of a line on which a here-document begins."""
        for node in nodes:
            if node.is_named:
                self.read_statement(node, depth + 1)
            else:
                self.add_operator(node)

    def recover_dropped_dash(self, node: "Node", following: "Node", index: int) -> list[Word]:
        """The single `-` before a here-document, which the tree leaves out."""
        gap = self.source[node.end_byte : following.start_byte]
        if gap.strip(" \t") != "-" or gap == "-":
            return []
        at = node.end_byte + gap.index("-")
        self.tokens.append(Token(at, at + 1, "word", index))
        return [Word("-", "-")]

    def read_redirect(
        self, node: "Node", depth: int, parts: CommandParts
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""
        if node.type == "heredoc_redirect":
            return self.read_heredoc(node, depth, parts)
        operator, words = "", list[Word]()
        for child in node.children:
            if child.type == "file_descriptor":
                self.add_token(child, "descriptor")
                if not self.get_source(child).isdigit():
                    self.add_doubt(f"a redirection of the descriptor {self.get_source(child)}")
            elif not child.is_named:
                operator += self.get_source(child)
                self.add_token(child, "redirect")
            else:
                more = self.read_words(child, depth, parts)
                if not words and len(more) != 1:
                    self.add_doubt("braces in the target of a redirection")
                words += more
        target = words[0] if words else None
        if node.type == "herestring_redirect":
            return Redirect("<<<", "data", target, target.text if target else None), words[1:]
        if operator.endswith("-"):
            return Redirect(operator, "copy"), words  # closes a descriptor; arguments follow
        effect = _REDIRECT_EFFECTS.get(operator)
        if effect is None:
            self.add_doubt(f"the redirection {operator} is not supported")
            effect = "both"
        if effect == "copy" and target and not _DESCRIPTOR_TARGET.fullmatch(target.source):
            # bash reads such a target twice, and reads a leading `-` as the whole target.
            self.add_doubt(f"the redirection {operator}{target.source} is not supported")
        if effect == "copy" and target and not (target.text or "").rstrip("-").isdigit():
            # `>& file` opens the file; only a number duplicates a descriptor.
            effect = "copy" if target.text == "-" else "both"
        if target is None:
            self.add_doubt("a redirection without a target")
        return Redirect(operator, effect, target), words[1:]

    def read_heredoc(
        self, node: "Node", depth: int, parts: CommandParts
    ) -> tuple[Redirect, list[Word]]:
        words: list[Word] = []
        start = body = end = None
        body_spans: ExpansionSpans = {}
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
                self.add_token(child, "word", parts.index)
            elif child.type == "heredoc_body":
                body = child
                self.add_token(child, "heredoc")
                body_spans = self.read_expansions(child, depth, parts.doubts)
            elif child.type == "heredoc_end":
                end = child
                self.add_token(child, "heredoc")
            elif child.type in ("<<", "<<-"):
                self.add_token(child, "redirect")
            elif child.type == "file_descriptor":
                self.add_token(child, "descriptor")
            elif child.type in WORD_NODES:
                words += self.read_words(child, depth, parts)
            elif child.type == "file_redirect":
                redirect, more = self.read_redirect(child, depth, parts)
                self.add_command(child, CommandParts(redirects=[redirect]))
                words += more
            else:
                self.is_piped = self.is_piped or child.type == "pipeline"
                parts.deferred.append(child)
        if start is None or end is None:
            self.add_doubt("a here-document without an end")
            return Redirect("<<", "data"), words
        doubt = check_heredoc(self.source, start, body, end, self.heredoc_lines)
        if doubt:
            self.add_doubt(doubt)
        if body is not None and not is_heredoc_quoted(self.source, start):
            try:
                check_heredoc_body(self.get_source(body), body_spans, body.start_byte)
            except InvalidWord as error:
                self.add_doubt(str(error))
        return Redirect("<<", "data", None, get_heredoc_text(self.source, start, body)), words

    def read_assignment(self, node: "Node", depth: int, parts: CommandParts) -> None:
        self.add_token(node, "word", parts.index)
        spans = self.read_expansions(node, depth, parts.doubts)
        name_node, value_node = node.children[0], node.children[-1]
        name = self.get_source(name_node)
        if name_node.type != "variable_name" or value_node.type == "array":
            self.add_doubt("an assignment to an array")
        text = self.get_source(node)
        if not _ASSIGNMENT.match(text):
            self.add_doubt("a word that only looks like an assignment")
        at = text.find("=") + 1
        try:
            value = read_assignment_value(text[at:], spans, node.start_byte + at)
        except InvalidWord as error:
            self.add_doubt(str(error))
            value = Word(decode_source(text[at:]), None)
        self.assigned_variables.add(name)
        parts.assignments.append(Assignment(name, value))


def _find_static_text(substitution: str) -> str | None:
    """The value of a substitution, if its text shows it."""
    if substitution in _NUMERIC_SUBSTITUTIONS:
        return "1"
    match = _CAT_HEREDOC.fullmatch(substitution)
    if match is None or f"\n{match['end']}\n" in f"\n{match['body']}\n":
        return None
    return match["body"].rstrip("\n")


def _runs_cd(command: SimpleCommand) -> bool:
    """Whether an inner command may change the folder of the shell."""
    return any(c.name in (None, "cd", "pushd", "popd") or _runs_cd(c) for c in command.inner)
