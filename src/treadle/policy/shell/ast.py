"""The values that describe a command line: words, redirections, parts.

They know nothing of rules, paths or the parser that made them.

    CommandFacts
      parts: every simple command, in order, wherever it stands (list, loop, substitution, …)
        inner: the commands that a part runs in its turn (`timeout 5 rm x` -> `rm x`)
      doubts: what could not be understood; a line with doubts is never allowed by a rule
"""

from typing import Literal

import msgspec


class Word(msgspec.Struct, frozen=True):
    """One word after quotes and braces. `text` is None when only the running shell knows it."""

    source: str
    text: str | None
    is_glob: bool = False  # holds an active pattern: `text` is the pattern
    has_tilde: bool = False  # begins with an active `~`
    is_plain_data: bool = (
        False  # not static, but built from plain variables and listed substitutions only
    )
    may_split: bool = False  # not static, and not quoted: it may become any number of words
    variable_names: tuple[str, ...] = ()  # the variables it reads
    is_process_substitution: bool = (
        False  # `<(…)`: the output of commands that are listed themselves
    )


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value` before a command or alone."""

    name: str
    value: Word


RedirectEffect = Literal["read", "write", "both", "copy", "data"]


class Redirect(msgspec.Struct, frozen=True):
    """A redirection; `data` holds the text of a here-document or here-string when it is static."""

    operator: str
    effect: RedirectEffect
    target: Word | None = None
    data: str | None = None


WrapperKind = Literal["", "transparent", "opaque"]

# Where a part may run: each entry is the sequence of `cd` words that led there from the start.
CdPaths = tuple[tuple[str, ...], ...]
NO_CD: CdPaths = ((),)


class SimpleCommand(msgspec.Struct, frozen=True):
    """One simple command with all that belongs to it."""

    argv: tuple[Word, ...]
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    source: str = ""
    cd_paths: CdPaths | None = NO_CD  # None: the working directory cannot be known
    doubts: tuple[str, ...] = ()
    inner: tuple["SimpleCommand", ...] = ()
    wrapper_kind: WrapperKind = ""
    is_piped: bool = False  # reads the output of another command
    loop_globs: tuple[Word, ...] = ()  # words of a loop that the shell looks up

    @property
    def name(self) -> str | None:
        """The program's name as written, or None when it is not static."""
        return self.argv[0].text if self.argv else None


class ParsedCommand(msgspec.Struct, frozen=True):
    """All that is known of a command line without running it."""

    text: str
    commands: tuple[SimpleCommand, ...]
    doubts: tuple[str, ...] = ()
    # Read off a line that did not parse: good enough to deny by, never to allow by.
    guessed_commands: tuple[SimpleCommand, ...] = ()
    # Variables that the line itself sets; their values are the line's own data.
    assigned_variables: frozenset[str] = frozenset()
