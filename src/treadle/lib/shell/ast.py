"""The values that describe a command line: words, redirections, simple commands, their effects.

They know nothing of rules, paths or the parser that makes them.

    ParsedCommand
      commands: every simple command, in order, also those in lists, loops and substitutions
        inner: the commands that a command runs (`timeout 5 rm x` -> `rm x`)
        effects: what the command itself does to files, as far as its program is known
      doubts: what could not be understood; a line with doubts is never allowed by a rule
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from treadle.lib.text.word_set import word_set

SHELLS = word_set("sh bash dash zsh ksh ash rbash mksh yash pdksh")
_SYSTEM_FOLDERS = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")


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


UNKNOWN_ARGUMENTS = Word("…", None, is_plain_data=True)  # arguments known only at run time


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


class FileGlob(msgspec.Struct, frozen=True):
    """A pattern on the command line: it leaves matching files out, or searches them."""

    text: str
    is_excluded: bool
    is_for_folders: bool = False  # `--exclude-dir`: matches folders only

    def matches(self, path: str) -> bool:
        parts = path.split("/")
        if self.is_for_folders:
            parts = parts[:-1]
        text = self.text.removeprefix("**/").rstrip("/")
        if "/" in text:
            return fnmatchcase(path, text.strip("/")) and not self.is_for_folders
        return any(fnmatchcase(part, text) for part in (parts if self.is_excluded else parts[-1:]))


class SearchFilter(msgspec.Struct, frozen=True):
    """What a search leaves out. Paths are relative to the folder that it searches."""

    skips_hidden: bool = False
    globs: tuple[FileGlob, ...] = ()
    searches_others: bool = True  # also files that no pattern matches

    def leaves_out(self, path: str) -> bool:
        """Whether the file is certainly not read; the last pattern that matches it decides."""
        matching = [glob.is_excluded for glob in self.globs if glob.matches(path)]
        if matching:
            return matching[-1]
        is_hidden = any(part.startswith(".") for part in path.split("/"))
        return not self.searches_others or (self.skips_hidden and is_hidden)


class Effects(msgspec.Struct, frozen=True):
    """The effects of one command."""

    is_read_only: bool = False  # needs no rule inside the workspace
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()  # files that an option makes it write
    primary_writes: tuple[Word, ...] = ()  # files that the program exists to write
    copies: tuple[tuple[Word, Word], ...] = ()  # pairs of a file and its new folder or name
    mentions: tuple[Word, ...] = ()  # other words, in case the program reads them as files
    doubts: tuple[str, ...] = ()  # covered only by a rule that names the whole command
    is_recursive: bool = False
    has_inline_code: bool = False  # covered by a rule that names the program, not by `Bash`
    is_print_only: bool = False  # words are only printed or compared: variables are harmless
    reads_cwd: bool = False  # reads the working directory itself
    follows_symlinks: bool = False  # reads through the symlinks in a folder
    is_opaque: bool = False  # what it does with its words is not known
    shows_names_only: bool = False  # shows names and sizes of the files that it reads, no content
    search: SearchFilter = SearchFilter()  # what a recursive search leaves out by itself
    removed_name: str = ""  # it removes what has this name (a pattern) below what it reads


WrapperKind = Literal["", "transparent", "opaque"]

# Where a command may run: each entry is a sequence of `cd` arguments, from the first folder on.
CdPaths = tuple[tuple[str, ...], ...]
NO_CD: CdPaths = ((),)
_MAX_CD_PATHS = 6


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
    program: str | None = None  # its bare name; None if there is none, or it is not static
    effects: Effects = Effects()

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

    @property
    def only_reads(self) -> bool:
        """Whether each command is known and only reads: it can run where nothing is writable."""
        return not self.doubts and all(map(_only_reads, self.commands))

    @property
    def is_search(self) -> bool:
        """Whether it only reads, and searches in files that it does not name."""
        return self.only_reads and any(map(_is_search, self.commands))


def _only_reads(command: SimpleCommand) -> bool:
    writes = any(r.effect in ("write", "both") and not _is_null(r) for r in command.redirects)
    if command.doubts or command.effects.doubts or writes:
        return False
    if command.assignments and not _sets_own_variables(command):
        return False
    if command.inner:
        is_plain = command.wrapper_kind == "transparent" or command.effects.is_read_only
        return is_plain and all(map(_only_reads, command.inner))
    is_cd = command.program in ("cd", "pushd", "popd")
    return not command.argv or is_cd or command.effects.is_read_only


def _sets_own_variables(command: SimpleCommand) -> bool:
    """Whether it only sets variables that no program or shell reads: by POSIX, those of the system
    have names in capitals, and none of a single letter."""
    names = [one.name for one in command.assignments]
    return not command.argv and all(n.islower() or (len(n) == 1 and n.isalpha()) for n in names)


def _is_null(redirect: Redirect) -> bool:
    return redirect.target is not None and redirect.target.text == "/dev/null"


def _is_search(command: SimpleCommand) -> bool:
    """Whether it reads what the line does not name: a folder, or names that it gets from another
    command."""
    is_unnamed = any(word.text is None for word in command.effects.reads)
    return command.effects.is_recursive or is_unnamed or any(map(_is_search, command.inner))


def get_program_name(word: Word | None) -> str | None:
    """The bare name of a program; a path counts as its name only in the system's folders."""
    if word is None or word.text is None or word.is_glob:
        return None
    text = word.text
    for folder in _SYSTEM_FOLDERS:
        if text.startswith(folder) and "/" not in text[len(folder) :]:
            return text[len(folder) :]
    return text


def strip_version(name: str) -> str:
    """`python` for `python3.11`."""
    return name.rstrip("0123456789.")


def apply_cd(before: CdPaths | None, argv: Sequence[Word]) -> CdPaths | None:
    """The folders after `cd …` or `pushd …` succeeded."""
    name, operands = argv[0].text, list(argv[1:])
    while operands and operands[0].text in ("-P", "-L", "-e", "--"):
        if operands.pop(0).text == "--":
            break
    if before is None or name == "popd" or len(operands) > 1 or (name == "pushd" and not operands):
        return None
    if not operands:
        return (("~",),)
    target = operands[0]
    if not target.text or target.is_glob or target.text[0] in "-+":
        return None
    text = target.text
    if text.startswith("~") and not target.has_tilde:
        text = "./" + text
    if text.startswith(("/", "~")):
        return ((text,),)
    return tuple((*path, text) for path in before)


def merge_cd_paths(a: CdPaths | None, b: CdPaths | None) -> CdPaths | None:
    """The union of two sets of folders."""
    if a is None or b is None:
        return None
    both = tuple(dict.fromkeys((*a, *b)))
    return both if len(both) <= _MAX_CD_PATHS else None
