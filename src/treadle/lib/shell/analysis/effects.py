"""What one simple command does to files and programs, as far as its program is known.

Knows programs by their documented options; knows no rules and no file system. An unknown program
has no effects and is not read-only: only a rule that names it can allow it.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.analysis.options import CommandOption, OptionGrammar, scan_options
from treadle.lib.shell.analysis.search_filter import SearchFilter
from treadle.lib.shell.ast import Word


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


OperandKind = Literal[
    "none", "text", "names", "first", "read", "pattern", "write", "copy", "move", "link"
]
_COPYING_OPERANDS = frozenset({"copy", "move", "link"})
# The long names of the letters in `ProgramSpec.recursive_options`; abbreviations count.
_LONG_NAMES = {"r": "--recursive", "R": "--recursive", "a": "--archive"}


class ProgramSpec(msgspec.Struct, frozen=True):
    """One line of the table: what operands mean, and which options do more."""

    operands: OperandKind = "none"
    grammar: OptionGrammar = OptionGrammar()
    is_read_only: bool = True
    is_recursive: bool = False
    recursive_options: str = ""  # letters of the options that make it recursive
    is_print_only: bool = False
    follows_symlinks: bool = False
    shows_names_only: bool = False


def analyze_by_spec(spec: ProgramSpec, words: Sequence[Word]) -> Effects:
    """The effects of a program that the table describes."""
    grammar = spec.grammar
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    mentions: list[Word] = []
    target: Word | None = None
    options, operands = scan_options(words, grammar)
    names = {option.name for option in options}
    for option in options:
        if option.name in grammar.runs:
            doubts.append(f"{option.name} does more than the command's name says")
        elif option.name in grammar.writes:
            writes += _get_option_value(option, doubts)
        elif option.name in grammar.reads:
            reads += _get_option_value(option, doubts)
        elif option.value is not None and any(option.value is word for word in words):
            mentions.append(option.value)
        if spec.operands in _COPYING_OPERANDS and option.name in ("-t", "--target-directory"):
            target = option.value
    primary_writes: tuple[Word, ...] = ()
    copies: tuple[tuple[Word, Word], ...] = ()
    if spec.operands == "read":
        reads += operands
    elif spec.operands == "first":
        reads += operands[:1]
    elif spec.operands == "names":
        reads += [word for word in operands if "/" in (word.text or "/")]
    elif spec.operands == "pattern":
        has_pattern_option = names & {"-e", "--regexp", "-f", "--file", "--files"}
        reads += operands if has_pattern_option else operands[1:]
    elif spec.operands == "write":
        primary_writes = tuple(operands)
    elif spec.operands in _COPYING_OPERANDS:
        into = target or (operands[-1] if operands[1:] else Word(".", "."))
        sources = operands if target else operands[: max(len(operands) - 1, 1)]
        primary_writes = (into,)
        copies = tuple((source, into) for source in sources)
        reads += sources
        if spec.operands == "move":
            primary_writes += tuple(sources)
        elif spec.operands == "link":
            primary_writes += tuple(_list_link_targets(sources, into))
    elif spec.operands == "text" and not spec.is_read_only:
        mentions += operands
    is_recursive = spec.is_recursive or any(
        name == "-" + letter or (len(name) > 2 and _LONG_NAMES[letter].startswith(name))
        for letter in spec.recursive_options
        for name in names
    )
    return Effects(
        is_read_only=spec.is_read_only and not writes and not primary_writes,
        reads=tuple(reads),
        writes=tuple(writes),
        primary_writes=primary_writes,
        copies=copies,
        mentions=tuple(mentions),
        doubts=tuple(doubts),
        is_recursive=is_recursive,
        is_print_only=spec.is_print_only,
        reads_cwd=spec.operands in ("read", "pattern") and not reads,
        follows_symlinks=spec.follows_symlinks,
        shows_names_only=spec.shows_names_only,
        is_opaque=spec.operands == "text" and not spec.is_read_only,
    )


def _list_link_targets(sources: Sequence[Word], link: Word) -> Iterator[Word]:
    """Writing through a link writes its target, which is relative to the link's folder."""
    folders = [link.text or "", (link.text or "").rpartition("/")[0]]
    for source in sources:
        yield source
        if source.text is not None and not source.text.startswith("/"):
            for folder in filter(None, folders):
                yield replace(source, text=f"{folder}/{source.text}", has_tilde=link.has_tilde)


def _get_option_value(option: CommandOption, doubts: list[str]) -> list[Word]:
    if option.value is None:
        doubts.append(f"{option.name} without a file name")
        return []
    return [option.value]
