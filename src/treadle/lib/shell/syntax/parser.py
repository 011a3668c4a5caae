"""Parses a command line: finds every simple command, also in lists, loops and substitutions.

Fails closed: text that no token covers is a doubt, so an unknown node is one too, and so is every
spot where bash might split words differently. Used by permissions/ and hooks/. Uses
tree-sitter-bash, which is loaded at the first command.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.lib.shell.analysis.programs import describe_command
from treadle.lib.shell.ast import (
    Assignment,
    CdPaths,
    ParsedCommand,
    SimpleCommand,
    Word,
    merge_cd_paths,
)
from treadle.lib.shell.syntax.command_reader import (
    INVALID_SYNTAX,
    MAX_DEPTH,
    REDIRECT_NODES,
    WORD_NODES,
    CommandParts,
    CommandReader,
    Token,
    describe_node,
)
from treadle.lib.shell.syntax.line_continuation import check_join_offsets, join_continued_lines
from treadle.lib.shell.syntax.words import encode_source, guess_commands
from treadle.lib.shell.wrappers import GIT_WRAPPER_WORDS, WRAPPING_PROGRAMS, Unwrapper
from treadle.lib.text.word_set import word_set

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Each word may cost a few file system calls while the user waits.
_MAX_CHARS, _MAX_WORDS = 20_000, 2_000
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\t*\2$", re.DOTALL | re.MULTILINE)
_MAX_SCRIPT_DEPTH = 8
_GROUP_NODES = word_set(
    "program subshell compound_statement do_group if_statement elif_clause else_clause "
    "while_statement case_statement case_item pipeline negated_command"
)


@lru_cache(maxsize=1)
def _load_parser() -> "Parser":
    from tree_sitter import Language, Parser
    from tree_sitter_bash import language

    return Parser(Language(language()))


@lru_cache(maxsize=512)
def parse_command(text: str, depth: int = 0) -> ParsedCommand:
    """Everything that `text` does as a bash command line, as far as it can be known."""
    if depth > _MAX_SCRIPT_DEPTH:
        return ParsedCommand(text, (), ("scripts nested too deep",))
    source = text if text.isascii() else encode_source(text)
    joined = join_continued_lines(source) if "\\\n" in source else None
    if joined is not None:
        source = joined.text
    if len(source) > _MAX_WORDS and _is_too_long(source):
        too_long = ("too long to be parsed",)
        guesses = map(describe_command, guess_commands(source))
        unread = tuple(replace(c, doubts=too_long, is_unread=True) for c in guesses)
        return ParsedCommand(text, (), too_long, unread)
    root = _load_parser().parse(source.encode("latin-1")).root_node
    reader = _CommandLineReader(source, depth)
    if root.has_error:
        reader.add_doubt(INVALID_SYNTAX)
    doubt = (joined.doubt or check_join_offsets(joined, root)) if joined is not None else ""
    if doubt:
        reader.add_doubt(doubt)
    reader.read_statement(root, 0)
    reader.doubts.extend(_check_tokens(source, reader.tokens))
    commands = tuple(map(reader.unwrap, reader.commands))
    if reader.used_variables and not _is_assigned_once(reader.used_variables, commands):
        reader.add_doubt("a variable that is set more than once")
    if reader.may_be_split and "IFS" in reader.assigned_variables:
        reader.add_doubt("IFS decides how the value of a variable is split")
    has_doubts = reader.doubts or any(map(attrgetter("doubts"), reader.commands))
    guessed = tuple(map(reader.unwrap, guess_commands(source))) if has_doubts else ()
    doubts = tuple(dict.fromkeys(reader.doubts))
    return ParsedCommand(text, commands, doubts, guessed, frozenset(reader.assigned_variables))


def _is_too_long(source: str) -> bool:
    """Whether it is too long to be parsed; here-documents are only data and do not count."""
    line = _HEREDOC.sub("", source) if len(source) <= 50 * _MAX_CHARS else source
    return len(line) > _MAX_CHARS or len(line.split()) > _MAX_WORDS


class _CommandLineReader(CommandReader):
    """Walks the whole tree: lists, groups, loops, functions."""

    def __init__(self, source: str, script_depth: int) -> None:
        super().__init__(source)
        self.script_depth = script_depth

    def unwrap(self, command: SimpleCommand) -> SimpleCommand:
        """The command with what it does, and with the commands that it runs."""
        described = describe_command(command)
        name = described.program
        if (
            name in WRAPPING_PROGRAMS
            or "/" in (name or "")
            or (name == "git" and not GIT_WRAPPER_WORDS.isdisjoint([w.text for w in command.argv]))
        ):
            return Unwrapper(parse_command, self.script_depth).unwrap(described)
        return described

    def read_statement(self, node: "Node", depth: int) -> CdPaths | None:
        """Read one statement; return the folders the shell may be in if it succeeds."""
        kind = node.type
        if depth > MAX_DEPTH:
            self.add_doubt("nested too deep")
        elif kind == "command":
            return self.read_simple_command(node, depth, ())
        elif kind == "redirected_statement":
            return self.read_redirected(node, depth)
        elif kind == "list":
            return self.read_list(node, depth)
        elif kind in ("for_statement", "while_statement", "c_style_for_statement"):
            self.read_loop(node, depth)
        elif kind in _GROUP_NODES:
            self.read_group(node, depth)
        elif kind == "test_command":
            self.read_test(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self.read_declaration(node, depth)
        elif kind in ("variable_assignment", "variable_assignments"):
            self.read_bare_assignments(node, depth)
            if kind == "variable_assignment" and _is_unconditional(node):
                assignment = self.commands[-1].assignments[-1]
                self.set_variable(assignment.name, replace(assignment.value, is_glob=False))
        elif kind == "function_definition":
            self.read_function(node, depth)
        elif kind == "comment":
            self.add_token(node, "comment")
        else:
            self.add_doubt(describe_node(kind))
            for child in node.named_children:
                self.read_statement(child, depth + 1)
        return self.cd_paths

    def read_group(self, node: "Node", depth: int) -> None:
        if node.type == "compound_statement" and self.source.startswith("((", node.start_byte):
            self.add_doubt("arithmetic can run commands through subscripts")
            self.read_substitutions(node, depth)
            return
        is_piped = self.is_piped
        index = self.start_command().index
        for child in node.children:
            if not child.is_named:
                self.add_operator(child)
                if node.type == "pipeline" and child.type in ("|", "|&"):
                    self.is_piped = True
            elif node.type in ("case_statement", "case_item") and child.type in WORD_NODES:
                self.read_data_word(child, depth, index)
            else:
                self.read_statement(child, depth + 1)
        self.is_piped = is_piped

    def read_list(self, node: "Node", depth: int) -> CdPaths | None:
        left, right = node.children[0], node.children[-1]
        operators = [child for child in node.children[1:-1] if not child.is_named]
        for child in node.children[1:-1]:
            if child.is_named:
                self.read_statement(child, depth + 1)
            else:
                self.add_operator(child)
        success = self.read_statement(left, depth + 1)
        if [op.type for op in operators] != ["&&"]:
            self.read_statement(right, depth + 1)
            return self.cd_paths
        failed = self.cd_paths
        self.cd_paths = success
        success = self.read_statement(right, depth + 1)
        if failed != self.cd_paths:
            self.cd_paths = merge_cd_paths(failed, self.cd_paths)
        return success

    def read_loop(self, node: "Node", depth: int) -> None:
        if re.search(r"\b(cd|pushd|popd)\b", self.get_source(node)):
            self.cd_paths = None
        if node.type == "c_style_for_statement":
            self.add_doubt("arithmetic can run commands through subscripts")
        index = self.start_command().index
        variable, values = "", list[Word]()
        for child in node.children:
            if child.type == "variable_name":
                variable = self.get_source(child)
                self.assigned_variables.add(variable)
                self.add_token(child, "word", index)
                assignment = Assignment(variable, Word(variable, None, is_plain_data=True))
                self.commands.append(SimpleCommand((), (assignment,), (), f"for {variable}"))
            elif child.type in WORD_NODES:
                values += self.read_data_word(child, depth, index)
            elif child.type == "do_group":
                self.set_variable(variable, values[0] if len(values) == 1 else None)
                self.read_statement(child, depth + 1)
                self.variables.pop(variable, None)
            elif child.is_named:
                self.read_statement(child, depth + 1)
            else:
                self.add_operator(child)

    def read_function(self, node: "Node", depth: int) -> None:
        self.add_doubt("defines a function, which may replace any command")
        for child in node.named_children:
            if child.type in WORD_NODES:
                self.add_token(child, "word")
            else:
                self.read_statement(child, depth + 1)

    def read_redirected(self, node: "Node", depth: int) -> CdPaths | None:
        body, redirect_nodes = None, list["Node"]()
        for child in node.children:
            if child.type in REDIRECT_NODES:
                redirect_nodes.append(child)
            elif body is None and child.is_named:
                body = child
            else:
                self.add_doubt("a redirection that is not supported")
        if body is not None and body.type == "command":
            return self.read_simple_command(body, depth, tuple(redirect_nodes))
        before, first = self.cd_paths, len(self.commands)
        success = self.read_statement(body, depth + 1) if body is not None else self.cd_paths
        cd_paths = _find_redirect_cd_paths(body, before, self.commands[first:])
        parts = self.start_command()
        for child in redirect_nodes:
            redirect, more = self.read_redirect(child, depth, parts)
            parts.redirects.append(redirect)
            if more:
                self.add_doubt("words after a redirection")
        self.commands.append(parts.build(self.get_text(node), cd_paths))
        self.read_deferred(parts.deferred, depth)
        return success

    def read_bare_assignments(self, node: "Node", depth: int) -> None:
        parts = self.start_command()
        for child in [node] if node.type == "variable_assignment" else node.named_children:
            self.read_assignment(child, depth, parts)
        self.add_command(node, parts)

    def read_declaration(self, node: "Node", depth: int) -> None:
        parts = self.start_command()
        for child in node.children:
            if child.type == "variable_assignment":
                self.read_assignment(child, depth, parts)
            else:
                parts.argv += self.read_words(child, depth, parts)
        self.add_command(node, parts)

    def read_test(self, node: "Node", depth: int) -> None:
        """`[ … ]` and `[[ … ]]`, which rules treat as an ordinary command."""
        parts = self.start_command()
        is_single = not self.source.startswith("[[", node.start_byte)
        if not re.fullmatch(r"\[\[?[ \t\n].*[ \t\n]\]?\]", self.get_source(node), re.DOTALL):
            self.add_doubt("a bracket without a blank")
        if is_single and "\n" in self.get_source(node):
            self.add_doubt("a newline inside [ ]")
        stack = [node]
        while stack:
            current = stack.pop()
            if current.type in WORD_NODES:
                parts.argv += self.read_words(current, depth, parts)
            elif current.child_count:
                stack.extend(reversed(current.children))
            else:
                operator = self.get_source(current)
                self.add_token(current, "operator")
                if is_single and any(c in operator for c in "<>&|;()"):
                    self.add_doubt("a shell operator inside [ ]")
                parts.argv.append(Word(operator, operator))
        self.add_command(node, parts)

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
        self.doubts.extend(_check_tokens(self.source, self.tokens, node.start_byte, node.end_byte))
        self.tokens, self.cd_paths, self.is_piped = outer_tokens, cd_paths, is_piped


def _find_redirect_cd_paths(
    body: "Node | None", before: CdPaths | None, commands: list[SimpleCommand]
) -> CdPaths | None:
    """The folders the shell may be in when it opens the files of a redirection above `body`."""
    while body is not None and body.type in ("list", "pipeline", "negated_command"):
        body = body.named_children[-1]  # the redirection belongs to the last command of a list
    if body is not None and body.type == "command" and commands:
        return commands[-1].cd_paths
    for command in commands:
        before = merge_cd_paths(before, command.cd_paths)
    return before


def _is_unconditional(node: "Node") -> bool:
    """Whether a statement certainly runs, in the shell itself."""
    following = node.next_sibling
    in_line = node.parent is not None and node.parent.type == "program"
    return in_line and (following is None or following.type != "&")


def _is_assigned_once(names: set[str], commands: Iterable[SimpleCommand]) -> bool:
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


# ---------------------------------------------------------------- the tree against bash

_DESCRIPTOR = re.compile(r"[0-9]+|\{\w+\}")


def _check_tokens(
    source: str, tokens: list[Token], start: int = 0, end: int | None = None
) -> list[str]:
    """The doubts about a piece of source, given the tokens that should cover it.

    tree-sitter is more lenient than bash about blanks, and may put a newline inside a command."""
    doubts: list[str] = []
    end = len(source) if end is None else end
    ordered = sorted(tokens)
    at, last = start, None
    for token in ordered:
        gap = source[at : token.start] if token.start >= at else "?"
        if gap.strip(" \t\n"):
            doubts.append("a part of it cannot be read as shell syntax")
        elif last is not None:
            doubt = _check_boundary(source, last, token, gap)
            if doubt:
                doubts.append(doubt)
        at, last = max(at, token.end), token
    if source[at:end].strip(" \t\n"):
        doubts.append("a part of it cannot be read as shell syntax")
    return doubts


def _check_boundary(source: str, a: Token, b: Token, gap: str) -> str:
    if b.kind == "comment" and not gap and a.kind != "operator":
        return "a # inside a word"
    if a.kind == "comment" and "\n" not in gap and source[a.end - 1] != "\n":
        return "text after a comment"
    if a.kind == "descriptor":
        return "" if not gap else "a blank after a descriptor"
    if b.kind == "descriptor" and a.kind in ("word", "keyword") and not gap:
        return "a number joined to a word"
    touching = a.kind == "word" and b.kind == "redirect" and not gap
    if touching and _DESCRIPTOR.fullmatch(source[a.start : a.end]):
        return "a descriptor read as a word"
    wordlike = ("word", "keyword")
    if a.kind in wordlike and b.kind in wordlike:
        if not gap:
            return "two words without a blank"
        if (
            a.command_index != b.command_index
            and "keyword" not in (a.kind, b.kind)
            and "\n" not in gap
        ):
            return "two commands without a separator"
        if a.command_index == b.command_index and "\n" in gap:
            return "a newline inside a command"
    if a.kind == "operator" and source[a.start : a.end] in ("{", "!") and not gap:
        return "a brace or ! joined to a word"
    return ""
