"""Parses a command line: finds every simple command, also in lists, loops and substitutions.

Fails closed: text that no token covers is a doubt, so an unknown node is one too, and so is every
spot where bash might split words differently. Used by evaluation/ and hooks/. Uses
tree-sitter-bash, which is loaded at the first command.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.lib.shell.ast import Assignment, CdPaths, ParsedCommand, SimpleCommand, Word
from treadle.lib.shell.syntax.cwd import merge_cd_paths
from treadle.lib.shell.syntax.fallback import guess_commands
from treadle.lib.shell.syntax.line_continuation import check_join_offsets, join_continued_lines
from treadle.lib.shell.syntax.simple_command import REDIRECT_NODES, SimpleCommandReader
from treadle.lib.shell.syntax.tokens import check_tokens
from treadle.lib.shell.syntax.word_reader import (
    INVALID_SYNTAX,
    MAX_DEPTH,
    WORD_NODES,
    describe_node,
    is_assigned_once,
)
from treadle.lib.shell.syntax.words import encode_source
from treadle.lib.shell.wrappers import Unwrapper
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
    joined = join_continued_lines(encode_source(text))
    source = joined.text
    if _is_too_long(source):
        too_long = ("too long to be parsed",)
        guesses = (replace(c, doubts=too_long, is_unread=True) for c in guess_commands(source))
        return ParsedCommand(text, (), too_long, tuple(guesses))
    root = _load_parser().parse(source.encode("latin-1")).root_node
    unwrap = Unwrapper(parse_command, depth).unwrap
    reader = _CommandLineReader(source, unwrap)
    if root.has_error:
        reader.add_doubt(INVALID_SYNTAX)
    doubt = joined.doubt or check_join_offsets(joined, root)
    if doubt:
        reader.add_doubt(doubt)
    reader.read_statement(root, 0)
    reader.doubts.extend(check_tokens(source, reader.tokens))
    commands = tuple(map(unwrap, reader.commands))
    if reader.used_variables and not is_assigned_once(reader.used_variables, commands):
        reader.add_doubt("a variable that is set more than once")
    has_doubts = reader.doubts or any(command.doubts for command in reader.commands)
    guessed = tuple(map(unwrap, guess_commands(source))) if has_doubts else ()
    doubts = tuple(dict.fromkeys(reader.doubts))
    return ParsedCommand(text, commands, doubts, guessed, frozenset(reader.assigned_variables))


def _is_too_long(source: str) -> bool:
    """Whether it is too long to be parsed; here-documents are only data and do not count."""
    if len(source) <= _MAX_WORDS:
        return False
    line = _HEREDOC.sub("", source) if len(source) <= 50 * _MAX_CHARS else source
    return len(line) > _MAX_CHARS or len(line.split()) > _MAX_WORDS


class _CommandLineReader(SimpleCommandReader):
    """Walks the whole tree: lists, groups, loops, functions."""

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
            self.read_bare_assignment(node, depth)
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
