"""Reads one simple command of the tree: words, assignments, redirections, here-documents.

Base of the reader in `parser.py`, which knows how commands are combined. Uses `word_reader.py`.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from treadle.lib.shell.ast import (
    Assignment,
    CdPaths,
    Redirect,
    RedirectEffect,
    SimpleCommand,
    Word,
)
from treadle.lib.shell.syntax.cwd import apply_cd, merge_cd_paths
from treadle.lib.shell.syntax.tokens import (
    Token,
    check_heredoc,
    get_heredoc_text,
    is_heredoc_quoted,
)
from treadle.lib.shell.syntax.word_reader import (
    WORD_NODES,
    CommandParts,
    WordReader,
    describe_node,
)
from treadle.lib.shell.syntax.words import (
    ExpansionSpans,
    InvalidWord,
    check_heredoc_body,
    decode_source,
    read_assignment_value,
)
from treadle.lib.text.word_set import word_set

if TYPE_CHECKING:
    from tree_sitter import Node

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


class SimpleCommandReader(WordReader):
    """Reads simple commands."""

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
        end = max(node.end_byte, *(e.end_byte for e in extra_redirects), 0)
        text = decode_source(self.source[node.start_byte : end])
        command = parts.build(text, self.cd_paths, self.is_piped)
        self.commands.append(command)
        success = self.apply_to_shell(command)
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

    def read_bare_assignment(self, node: "Node", depth: int) -> None:
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


def _runs_cd(command: SimpleCommand) -> bool:
    """Whether an inner command may change the folder of the shell."""
    return any(c.name in (None, "cd", "pushd", "popd") or _runs_cd(c) for c in command.inner)
