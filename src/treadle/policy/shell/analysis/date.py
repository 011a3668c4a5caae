"""The effects of `date`: it prints, reads a file, or sets the clock."""

from collections.abc import Sequence

from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.options import CommandOption, OptionGrammar, scan_options
from treadle.policy.shell.ast import Word
from treadle.policy.wordset import word_set

_DATE = OptionGrammar(
    "dfrs",
    word_set("--date --file --reference --set"),
    reads=word_set("-f --file -r --reference"),
    runs=word_set("-s --set"),
)


def analyze_date(words: Sequence[Word]) -> Effects:
    """The effects of a `date` command."""
    reads: list[Word] = []
    doubts: list[str] = []
    for item in scan_options(words, _DATE):
        if isinstance(item, CommandOption):
            if item.name in _DATE.runs:
                doubts.append("sets the clock")
            elif item.name in _DATE.reads and item.value is not None:
                reads.append(item.value)
        elif not (item.text or "").startswith("+"):
            doubts.append("sets the clock")
    return Effects(is_read_only=True, reads=tuple(reads), doubts=tuple(doubts))
