"""Options of a command, read the way its own parser would: clusters, values, abbreviations.

Not a model of every program: only what the tables name is known, and a long option that could be
short for a named one counts as that one.
"""

from collections.abc import Iterator, Sequence

import msgspec

from treadle.policy.shell.ast import Word


class OptionGrammar(msgspec.Struct, frozen=True):
    """Which options of a program take a value, and what they do with it."""

    short_value_options: str = ""  # short options that take a value
    long_value_options: frozenset[str] = (
        frozenset()
    )  # long ones (whose value may follow as its own word)
    reads: frozenset[str] = frozenset()  # options (as written, with dashes) that read their value
    writes: frozenset[str] = frozenset()  # … that write to their value
    runs: frozenset[str] = frozenset()  # … that run a program, or do what no rule foresees
    has_single_dash: bool = False  # long options begin with one dash (find, java)
    may_permute: bool = True  # options may stand behind operands, as with all that GNU made


class CommandOption(msgspec.Struct, frozen=True):
    """One option as found; `value` is None when it has none."""

    name: str
    value: Word | None = None


def scan_options(words: Sequence[Word], grammar: OptionGrammar) -> Iterator[CommandOption | Word]:
    """Yield options and operands in order. Words that are not static count as operands."""
    at, ended = 0, False
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text is None or ended or len(text) < 2 or text[0] != "-":
            ended = ended or not grammar.may_permute
            yield word
        elif text == "--":
            ended = True
        elif text.startswith("--") or grammar.has_single_dash:
            given, equals, value = text.partition("=")
            name = _expand_abbreviation(given, grammar)
            if equals:
                yield CommandOption(name, Word(word.source, value))
            elif _takes_value(name, grammar) and at < len(words):
                yield CommandOption(name, words[at])
                # Short for this one, or for another that takes no value: then it is an operand.
                at += name == given
            else:
                yield CommandOption(name)
        else:
            following = words[at] if at < len(words) else None
            cluster = _split_cluster(word, text, grammar, following)
            at += bool(cluster) and cluster[-1].value is following and following is not None
            yield from cluster


def _takes_value(name: str, grammar: OptionGrammar) -> bool:
    return name in grammar.long_value_options or name in grammar.reads or name in grammar.writes


def _split_cluster(
    word: Word, text: str, grammar: OptionGrammar, following: Word | None
) -> list[CommandOption]:
    """`-xyVALUE` or `-xy VALUE`."""
    found: list[CommandOption] = []
    for at, letter in enumerate(text[1:], 1):
        if letter in grammar.short_value_options:
            rest = text[at + 1 :]
            found.append(
                CommandOption("-" + letter, Word(word.source, rest) if rest else following)
            )
            break
        found.append(CommandOption("-" + letter))
    return found


def _expand_abbreviation(name: str, grammar: OptionGrammar) -> str:
    if grammar.has_single_dash or name in grammar.long_value_options:
        return name
    named = grammar.reads | grammar.writes | grammar.runs
    if name in named or len(name) < 3:
        return name
    graver = [n for n in named if n.startswith(name)]
    return min(
        graver or [n for n in grammar.long_value_options if n.startswith(name)], default=name
    )
