"""One simple command of the tree: its words, assignments, redirections and here-documents.

Above: `parser.py`, which knows how commands are put together. Below: `word_reader.py`, which reads words.
"""

import re
from typing import TYPE_CHECKING

from treadle.policy.shell.ast import (
    Assignment,
    CdPaths,
    Redirect,
    RedirectEffect,
    SimpleCommand,
    Word,
)
from treadle.policy.shell.syntax.cwd import apply_cd, merge_cd_paths
from treadle.policy.shell.syntax.tokens import (
    Token,
    check_heredoc,
    get_heredoc_text,
    is_heredoc_quoted,
)
from treadle.policy.shell.syntax.word_reader import WORD_NODES, WordReader, decode_source
from treadle.policy.shell.syntax.words import InvalidWord, check_heredoc_body, read_assignment_value
from treadle.policy.shell.wrappers import unwrap
from treadle.policy.wordset import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

RESERVED_WORDS = word_set(
    "if then elif else fi for while until do done case esac select function in { } ! ]]"
)
_REDIRECT_EFFECTS: dict[str, RedirectEffect] = {
    "<": "read", ">": "write", ">>": "write", ">|": "write", "&>": "write", "&>>": "write",
    "<>": "both", "<&": "copy", ">&": "copy", "<&-": "copy", ">&-": "copy",
}  # fmt: skip


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^=]*\])?\+?=")
_SAME_SHELL_BUILTINS = word_set("command builtin eval time")  # run in this very shell
_DESCRIPTOR_TARGET = re.compile(r"[0-9]+-?|-|[A-Za-z0-9_./][A-Za-z0-9_./-]*")


def _runs_cd(command: SimpleCommand) -> bool:
    """Whether anything that the part runs may move the shell."""
    return any(p.name in (None, "cd", "pushd", "popd") or _runs_cd(p) for p in command.inner)


class SimpleCommandReader(WordReader):
    """Reads the commands themselves."""

    def read_simple_command(
        self, node: "Node", depth: int, extra_redirects: tuple["Node", ...]
    ) -> CdPaths | None:
        """One simple command; `extra` are redirections that the tree hung above it."""
        self.command_index += 1
        owner = self.command_index
        argv: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Redirect] = []
        troubles: list[str] = []
        late: list[Node] = []
        for child in (*node.children, *extra_redirects):
            if child.type == "heredoc_redirect" and child in extra_redirects:
                argv += self.recover_dropped_dash(node, child, owner)
            if child.type == "variable_assignment":
                assignments.append(self.read_assignment(child, depth, owner, troubles))
            elif child.type == "command_name":
                argv += self.read_words(child, depth, owner, troubles)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                redirect, more = self.read_redirect(child, depth, owner, troubles, late)
                redirects.append(redirect)
                argv += more
            elif child.type in WORD_NODES or child.type in ("=", "==", "$", "=~", "!="):
                argv += self.read_words(child, depth, owner, troubles)
            else:
                self.read_statement(child, depth + 1)
                self.add_doubt(f"not understood: {child.type} in a command")
        before = self.cd_paths
        self.commands.append(
            SimpleCommand(
                tuple(argv),
                tuple(assignments),
                tuple(redirects),
                decode_source(
                    self.source[
                        node.start_byte : max(node.end_byte, *(e.end_byte for e in extra_redirects))
                    ]
                    if extra_redirects
                    else self.get_source(node)
                ),
                before,
                tuple(troubles),
                is_piped=self.is_piped,
            )
        )
        if argv and argv[0].text in RESERVED_WORDS:
            self.add_doubt("a word of the shell where a command is expected")
        if argv and argv[0].text == "read":
            self.assigned_variables.update(w.text for w in argv[1:] if w.text)
        success = before
        if argv and argv[0].text in ("cd", "pushd", "popd"):
            success = apply_cd(before, argv)
            self.cd_paths = merge_cd_paths(before, success)
        elif (
            argv
            and argv[0].text in _SAME_SHELL_BUILTINS
            and self._may_change_cwd(self.commands[-1])
        ):
            success = self.cd_paths = None
        for statement in late:  # the rest of a line that a here-document was begun on
            if statement.is_named:
                self.read_statement(statement, depth + 1)
            else:
                self.add_operator(statement)
        return success

    def recover_dropped_dash(
        self, node: "Node", following: "Node", command_index: int
    ) -> list[Word]:
        """A lone `-` before a here-document, which the tree leaves out."""
        gap = self.source[node.end_byte : following.start_byte]
        if gap.strip(" \t") != "-" or gap == "-":
            return []
        at = node.end_byte + gap.index("-")
        self.tokens.append(Token(at, at + 1, "word", command_index))
        return [Word("-", "-")]

    def _may_change_cwd(self, command: SimpleCommand) -> bool:
        return _runs_cd(unwrap(command, self.script_depth))

    def read_redirect(
        self,
        node: "Node",
        depth: int,
        command_index: int,
        doubts: list[str],
        deferred: list["Node"],
    ) -> tuple[Redirect, list[Word]]:
        """One redirection, and the words after it that belong to the command."""
        if node.type == "heredoc_redirect":
            return self.read_heredoc(node, depth, command_index, doubts, deferred)
        operator, words = "", list[Word]()
        for child in node.children:
            if child.type == "file_descriptor":
                self.add_token(child, "descriptor")
                if not self.get_source(child).isdigit():
                    self.add_doubt(f"not understood: the descriptor {self.get_source(child)}")
            elif not child.is_named:
                operator += self.get_source(child)
                self.add_token(child, "redirect")
            else:
                found = self.read_words(child, depth, command_index, doubts)
                if not words and len(found) != 1:
                    self.add_doubt("braces in the target of a redirection")
                words += found
        target = words[0] if words else None
        if node.type == "herestring_redirect":
            text = target.text if target else None
            return Redirect("<<<", "data", target, text), words[1:]
        if operator.endswith("-"):
            return Redirect(operator, "copy"), words  # closes; what follows are arguments
        effect = _REDIRECT_EFFECTS.get(operator)
        if effect is None:
            self.add_doubt(f"not understood: {operator}")
            effect = "both"
        if effect == "copy" and target and not _DESCRIPTOR_TARGET.fullmatch(target.source):
            # bash reads such a target twice, and takes a first `-` for all of it.
            self.add_doubt(f"not understood: {operator}{target.source}")
        if effect == "copy" and target and not (target.text or "").rstrip("-").isdigit():
            # `>& file` opens the file; only a number copies a descriptor.
            effect = "copy" if target.text == "-" else "both"
        if target is None and not operator.endswith("-"):
            self.add_doubt("a redirection without a target")
        return Redirect(operator, effect, target), words[1:]

    def read_heredoc(
        self,
        node: "Node",
        depth: int,
        command_index: int,
        doubts: list[str],
        deferred: list["Node"],
    ) -> tuple[Redirect, list[Word]]:
        words: list[Word] = []
        start = body = end = None
        body_spans: dict[int, tuple[int, str]] = {}
        for child in node.children:
            if child.type == "heredoc_start":
                start = child
                self.add_token(child, "word", command_index)
            elif child.type == "heredoc_body":
                body = child
                self.add_token(child, "heredoc")
                body_spans = self.read_expansions(child, depth, doubts)
            elif child.type == "heredoc_end":
                end = child
                self.add_token(child, "heredoc")
            elif child.type in ("<<", "<<-"):
                self.add_token(child, "redirect")
            elif child.type == "file_descriptor":
                self.add_token(child, "descriptor")
            elif child.type in WORD_NODES:
                words += self.read_words(child, depth, command_index, doubts)
            elif child.type == "file_redirect":
                redirect, more = self.read_redirect(child, depth, command_index, doubts, deferred)
                self.commands.append(
                    SimpleCommand(
                        (), (), (redirect,), decode_source(self.get_source(child)), self.cd_paths
                    )
                )
                words += more
            elif child.type == "pipeline":
                self.is_piped = True
                deferred.append(child)
            else:
                deferred.append(child)
        if start is None or end is None:
            self.add_doubt("a here-document without its end")
            return Redirect("<<", "data"), words
        trouble = check_heredoc(self.source, start, body, end, self.heredoc_lines)
        if trouble:
            self.add_doubt(trouble)
        if body is not None and not is_heredoc_quoted(self.source, start):
            try:
                check_heredoc_body(self.get_source(body), body_spans, body.start_byte)
            except InvalidWord as bad:
                self.add_doubt(str(bad))
        return Redirect("<<", "data", None, get_heredoc_text(self.source, start, body)), words

    def read_assignment(
        self, node: "Node", depth: int, command_index: int, doubts: list[str]
    ) -> Assignment:
        self.add_token(node, "word", command_index)
        spans = self.read_expansions(node, depth, doubts)
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
        except InvalidWord as bad:
            self.add_doubt(str(bad))
            value = Word(decode_source(text[at:]), None)
        self.assigned_variables.add(name)
        return Assignment(name, value)

    def read_bare_assignment(self, node: "Node", depth: int) -> None:
        nodes = [node] if node.type == "variable_assignment" else node.named_children
        self.command_index += 1
        troubles: list[str] = []
        found = tuple(self.read_assignment(n, depth, self.command_index, troubles) for n in nodes)
        self.commands.append(
            SimpleCommand(
                (), found, (), decode_source(self.get_source(node)), self.cd_paths, tuple(troubles)
            )
        )

    def read_declaration(self, node: "Node", depth: int) -> None:
        self.command_index += 1
        owner, troubles = self.command_index, list[str]()
        argv: list[Word] = []
        assignments: list[Assignment] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(self.read_assignment(child, depth, owner, troubles))
            else:
                argv += self.read_words(child, depth, owner, troubles)
        self.commands.append(
            SimpleCommand(
                tuple(argv),
                tuple(assignments),
                (),
                decode_source(self.get_source(node)),
                self.cd_paths,
                tuple(troubles),
            )
        )

    def read_test(self, node: "Node", depth: int) -> None:
        """`[ … ]` and `[[ … ]]`: an ordinary command as far as rules are concerned."""
        self.command_index += 1
        owner, troubles = self.command_index, list[str]()
        argv: list[Word] = []
        stack = [node]
        single = not self.source.startswith("[[", node.start_byte)
        if not re.fullmatch(r"\[\[?[ \t\n].*[ \t\n]\]?\]", self.get_source(node), re.DOTALL):
            self.add_doubt("a bracket without a blank")
        if single and "\n" in self.get_source(node):
            self.add_doubt("a newline inside [ ]")
        while stack:
            current = stack.pop()
            if current.type in WORD_NODES or not current.child_count:
                if current.type in WORD_NODES:
                    argv += self.read_words(current, depth, owner, troubles)
                else:
                    self.add_token(current, "operator")
                    if single and any(c in self.get_source(current) for c in "<>&|;()"):
                        self.add_doubt("an operator of the shell inside [ ]")
                    argv.append(Word(self.get_source(current), self.get_source(current)))
            else:
                stack.extend(reversed(current.children))
        self.commands.append(
            SimpleCommand(
                tuple(argv),
                (),
                (),
                decode_source(self.get_source(node)),
                self.cd_paths,
                tuple(troubles),
            )
        )
