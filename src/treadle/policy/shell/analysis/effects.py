"""What one simple command does to files and programs, as far as its program is known.

Knows programs by their documented options; knows no rules and no file system. An unknown program
has no effects listed and is not plain: only a rule that names it can allow it.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from treadle.policy.shell.analysis.options import CommandOption, OptionGrammar, scan_options
from treadle.policy.shell.ast import Word


class Effects(msgspec.Struct, frozen=True):
    """The reach of a command.

    `plain` commands only read, and need no rule inside the workspace. `makes` are the files that it
    is the program's very purpose to write; `writes` are those that an option makes it write;
    `copies` are pairs of a file and the folder or name that it is put in. `mentions` are words that
    may be files that it reads, if it is not as it is known here. `doubts` are things that only a
    rule naming the whole command covers; `inline` is code given on the line, which a rule naming
    the program covers and a blanket rule does not.
    """

    is_read_only: bool = False
    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    primary_writes: tuple[Word, ...] = ()
    copies: tuple[tuple[Word, Word], ...] = ()
    mentions: tuple[Word, ...] = ()
    doubts: tuple[str, ...] = ()
    is_recursive: bool = False
    has_inline_code: bool = False
    is_print_only: bool = (
        False  # its words are only printed or compared: plain variables do no harm
    )
    reads_cwd: bool = False  # reads the working directory itself
    follows_symlinks: bool = False  # reads through the links in a folder that it is given
    is_opaque: bool = False  # what it does with its words is not known


_COPYING_OPERANDS = frozenset({"copy", "move", "link"})
# What the letters of `Program.recurses` are called in full; abbreviations count.
_LONG_NAMES = {"r": "--recursive", "R": "--recursive", "a": "--archive"}


class ProgramSpec(msgspec.Struct, frozen=True):
    """One line of the table: what operands mean, and which options do more."""

    operands: str = "none"  # none text names first read pattern write copy move link
    grammar: OptionGrammar = OptionGrammar()
    is_read_only: bool = True
    recursive_options: str = ""  # "always", or the short options that make it recurse
    is_print_only: bool = False
    follows_symlinks: bool = False


def analyze_by_spec(spec: ProgramSpec, words: Sequence[Word]) -> Effects:
    """The effects of a program that the table describes."""
    grammar = spec.grammar
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    operands: list[Word] = []
    options: set[str] = set()
    mentions: list[Word] = []
    target: Word | None = None
    for item in scan_options(words, grammar):
        if isinstance(item, Word):
            operands.append(item)
            continue
        options.add(item.name)
        if item.name in grammar.runs:
            doubts.append(f"{item.name} does more than the command's name says")
        elif item.name in grammar.writes:
            writes += _get_option_value(item, doubts)
        elif item.name in grammar.reads:
            reads += _get_option_value(item, doubts)
        elif item.value is not None and any(item.value is word for word in words):
            mentions.append(item.value)
        if spec.operands in _COPYING_OPERANDS and item.name in ("-t", "--target-directory"):
            target = item.value
    makes: tuple[Word, ...] = ()
    copies: tuple[tuple[Word, Word], ...] = ()
    if spec.operands == "read":
        reads += operands
    elif spec.operands == "first":
        reads += operands[:1]
    elif spec.operands == "names":
        reads += [word for word in operands if "/" in (word.text or "/")]
    elif spec.operands == "pattern":
        given = options & {"-e", "--regexp", "-f", "--file", "--files"}
        reads += operands if given else operands[1:]
    elif spec.operands == "write":
        makes = tuple(operands)
    elif spec.operands in _COPYING_OPERANDS:
        into = target or (operands[-1] if operands[1:] else Word(".", "."))
        sources = operands if target else operands[: max(len(operands) - 1, 1)]
        makes = (into,)
        copies = tuple((source, into) for source in sources)
        reads += sources
        if spec.operands == "move":
            makes += tuple(sources)
        elif spec.operands == "link":
            makes += tuple(_list_link_targets(sources, into))
    elif spec.operands == "text" and not spec.is_read_only:
        mentions += operands
    recurses = spec.recursive_options == "always" or any(
        o == "-" + letter or (len(o) > 2 and _LONG_NAMES[letter].startswith(o))
        for letter in spec.recursive_options
        for o in options
    )
    explicit = spec.operands in ("read", "pattern") and bool(reads)
    return Effects(
        is_read_only=spec.is_read_only and not writes and not makes,
        reads=tuple(reads), writes=tuple(writes), primary_writes=makes, copies=copies, doubts=tuple(doubts),
        mentions=tuple(mentions), is_recursive=recurses, is_print_only=spec.is_print_only, follows_symlinks=spec.follows_symlinks,
        is_opaque=spec.operands == "text" and not spec.is_read_only,
        reads_cwd=spec.operands in ("read", "pattern") and not explicit,
    )  # fmt: skip


def _list_link_targets(sources: Sequence[Word], link: Word) -> Iterator[Word]:
    """Writing through a link writes what it leads to, from the link's own folder on."""
    folders = [link.text or "", (link.text or "").rpartition("/")[0]]
    for source in sources:
        yield source
        if source.text is not None and not source.text.startswith("/"):
            for folder in filter(None, folders):
                yield replace(source, text=f"{folder}/{source.text}", has_tilde=link.has_tilde)


def _get_option_value(option: CommandOption, doubts: list[str]) -> list[Word]:
    if option.value is None:
        doubts.append(f"{option.name} without its file")
        return []
    return [option.value]
