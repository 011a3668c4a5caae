"""The command line as a tree: every simple command, wherever it stands.

Fails closed by construction: a node that is not known here leaves its text uncovered, and text that
no token covers is a doubt, as is every spot where bash might split words in another way. Above: the
judge. Below: tree-sitter-bash, loaded at the first command.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.policy.listed import listed
from treadle.policy.shell.facts import Assignment, CommandFacts, Moves, Part, Redirect, Word
from treadle.policy.shell.guess import guess_parts
from treadle.policy.shell.joining import check_joints, join_lines
from treadle.policy.shell.moves import join_moves
from treadle.policy.shell.reading import DEPTH_LIMIT, WORDS, still_known, text_of
from treadle.policy.shell.simple import CommandReader
from treadle.policy.shell.tokens import check_tokens
from treadle.policy.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

TOO_LONG = "too long to be read"
# Each word costs a look at the file system or two, and somebody waits.
_MOST_CHARS, _MOST_WORDS = 20_000, 2_000
_BODY = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\t*\2$", re.DOTALL | re.MULTILINE)
_SCRIPT_DEPTH_LIMIT = 8
_GROUPS = listed(
    "program subshell compound_statement do_group if_statement elif_clause else_clause "
    "while_statement case_statement case_item pipeline negated_command"
)


@lru_cache(maxsize=1)
def _parser() -> "Parser":
    from tree_sitter import Language, Parser
    from tree_sitter_bash import language

    return Parser(Language(language()))


@lru_cache(maxsize=512)
def read_command(text: str, depth: int = 0) -> CommandFacts:
    """All that `text` would do as a bash command line, as far as it can be known."""
    if depth > _SCRIPT_DEPTH_LIMIT:
        return CommandFacts(text, (), ("scripts nested too deep",))
    raw = text.encode("utf-8", "surrogatepass")
    joined = join_lines(raw.decode("latin-1"))
    source = joined.text
    if _is_long(source):
        seen = tuple(replace(part, doubts=(TOO_LONG,)) for part in guess_parts(source))
        return CommandFacts(text, (), (TOO_LONG,), seen)
    root = _parser().parse(source.encode("latin-1")).root_node
    reader = _Reader(source, depth)
    if root.has_error:
        reader.doubt("does not parse as a shell command")
    trouble = joined.doubt or check_joints(joined, root)
    if trouble:
        reader.doubt(trouble)
    reader.statement(root, 0)
    reader.doubts.extend(check_tokens(source, reader.tokens))
    parts = tuple(unwrap(part, depth) for part in reader.parts)
    if reader.relied_on and not still_known(reader.relied_on, parts):
        reader.doubt("a variable that is set more than once")
    unclear = reader.doubts or any(part.doubts for part in reader.parts)
    guesses = guess_parts(source) if unclear else ()
    return CommandFacts(
        text,
        parts,
        tuple(dict.fromkeys(reader.doubts)),
        tuple(unwrap(part, depth) for part in guesses),
        frozenset(reader.assigned),
    )


def _is_long(source: str) -> bool:
    """Whether it is more than can be looked at; here-documents are only data."""
    if len(source) <= _MOST_WORDS:
        return False
    line = _BODY.sub("", source) if len(source) <= 50 * _MOST_CHARS else source
    return len(line) > _MOST_CHARS or len(line.split()) > _MOST_WORDS


class _Reader(CommandReader):
    """Walks the whole tree: lists, groups, loops, functions."""

    def statement(self, node: "Node", depth: int) -> Moves | None:
        """Read one statement; answer where the shell stands if it succeeds."""
        kind = node.type
        if depth > DEPTH_LIMIT:
            self.doubt("nested too deep")
        elif kind == "command":
            return self.command(node, depth, ())
        elif kind == "redirected_statement":
            return self.redirected(node, depth)
        elif kind == "list":
            return self.chain(node, depth)
        elif kind in ("for_statement", "while_statement", "c_style_for_statement"):
            self.loop(node, depth)
        elif kind in _GROUPS:
            self.group(node, depth)
        elif kind == "test_command":
            self.test(node, depth)
        elif kind in ("declaration_command", "unset_command"):
            self.declaration(node, depth)
        elif kind in ("variable_assignment", "variable_assignments"):
            self.assignment_alone(node, depth)
            if kind == "variable_assignment" and _is_certain(node):
                given = self.parts[-1].assignments[-1]
                self.learn(given.name, replace(given.value, glob=False))
        elif kind == "function_definition":
            self.function(node, depth)
        elif kind == "comment":
            self.token(node, "comment")
        else:
            self.doubt(f"not understood: {kind}")
            for child in node.named_children:
                self.statement(child, depth + 1)
        return self.moves

    def group(self, node: "Node", depth: int) -> None:
        if node.type == "compound_statement" and self.source.startswith("((", node.start_byte):
            self.doubt("arithmetic can run commands through subscripts")
            self.substitutions(node, depth)
            return
        piped = self.piped
        self.owner += 1
        owner = self.owner
        for child in node.children:
            if not child.is_named:
                self.operator(child)
                if node.type == "pipeline" and child.type in ("|", "|&"):
                    self.piped = True
            elif node.type in ("case_statement", "case_item") and child.type in WORDS:
                self.loose_word(child, depth, owner)
            else:
                self.statement(child, depth + 1)
        self.piped = piped

    def chain(self, node: "Node", depth: int) -> Moves | None:
        left, right = node.children[0], node.children[-1]
        operators = [child for child in node.children[1:-1] if not child.is_named]
        for child in node.children[1:-1]:
            if child.is_named:
                self.statement(child, depth + 1)
            else:
                self.operator(child)
        success = self.statement(left, depth + 1)
        if [op.type for op in operators] != ["&&"]:
            self.statement(right, depth + 1)
            return self.moves
        failed = self.moves
        self.moves = success
        success = self.statement(right, depth + 1)
        self.moves = join_moves(failed, self.moves)
        return success

    def loop(self, node: "Node", depth: int) -> None:
        if re.search(r"\b(cd|pushd|popd)\b", self.slice(node)):
            self.moves = None
        if node.type == "c_style_for_statement":
            self.doubt("arithmetic can run commands through subscripts")
        self.owner += 1
        owner = self.owner
        variable, values = "", list[Word]()
        for child in node.children:
            if child.type == "variable_name":
                variable = self.slice(child)
                self.assigned.add(variable)
                self.token(child, "word", owner)
                self.parts.append(_loop_variable(variable))
            elif child.type in WORDS:
                values += self.loose_word(child, depth, owner)
            elif child.type == "do_group":
                self.learn(variable, values[0] if len(values) == 1 else None)
                self.statement(child, depth + 1)
                self.known.pop(variable, None)
            elif child.is_named:
                self.statement(child, depth + 1)
            else:
                self.operator(child)

    def function(self, node: "Node", depth: int) -> None:
        self.doubt("defines a function, which may take the place of any command")
        for child in node.named_children:
            if child.type in WORDS:
                self.token(child, "word")
            else:
                self.statement(child, depth + 1)

    def redirected(self, node: "Node", depth: int) -> Moves | None:
        body, redirects = None, []
        for child in node.children:
            if child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirects.append(child)
            elif body is None and child.is_named:
                body = child
            else:
                self.doubt("not understood: a redirection")
        if body is not None and body.type == "command":
            return self.command(body, depth, tuple(redirects))
        before, first = self.moves, len(self.parts)
        success = self.statement(body, depth + 1) if body is not None else self.moves
        moves = self.opened_at(body, before, self.parts[first:])
        self.owner += 1
        owner, troubles, late = self.owner, list[str](), list["Node"]()
        found: list[Redirect] = []
        for child in redirects:
            redirect, more = self.redirect(child, depth, owner, troubles, late)
            found.append(redirect)
            if more:
                self.doubt("words after a redirection")
        self.parts.append(
            Part((), (), tuple(found), text_of(self.slice(node)), moves, tuple(troubles))
        )
        for statement in late:
            if statement.is_named:
                self.statement(statement, depth + 1)
            else:
                self.operator(statement)
        return success

    def opened_at(
        self, body: "Node | None", before: Moves | None, parts: list[Part]
    ) -> Moves | None:
        """Where the shell stands when it opens the files of a redirection above `body`."""
        while body is not None and body.type in ("list", "pipeline", "negated_command"):
            body = body.named_children[-1]  # it belongs to the last command of a list
        if body is not None and body.type == "command" and parts:
            return parts[-1].moves
        for part in parts:
            before = join_moves(before, part.moves)
        return before


def _is_certain(node: "Node") -> bool:
    """Whether a statement is run for sure, in this very shell."""
    following = node.next_sibling
    in_line = node.parent is not None and node.parent.type == "program"
    return in_line and (following is None or following.type != "&")


def _loop_variable(name: str) -> Part:
    return Part((), (Assignment(name, Word(name, None, data=True)),), (), f"for {name}")
