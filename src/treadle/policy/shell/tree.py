"""The command line as a tree: every simple command, wherever it stands.

Fails closed by construction: a node that is not known here leaves its text uncovered, and text that
no token covers is a doubt, as is every spot where bash might split words in another way. Above: the
judge. Below: tree-sitter-bash, loaded at the first command.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from treadle.policy.listed import listed
from treadle.policy.shell.facts import (
    START,
    Assignment,
    CommandFacts,
    Moves,
    Part,
    Redirect,
    RedirectEffect,
    Word,
)
from treadle.policy.shell.guess import guess_parts
from treadle.policy.shell.moves import join_moves, move
from treadle.policy.shell.tokens import Token, check_heredoc, check_tokens, heredoc_data
from treadle.policy.shell.words import LISTED, UNCLEAR, BadWord, read_word
from treadle.policy.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEPTH_LIMIT = 60
_LENGTH_LIMIT = 100_000
_SCRIPT_DEPTH_LIMIT = 8

_WORDS = listed(
    "word string raw_string ansi_c_string translated_string concatenation number "
    "simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion brace_expression extglob_pattern regex"
)
_EXPANSIONS = listed(
    "simple_expansion expansion command_substitution process_substitution arithmetic_expansion"
)
_GROUPS = listed(
    "program subshell compound_statement do_group if_statement elif_clause else_clause "
    "while_statement case_statement case_item pipeline negated_command"
)
_REDIRECTS: dict[str, RedirectEffect] = {
    "<": "read", ">": "write", ">>": "write", ">|": "write", "&>": "write", "&>>": "write",
    "<>": "both", "<&": "copy", ">&": "copy", "<&-": "copy", ">&-": "copy",
}  # fmt: skip
_PLAIN_ARITHMETIC = re.compile(r"\$\(\([0-9+\-*/% ()]*\)\)")


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
    source = raw.decode("latin-1")
    if len(raw) > _LENGTH_LIMIT:
        return CommandFacts(text, (), ("too long to be read",), guess_parts(source))
    root = _parser().parse(raw).root_node
    reader = _Reader(source)
    if root.has_error:
        reader.doubt("does not parse as a shell command")
    reader.statement(root, 0)
    reader.doubts.extend(check_tokens(source, reader.tokens))
    parts = tuple(unwrap(part, depth) for part in reader.parts)
    unclear = reader.doubts or any(part.doubts for part in reader.parts)
    guesses = guess_parts(source) if unclear else ()
    return CommandFacts(
        text,
        parts,
        tuple(dict.fromkeys(reader.doubts)),
        tuple(unwrap(part, depth) for part in guesses),
        frozenset(reader.assigned),
    )


class _Reader:
    """Walks the tree once; collects parts, tokens and doubts."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.parts: list[Part] = []
        self.tokens: list[Token] = []
        self.doubts: list[str] = []
        self.assigned: set[str] = set()
        self.moves: Moves | None = START
        self.heredoc_lines: set[int] = set()
        self.owner = 0
        self.piped = False

    def doubt(self, reason: str) -> None:
        self.doubts.append(reason)

    def slice(self, node: "Node") -> str:
        return self.source[node.start_byte : node.end_byte]

    def token(self, node: "Node", kind: str, owner: int = 0) -> None:
        self.tokens.append(Token(node.start_byte, node.end_byte, kind, owner))

    # ---------------------------------------------------------------- statements

    def statement(self, node: "Node", depth: int) -> Moves | None:
        """Read one statement; answer where the shell stands if it succeeds."""
        kind = node.type
        if depth > _DEPTH_LIMIT:
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
            elif node.type in ("case_statement", "case_item") and child.type in _WORDS:
                self.loose_word(child, depth, owner)
            else:
                self.statement(child, depth + 1)
        self.piped = piped

    def operator(self, node: "Node") -> None:
        if node.is_missing:
            self.doubt("does not parse as a shell command")
        elif node.end_byte > node.start_byte and self.slice(node) != "\n":
            keyword = self.slice(node)[0].isalpha()
            self.owner += keyword
            self.token(node, "keyword" if keyword else "operator", -self.owner)

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
        for child in node.children:
            if child.type == "variable_name":
                self.assigned.add(self.slice(child))
                self.token(child, "word", owner)
                self.parts.append(_loop_variable(self.slice(child)))
            elif child.type in _WORDS:
                self.loose_word(child, depth, owner)
            elif child.is_named:
                self.statement(child, depth + 1)
            else:
                self.operator(child)

    def function(self, node: "Node", depth: int) -> None:
        self.doubt("defines a function, which may take the place of any command")
        for child in node.named_children:
            if child.type in _WORDS:
                self.token(child, "word")
            else:
                self.statement(child, depth + 1)

    # ---------------------------------------------------------------- commands

    def command(
        self, node: "Node", depth: int, extra: tuple["Node", ...], doubts: tuple[str, ...] = ()
    ) -> Moves | None:
        """One simple command; `extra` are redirections that the tree hung above it."""
        self.owner += 1
        owner = self.owner
        argv: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        troubles = list(doubts)
        late: list[Node] = []
        for child in (*node.children, *extra):
            if child.type == "variable_assignment":
                assignments.append(self.assignment(child, depth, owner, troubles))
            elif child.type == "command_name":
                argv += self.words(child, depth, owner, troubles)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirect, more = self.redirect(child, depth, owner, troubles, late)
                redirects.append(redirect)
                argv += more
            elif child.type in _WORDS or child.type in ("=", "==", "$", "=~", "!="):
                argv += self.words(child, depth, owner, troubles)
            else:
                self.statement(child, depth + 1)
                self.doubt(f"not understood: {child.type} in a command")
        before = self.moves
        self.parts.append(
            Part(
                tuple(argv),
                tuple(assignments),
                tuple(redirects),
                _text(
                    self.source[node.start_byte : max(node.end_byte, *(e.end_byte for e in extra))]
                    if extra
                    else self.slice(node)
                ),
                before,
                tuple(troubles),
                piped=self.piped,
            )
        )
        if argv and argv[0].text == "read":
            self.assigned.update(w.text for w in argv[1:] if w.text)
        success = before
        if argv and argv[0].text in ("cd", "pushd", "popd"):
            success = move(before, argv)
            self.moves = join_moves(before, success)
        for statement in late:  # the rest of a line that a here-document was begun on
            if statement.is_named:
                self.statement(statement, depth + 1)
            else:
                self.operator(statement)
        return success

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
            Part((), (), tuple(found), _text(self.slice(node)), moves, tuple(troubles))
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

    def redirect(
        self, node: "Node", depth: int, owner: int, troubles: list[str], late: list["Node"]
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""
        if node.type == "heredoc_redirect":
            return self.heredoc(node, depth, owner, troubles, late)
        operator, words = "", list[Word]()
        for child in node.children:
            if child.type == "file_descriptor":
                self.token(child, "descriptor")
            elif not child.is_named:
                operator += self.slice(child)
                self.token(child, "redirect")
            else:
                words += self.words(child, depth, owner, troubles)
        target = words[0] if words else None
        if node.type == "herestring_redirect":
            text = target.text if target else None
            return Redirect("<<<", "data", target, text), words[1:]
        effect = _REDIRECTS.get(operator)
        if effect is None:
            self.doubt(f"not understood: {operator}")
            effect = "both"
        if effect == "copy" and target and not (target.text or "").rstrip("-").isdigit():
            # `>& file` opens the file; only a number copies a descriptor.
            effect = "copy" if target.text == "-" else "both"
        if target is None and not operator.endswith("-"):
            self.doubt("a redirection without a target")
        return Redirect(operator, effect, target), words[1:]

    def heredoc(
        self, node: "Node", depth: int, owner: int, troubles: list[str], late: list["Node"]
    ) -> tuple[Redirect, list[Word]]:
        words: list[Word] = []
        start = body = end = None
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
                self.token(child, "word", owner)
            elif child.type == "heredoc_body":
                body = child
                self.token(child, "heredoc")
                self.expansions(child, depth, troubles)
            elif child.type == "heredoc_end":
                end = child
                self.token(child, "heredoc")
            elif child.type in ("<<", "<<-"):
                self.token(child, "redirect")
            elif child.type == "file_descriptor":
                self.token(child, "descriptor")
            elif child.type in _WORDS:
                words += self.words(child, depth, owner, troubles)
            elif child.type == "file_redirect":
                redirect, more = self.redirect(child, depth, owner, troubles, late)
                self.parts.append(Part((), (), (redirect,), _text(self.slice(child)), self.moves))
                words += more
            elif child.type == "pipeline":
                self.piped = True
                late.append(child)
            else:
                late.append(child)
        if start is None or end is None:
            self.doubt("a here-document without its end")
            return Redirect("<<", "data"), words
        trouble = check_heredoc(self.source, start, body, end, self.heredoc_lines)
        if trouble:
            self.doubt(trouble)
        return Redirect("<<", "data", None, heredoc_data(self.source, start, body)), words

    # ---------------------------------------------------------------- words

    def words(self, node: "Node", depth: int, owner: int, troubles: list[str]) -> list[Word]:
        self.token(node, "word", owner)
        spans = self.expansions(node, depth, troubles)
        try:
            return read_word(self.slice(node), spans, node.start_byte)
        except BadWord as bad:
            self.doubt(str(bad))
            return [Word(_text(self.slice(node)), None)]

    def loose_word(self, node: "Node", depth: int, owner: int) -> None:
        """A word of a loop or case: data, but its substitutions are commands."""
        troubles: list[str] = []
        self.words(node, depth, owner, troubles)
        for trouble in troubles:
            self.doubt(trouble)

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
            name = self.expansion_name(current)
            if name == UNCLEAR and current.type != "process_substitution":
                troubles.append(f"an expansion that only the shell can read: {self.slice(current)}")
            spans[current.start_byte] = (current.end_byte, name)
            self.substitutions(current, depth)
        return spans

    def expansion_name(self, node: "Node") -> str:
        kind, named = node.type, node.named_children
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
        if depth > _DEPTH_LIMIT:
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
                self.parts.append(Part((), (), (redirect,), _text(self.slice(child)), self.moves))
            else:
                self.statement(child, depth + 2)
        if "`" in self.source[node.start_byte : node.start_byte + 1] and "\\" in self.slice(node):
            self.doubt("escapes inside backquotes")
        self.doubts.extend(check_tokens(self.source, self.tokens, node.start_byte, node.end_byte))
        self.tokens, self.moves, self.piped = outer, moves, piped

    # ---------------------------------------------------------------- the rest

    def assignment(self, node: "Node", depth: int, owner: int, troubles: list[str]) -> Assignment:
        self.token(node, "word", owner)
        spans = self.expansions(node, depth, troubles)
        name_node, value_node = node.children[0], node.children[-1]
        name = self.slice(name_node)
        if name_node.type != "variable_name" or value_node.type == "array":
            self.doubt("an assignment to an array")
        text = self.slice(node)
        at = text.find("=") + 1
        try:
            value = (
                read_word(text[at:], spans, node.start_byte + at)[0] if text[at:] else Word("", "")
            )
        except BadWord as bad:
            self.doubt(str(bad))
            value = Word(_text(text[at:]), None)
        self.assigned.add(name)
        return Assignment(name, value)

    def assignment_alone(self, node: "Node", depth: int) -> None:
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        self.owner += 1
        troubles: list[str] = []
        found = tuple(self.assignment(n, depth, self.owner, troubles) for n in nodes)
        self.parts.append(Part((), found, (), _text(self.slice(node)), self.moves, tuple(troubles)))

    def declaration(self, node: "Node", depth: int) -> None:
        self.owner += 1
        owner, troubles = self.owner, list[str]()
        argv: list[Word] = []
        assignments: list[Assignment] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self.assignment(child, depth, owner, troubles))
            else:
                argv += self.words(child, depth, owner, troubles)
        self.parts.append(
            Part(
                tuple(argv),
                tuple(assignments),
                (),
                _text(self.slice(node)),
                self.moves,
                tuple(troubles),
            )
        )

    def test(self, node: "Node", depth: int) -> None:
        """`[ … ]` and `[[ … ]]`: an ordinary command as far as rules are concerned."""
        self.owner += 1
        owner, troubles = self.owner, list[str]()
        argv: list[Word] = []
        stack = [node]
        single = not self.source.startswith("[[", node.start_byte)
        while stack:
            current = stack.pop()
            if current.type in _WORDS or not current.child_count:
                if current.type in _WORDS:
                    argv += self.words(current, depth, owner, troubles)
                else:
                    self.token(current, "operator")
                    if single and any(c in self.slice(current) for c in "<>&|;()"):
                        self.doubt("an operator of the shell inside [ ]")
                    argv.append(Word(self.slice(current), self.slice(current)))
            else:
                stack.extend(reversed(current.children))
        self.parts.append(
            Part(tuple(argv), (), (), _text(self.slice(node)), self.moves, tuple(troubles))
        )


def _text(source: str) -> str:
    return source if source.isascii() else source.encode("latin-1").decode("utf-8", "replace")


def _loop_variable(name: str) -> Part:
    return Part((), (Assignment(name, Word(name, None, data=True)),), (), f"for {name}")
