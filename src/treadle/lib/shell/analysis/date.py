"""The effects of `date`: it prints, reads a file, or sets the clock."""

from collections.abc import Sequence

from treadle.lib.shell.analysis.effects import Effects
from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

_DATE = OptionGrammar(
    "dfrs",
    word_set("--date --file --reference --set"),
    reads=word_set("-f --file -r --reference"),
    runs=word_set("-s --set"),
)


def analyze_date(words: Sequence[Word]) -> Effects:
    """The effects of a `date` command."""
    options, operands = scan_options(words, _DATE)
    sets_clock = any(option.name in _DATE.runs for option in options) or any(
        not (word.text or "").startswith("+") for word in operands
    )
    reads = [o.value for o in options if o.name in _DATE.reads and o.value is not None]
    doubts = ("sets the clock",) if sets_clock else ()
    return Effects(is_read_only=True, reads=tuple(reads), doubts=doubts)
