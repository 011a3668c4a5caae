"""The options of a command as its own parser would read them, and the effects that they tell.

Only the options in the tables are known. A long option that may abbreviate a known one counts as
that one. `ProgramSpec` describes a program whose options tell everything; an unknown program has no
effects and is not read-only: only a rule that names it can allow it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.word_set import word_set


class OptionGrammar(msgspec.Struct, frozen=True):
    """Which options of a program take a value, and what the program does with it."""

    short_value_options: str = ""  # letters of short options that take a value
    long_value_options: frozenset[str] = frozenset()  # long options that take a value
    reads: frozenset[str] = frozenset()  # options, with dashes, whose value is a file to read
    writes: frozenset[str] = frozenset()  # … whose value is a file to write
    runs: frozenset[str] = frozenset()  # … that run a program or have other unusual effects
    may_permute: bool = True  # options may follow operands, as in GNU programs
    harmless: frozenset[str] = frozenset()  # if there are any, an option of no list asks


class CommandOption(msgspec.Struct, frozen=True):
    """One option; `value` is None if it has none."""

    name: str
    value: Word | None = None


def scan_options(
    words: Sequence[Word], grammar: OptionGrammar
) -> tuple[list[CommandOption], list[Word]]:
    """The options and the operands. Words that are not static count as operands."""
    options: list[CommandOption] = []
    operands: list[Word] = []
    at, is_ended = 0, False
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text is None or is_ended or len(text) < 2 or text[0] != "-":
            is_ended = is_ended or not grammar.may_permute
            operands.append(word)
        elif text == "--":
            is_ended = True
        elif text.startswith("--"):
            written, equals, value = text.partition("=")
            name = _expand_abbreviation(written, grammar)
            if equals:
                options.append(CommandOption(name, Word(word.source, value)))
            elif _takes_value(name, grammar) and at < len(words):
                options.append(CommandOption(name, words[at]))
                # An abbreviation may mean another option without a value: keep the next word.
                at += name == written
            else:
                options.append(CommandOption(name))
        else:
            following = words[at] if at < len(words) else None
            options += _split_cluster(word, text, grammar, following)
            at += options[-1].value is following and following is not None
    return options, operands


def _takes_value(name: str, grammar: OptionGrammar) -> bool:
    return name in grammar.long_value_options or name in grammar.reads or name in grammar.writes


def _split_cluster(
    word: Word, text: str, grammar: OptionGrammar, following: Word | None
) -> list[CommandOption]:
    """`-xyVALUE` or `-xy VALUE`."""
    options: list[CommandOption] = []
    for at, letter in enumerate(text[1:], 1):
        if letter in grammar.short_value_options:
            rest = text[at + 1 :]
            value = Word(word.source, rest) if rest else following
            options.append(CommandOption("-" + letter, value))
            break
        options.append(CommandOption("-" + letter))
    return options


def _expand_abbreviation(name: str, grammar: OptionGrammar) -> str:
    risky = grammar.reads | grammar.writes | grammar.runs
    if name in grammar.long_value_options or name in risky or len(name) < 3:
        return name
    matches = [n for n in risky if n.startswith(name)]
    matches = matches or [n for n in grammar.long_value_options if n.startswith(name)]
    return min(matches, default=name)


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
        elif grammar.harmless and option.name not in grammar.harmless:
            doubts.append(f"{option.name} is not known as a harmless option")
        elif option.value is not None and (
            any(option.value is word for word in words)
            or (len(option.name) > 2 and option.name not in grammar.long_value_options)
        ):
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


# ------------------------------------------------------------ options of unknown programs

# Options of test runners and linters whose value selects what they read.
_READING_OPTIONS = word_set(
    "cov source ignore ignore-glob ignore-path ignore-pattern deselect exclude extend-exclude "
    "force-exclude include filter select extend-select grep match testnamepattern "
    "testpathpattern testpathpatterns findrelatedtests run bench k m t g p"
)
_FLAGS = word_set(
    "--verbose --quiet --lf --ff --nf --sw --last-failed --failed-first --exitfirst --release "
    "--all --workspace --no-fail-fast --race -race -short --watch --fix --ci --coverage --silent "
    "--strict --check --diff --no-cov --no-header --runInBand --showlocals --nocapture -S"
)
_FLAG_CLUSTER = re.compile(r"-[vqxslfaw]+")
_ASSIGNMENT = re.compile(r"-{0,2}([\w.-]+)=.", re.DOTALL)


def list_option_values(words: Sequence[Word]) -> Iterator[tuple[Word, str]]:
    """The words after an unknown program that are or contain the value of an option, which it may
    write: `--junitxml=x`, `-o x`, `OUT=x`; and that value. A plain operand
    (`pytest infra/tests`) is none: programs read those."""
    previous = ""
    for word in words:
        text = word.text or ""
        assignment = _ASSIGNMENT.match(text)
        if assignment is not None:
            if assignment[1].lower() not in _READING_OPTIONS:
                yield word, text
        elif text[:1] == "-" and text[1:2] != "-" and len(text) > 2:
            yield word, text[2:]
        elif text[:1] != "-" and _may_take_value(previous):
            yield word, text
        previous = text


def _may_take_value(option: str) -> bool:
    """Whether the word after an option may be its value."""
    return (
        len(option) > 1
        and option[0] == "-"
        and option != "--"
        and "=" not in option
        and option not in _FLAGS
        and not _FLAG_CLUSTER.fullmatch(option)
        and option.lstrip("-").lower() not in _READING_OPTIONS
    )
