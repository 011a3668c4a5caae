"""The command line as a tree: every simple command, wherever it stands.

Fails closed by construction: a node that is not known here leaves its text uncovered, and text that
no token covers is a doubt, as is every spot where bash might split words in another way. Above: the
judge. Below: tree-sitter-bash, loaded at the first command.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.policy.shell.ast import (
    Assignment,
    CdPaths,
    ParsedCommand,
    Redirect,
    SimpleCommand,
    Word,
)
from treadle.policy.shell.syntax.cwd import merge_cd_paths
from treadle.policy.shell.syntax.fallback import guess_commands
from treadle.policy.shell.syntax.line_continuation import check_join_offsets, join_continued_lines
from treadle.policy.shell.syntax.simple_command import SimpleCommandReader
from treadle.policy.shell.syntax.tokens import check_tokens
from treadle.policy.shell.syntax.word_reader import (
    MAX_DEPTH,
    WORD_NODES,
    decode_source,
    is_assigned_once,
)
from treadle.policy.shell.wrappers import unwrap
from treadle.policy.wordset import word_set

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

TOO_LONG = "too long to be read"
# Each word costs a look at the file system or two, and somebody waits.
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
    """All that `text` would do as a bash command line, as far as it can be known."""
    if depth > _MAX_SCRIPT_DEPTH:
        return ParsedCommand(text, (), ("scripts nested too deep",))
    raw = text.encode("utf-8", "surrogatepass")
    joined = join_continued_lines(raw.decode("latin-1"))
    source = joined.text
    if _is_too_long(source):
        seen = tuple(replace(part, doubts=(TOO_LONG,)) for part in guess_commands(source))
        return ParsedCommand(text, (), (TOO_LONG,), seen)
    root = _load_parser().parse(source.encode("latin-1")).root_node
    reader = _CommandLineReader(source, depth)
    if root.has_error:
        reader.add_doubt("does not parse as a shell command")
    trouble = joined.doubt or check_join_offsets(joined, root)
    if trouble:
        reader.add_doubt(trouble)
    reader.read_statement(root, 0)
    reader.doubts.extend(check_tokens(source, reader.tokens))
    parts = tuple(unwrap(part, depth) for part in reader.commands)
    if reader.used_variables and not is_assigned_once(reader.used_variables, parts):
        reader.add_doubt("a variable that is set more than once")
    unclear = reader.doubts or any(part.doubts for part in reader.commands)
    guesses = guess_commands(source) if unclear else ()
    return ParsedCommand(
        text,
        parts,
        tuple(dict.fromkeys(reader.doubts)),
        tuple(unwrap(part, depth) for part in guesses),
        frozenset(reader.assigned_variables),
    )


def _is_too_long(source: str) -> bool:
    """Whether it is more than can be looked at; here-documents are only data."""
    if len(source) <= _MAX_WORDS:
        return False
    line = _HEREDOC.sub("", source) if len(source) <= 50 * _MAX_CHARS else source
    return len(line) > _MAX_CHARS or len(line.split()) > _MAX_WORDS


class _CommandLineReader(SimpleCommandReader):
    """Walks the whole tree: lists, groups, loops, functions."""

    def read_statement(self, node: "Node", depth: int) -> CdPaths | None:
        """Read one statement; answer where the shell stands if it succeeds."""
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
                given = self.commands[-1].assignments[-1]
                self.set_variable(given.name, replace(given.value, is_glob=False))
        elif kind == "function_definition":
            self.read_function(node, depth)
        elif kind == "comment":
            self.add_token(node, "comment")
        else:
            self.add_doubt(f"not understood: {kind}")
            for child in node.named_children:
                self.read_statement(child, depth + 1)
        return self.cd_paths

    def read_group(self, node: "Node", depth: int) -> None:
        if node.type == "compound_statement" and self.source.startswith("((", node.start_byte):
            self.add_doubt("arithmetic can run commands through subscripts")
            self.read_substitutions(node, depth)
            return
        piped = self.is_piped
        self.command_index += 1
        owner = self.command_index
        for child in node.children:
            if not child.is_named:
                self.add_operator(child)
                if node.type == "pipeline" and child.type in ("|", "|&"):
                    self.is_piped = True
            elif node.type in ("case_statement", "case_item") and child.type in WORD_NODES:
                self.read_data_word(child, depth, owner)
            else:
                self.read_statement(child, depth + 1)
        self.is_piped = piped

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
        self.command_index += 1
        owner = self.command_index
        variable, values = "", list[Word]()
        for child in node.children:
            if child.type == "variable_name":
                variable = self.get_source(child)
                self.assigned_variables.add(variable)
                self.add_token(child, "word", owner)
                self.commands.append(_make_loop_assignment(variable))
            elif child.type in WORD_NODES:
                values += self.read_data_word(child, depth, owner)
            elif child.type == "do_group":
                self.set_variable(variable, values[0] if len(values) == 1 else None)
                self.read_statement(child, depth + 1)
                self.variables.pop(variable, None)
            elif child.is_named:
                self.read_statement(child, depth + 1)
            else:
                self.add_operator(child)

    def read_function(self, node: "Node", depth: int) -> None:
        self.add_doubt("defines a function, which may take the place of any command")
        for child in node.named_children:
            if child.type in WORD_NODES:
                self.add_token(child, "word")
            else:
                self.read_statement(child, depth + 1)

    def read_redirected(self, node: "Node", depth: int) -> CdPaths | None:
        body, redirects = None, []
        for child in node.children:
            if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirects.append(child)
            elif body is None and child.is_named:
                body = child
            else:
                self.add_doubt("not understood: a redirection")
        if body is not None and body.type == "command":
            return self.read_simple_command(body, depth, tuple(redirects))
        before, first = self.cd_paths, len(self.commands)
        success = self.read_statement(body, depth + 1) if body is not None else self.cd_paths
        moves = self.find_redirect_cd_paths(body, before, self.commands[first:])
        self.command_index += 1
        owner, troubles, late = self.command_index, list[str](), list["Node"]()
        found: list[Redirect] = []
        for child in redirects:
            redirect, more = self.read_redirect(child, depth, owner, troubles, late)
            found.append(redirect)
            if more:
                self.add_doubt("words after a redirection")
        self.commands.append(
            SimpleCommand(
                (), (), tuple(found), decode_source(self.get_source(node)), moves, tuple(troubles)
            )
        )
        for statement in late:
            if statement.is_named:
                self.read_statement(statement, depth + 1)
            else:
                self.add_operator(statement)
        return success

    def find_redirect_cd_paths(
        self, body: "Node | None", before: CdPaths | None, commands: list[SimpleCommand]
    ) -> CdPaths | None:
        """Where the shell stands when it opens the files of a redirection above `body`."""
        while body is not None and body.type in ("list", "pipeline", "negated_command"):
            body = body.named_children[-1]  # it belongs to the last command of a list
        if body is not None and body.type == "command" and commands:
            return commands[-1].cd_paths
        for part in commands:
            before = merge_cd_paths(before, part.cd_paths)
        return before


def _is_unconditional(node: "Node") -> bool:
    """Whether a statement is run for sure, in this very shell."""
    following = node.next_sibling
    in_line = node.parent is not None and node.parent.type == "program"
    return in_line and (following is None or following.type != "&")


def _make_loop_assignment(name: str) -> SimpleCommand:
    return SimpleCommand(
        (), (Assignment(name, Word(name, None, is_plain_data=True)),), (), f"for {name}"
    )
