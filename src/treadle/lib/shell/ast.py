"""The values that describe a command line: words, redirections, simple commands.

They know nothing of rules, paths or the parser that makes them.

    ParsedCommand
      commands: every simple command, in order, also those in lists, loops and substitutions
        inner: the commands that a command runs (`timeout 5 rm x` -> `rm x`)
      doubts: what could not be understood; a line with doubts is never allowed by a rule
"""

from typing import Literal

import msgspec


class Word(msgspec.Struct, frozen=True):
    """One word after quotes and braces. `text` is None if it is known only at run time."""

    source: str
    text: str | None
    is_glob: bool = False  # `text` is an active pattern
    has_tilde: bool = False  # begins with an active `~`
    is_plain_data: bool = False  # not static; made of plain variables and listed substitutions
    may_split: bool = False  # of a variable, and not quoted: may become any number of words
    variable_names: tuple[str, ...] = ()  # the variables it reads
    is_process_substitution: bool = False  # `<(…)`; its commands are listed themselves


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value` before a command or alone."""

    name: str
    value: Word


RedirectEffect = Literal["read", "write", "both", "copy", "data"]


class Redirect(msgspec.Struct, frozen=True):
    """A redirection; `data` is the text of a here-document or here-string if it is static."""

    operator: str
    effect: RedirectEffect
    target: Word | None = None
    data: str | None = None


WrapperKind = Literal["", "transparent", "opaque"]

# Where a command may run: each entry is a sequence of `cd` arguments, from the first folder on.
CdPaths = tuple[tuple[str, ...], ...]
NO_CD: CdPaths = ((),)


class SimpleCommand(msgspec.Struct, frozen=True):
    """One simple command with its assignments, redirections and inner commands."""

    argv: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    source: str = ""
    cd_paths: CdPaths | None = NO_CD  # None: the working directory cannot be known
    doubts: tuple[str, ...] = ()
    inner: tuple["SimpleCommand", ...] = ()
    wrapper_kind: WrapperKind = ""
    is_piped: bool = False  # reads the output of another command
    loop_globs: tuple[Word, ...] = ()  # patterns of a loop, which the shell expands
    is_unread: bool = False  # too deep or too long: inner commands may be missing

    @property
    def name(self) -> str | None:
        """The program's name as written, or None if it is not static."""
        return self.argv[0].text if self.argv else None


class ParsedCommand(msgspec.Struct, frozen=True):
    """Everything known about a command line without running it."""

    text: str
    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...] = ()
    # Guessed from a line that did not parse: used to deny, never to allow.
    guessed_commands: tuple[SimpleCommand, ...] = ()
    # Variables that the line itself sets.
    assigned_variables: frozenset[str] = frozenset()
