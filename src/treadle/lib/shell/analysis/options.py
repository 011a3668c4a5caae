"""Scans the options of a command as its own parser would: clusters, values, abbreviations.

Only the options in the tables are known. A long option that may abbreviate a known one counts as
that one.
"""

from collections.abc import Sequence

import msgspec

from treadle.lib.shell.ast import Word


class OptionGrammar(msgspec.Struct, frozen=True):
    """Which options of a program take a value, and what the program does with it."""

    short_value_options: str = ""  # letters of short options that take a value
    long_value_options: frozenset[str] = frozenset()  # long options that take a value
    reads: frozenset[str] = frozenset()  # options, with dashes, whose value is a file to read
    writes: frozenset[str] = frozenset()  # … whose value is a file to write
    runs: frozenset[str] = frozenset()  # … that run a program or have other unusual effects
    may_permute: bool = True  # options may follow operands, as in GNU programs


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
