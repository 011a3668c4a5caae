"""One simple command of the tree: its words, assignments, redirections and here-documents.

Above: `tree.py`, which knows how commands are put together. Below: `reading.py`, which reads words.
"""

import re
from typing import TYPE_CHECKING

from treadle.policy.listed import listed
from treadle.policy.shell.facts import (
    Assignment,
    Moves,
    Part,
    Redirect,
    RedirectEffect,
    Word,
)
from treadle.policy.shell.moves import join_moves, move
from treadle.policy.shell.reading import WORDS, WordReader, text_of
from treadle.policy.shell.tokens import Token, check_heredoc, heredoc_data, heredoc_quoted
from treadle.policy.shell.words import BadWord, check_body, read_value
from treadle.policy.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node

RESERVED = listed(
    "if then elif else fi for while until do done case esac select function in { } ! ]]"
)
_REDIRECTS: dict[str, RedirectEffect] = {
    "<": "read", ">": "write", ">>": "write", ">|": "write", "&>": "write", "&>>": "write",
    "<>": "both", "<&": "copy", ">&": "copy", "<&-": "copy", ">&-": "copy",
}  # fmt: skip


_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^=]*\])?\+?=")
_IN_PLACE = listed("command builtin eval time")  # run in this very shell
_PLAIN_COPY = re.compile(r"[0-9]+-?|-|[A-Za-z0-9_./][A-Za-z0-9_./-]*")


def _moves(part: Part) -> bool:
    """Whether anything that the part runs may move the shell."""
    return any(p.name in (None, "cd", "pushd", "popd") or _moves(p) for p in part.inner)


class CommandReader(WordReader):
    """Reads the commands themselves."""

    def command(self, node: "Node", depth: int, extra: tuple["Node", ...]) -> Moves | None:
        """One simple command; `extra` are redirections that the tree hung above it."""
        self.owner += 1
        owner = self.owner
        argv: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        troubles: list[str] = []
        late: list[Node] = []
        for child in (*node.children, *extra):
            if child.type == "heredoc_redirect" and child in extra:
                argv += self.dropped(node, child, owner)
            if child.type == "variable_assignment":
                assignments.append(self.assignment(child, depth, owner, troubles))
            elif child.type == "command_name":
                argv += self.words(child, depth, owner, troubles)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirect, more = self.redirect(child, depth, owner, troubles, late)
                redirects.append(redirect)
                argv += more
            elif child.type in WORDS or child.type in ("=", "==", "$", "=~", "!="):
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
                text_of(
                    self.source[node.start_byte : max(node.end_byte, *(e.end_byte for e in extra))]
                    if extra
                    else self.slice(node)
                ),
                before,
                tuple(troubles),
                piped=self.piped,
            )
        )
        if argv and argv[0].text in RESERVED:
            self.doubt("a word of the shell where a command is expected")
        if argv and argv[0].text == "read":
            self.assigned.update(w.text for w in argv[1:] if w.text)
        success = before
        if argv and argv[0].text in ("cd", "pushd", "popd"):
            success = move(before, argv)
            self.moves = join_moves(before, success)
        elif argv and argv[0].text in _IN_PLACE and self._may_move(self.parts[-1]):
            success = self.moves = None
        for statement in late:  # the rest of a line that a here-document was begun on
            if statement.is_named:
                self.statement(statement, depth + 1)
            else:
                self.operator(statement)
        return success

    def dropped(self, node: "Node", following: "Node", owner: int) -> list[Word]:
        """A lone `-` before a here-document, which the tree leaves out."""
        gap = self.source[node.end_byte : following.start_byte]
        if gap.strip(" \t") != "-" or gap == "-":
            return []
        at = node.end_byte + gap.index("-")
        self.tokens.append(Token(at, at + 1, "word", owner))
        return [Word("-", "-")]

    def _may_move(self, part: Part) -> bool:
        return _moves(unwrap(part, self.script_depth))

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
                if not self.slice(child).isdigit():
                    self.doubt(f"not understood: the descriptor {self.slice(child)}")
            elif not child.is_named:
                operator += self.slice(child)
                self.token(child, "redirect")
            else:
                found = self.words(child, depth, owner, troubles)
                if not words and len(found) != 1:
                    self.doubt("braces in the target of a redirection")
                words += found
        target = words[0] if words else None
        if node.type == "herestring_redirect":
            text = target.text if target else None
            return Redirect("<<<", "data", target, text), words[1:]
        if operator.endswith("-"):
            return Redirect(operator, "copy"), words  # closes; what follows are arguments
        effect = _REDIRECTS.get(operator)
        if effect is None:
            self.doubt(f"not understood: {operator}")
            effect = "both"
        if effect == "copy" and target and not _PLAIN_COPY.fullmatch(target.source):
            # bash reads such a target twice, and takes a first `-` for all of it.
            self.doubt(f"not understood: {operator}{target.source}")
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
        body_spans: dict[int, tuple[int, str]] = {}
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
                self.token(child, "word", owner)
            elif child.type == "heredoc_body":
                body = child
                self.token(child, "heredoc")
                body_spans = self.expansions(child, depth, troubles)
            elif child.type == "heredoc_end":
                end = child
                self.token(child, "heredoc")
            elif child.type in ("<<", "<<-"):
                self.token(child, "redirect")
            elif child.type == "file_descriptor":
                self.token(child, "descriptor")
            elif child.type in WORDS:
                words += self.words(child, depth, owner, troubles)
            elif child.type == "file_redirect":
                redirect, more = self.redirect(child, depth, owner, troubles, late)
                self.parts.append(Part((), (), (redirect,), text_of(self.slice(child)), self.moves))
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
        if body is not None and not heredoc_quoted(self.source, start):
            try:
                check_body(self.slice(body), body_spans, body.start_byte)
            except BadWord as bad:
                self.doubt(str(bad))
        return Redirect("<<", "data", None, heredoc_data(self.source, start, body)), words

    def assignment(self, node: "Node", depth: int, owner: int, troubles: list[str]) -> Assignment:
        self.token(node, "word", owner)
        spans = self.expansions(node, depth, troubles)
        name_node, value_node = node.children[0], node.children[-1]
        name = self.slice(name_node)
        if name_node.type != "variable_name" or value_node.type == "array":
            self.doubt("an assignment to an array")
        text = self.slice(node)
        if not _ASSIGNS.match(text):
            self.doubt("a word that only looks like an assignment")
        at = text.find("=") + 1
        try:
            value = read_value(text[at:], spans, node.start_byte + at)
        except BadWord as bad:
            self.doubt(str(bad))
            value = Word(text_of(text[at:]), None)
        self.assigned.add(name)
        return Assignment(name, value)

    def assignment_alone(self, node: "Node", depth: int) -> None:
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        self.owner += 1
        troubles: list[str] = []
        found = tuple(self.assignment(n, depth, self.owner, troubles) for n in nodes)
        self.parts.append(
            Part((), found, (), text_of(self.slice(node)), self.moves, tuple(troubles))
        )

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
                text_of(self.slice(node)),
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
        if not re.fullmatch(r"\[\[?[ \t\n].*[ \t\n]\]?\]", self.slice(node), re.DOTALL):
            self.doubt("a bracket without a blank")
        if single and "\n" in self.slice(node):
            self.doubt("a newline inside [ ]")
        while stack:
            current = stack.pop()
            if current.type in WORDS or not current.child_count:
                if current.type in WORDS:
                    argv += self.words(current, depth, owner, troubles)
                else:
                    self.token(current, "operator")
                    if single and any(c in self.slice(current) for c in "<>&|;()"):
                        self.doubt("an operator of the shell inside [ ]")
                    argv.append(Word(self.slice(current), self.slice(current)))
            else:
                stack.extend(reversed(current.children))
        self.parts.append(
            Part(tuple(argv), (), (), text_of(self.slice(node)), self.moves, tuple(troubles))
        )
