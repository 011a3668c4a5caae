"""Options of a command, read the way its own parser would: clusters, values, abbreviations.

Not a model of every program: only what the tables name is known, and a long option that could be
short for a named one counts as that one.
"""

from collections.abc import Iterator, Sequence

import msgspec

from treadle.policy.shell.facts import Word


class Grammar(msgspec.Struct, frozen=True):
    """Which options of a program take a value, and what they do with it."""

    value: str = ""  # short options that take a value
    values: frozenset[str] = frozenset()  # long ones (whose value may follow as its own word)
    reads: frozenset[str] = frozenset()  # options (as written, with dashes) that read their value
    writes: frozenset[str] = frozenset()  # … that write to their value
    runs: frozenset[str] = frozenset()  # … that run a program, or do what no rule foresees
    single: bool = False  # long options begin with one dash (find, java)
    permutes: bool = True  # options may stand behind operands, as with all that GNU made


class Option(msgspec.Struct, frozen=True):
    """One option as found; `value` is None when it has none."""

    name: str
    value: Word | None = None


def scan(words: Sequence[Word], grammar: Grammar) -> Iterator[Option | Word]:
    """Yield options and operands in order. Words that are not static count as operands."""
    at, ended = 0, False
    while at < len(words):
        word = words[at]
        at += 1
        text = word.text
        if text is None or ended or len(text) < 2 or text[0] != "-":
            ended = ended or not grammar.permutes
            yield word
        elif text == "--":
            ended = True
        elif text.startswith("--") or grammar.single:
            given, equals, value = text.partition("=")
            name = _full_name(given, grammar)
            if equals:
                yield Option(name, Word(word.source, value))
            elif _takes_value(name, grammar) and at < len(words):
                yield Option(name, words[at])
                # Short for this one, or for another that takes no value: then it is an operand.
                at += name == given
            else:
                yield Option(name)
        else:
            following = words[at] if at < len(words) else None
            cluster = _cluster(word, text, grammar, following)
            at += bool(cluster) and cluster[-1].value is following and following is not None
            yield from cluster


def _takes_value(name: str, grammar: Grammar) -> bool:
    return name in grammar.values or name in grammar.reads or name in grammar.writes


def _cluster(word: Word, text: str, grammar: Grammar, following: Word | None) -> list[Option]:
    """`-xyVALUE` or `-xy VALUE`."""
    found: list[Option] = []
    for at, letter in enumerate(text[1:], 1):
        if letter in grammar.value:
            rest = text[at + 1 :]
            found.append(Option("-" + letter, Word(word.source, rest) if rest else following))
            break
        found.append(Option("-" + letter))
    return found


def _full_name(name: str, grammar: Grammar) -> str:
    if grammar.single or name in grammar.values:
        return name
    named = grammar.reads | grammar.writes | grammar.runs
    if name in named or len(name) < 3:
        return name
    graver = [n for n in named if n.startswith(name)]
    return min(graver or [n for n in grammar.values if n.startswith(name)], default=name)
