"""Values of options that a program may write to: `--junitxml=x`, `--target-dir x`, `-o x`, `OUT=x`.

For programs whose options are not known. A plain operand (`pytest infra/tests`) is not one:
programs read those. Tables and words only; `evaluation/path_access.py` uses it.
"""

import re
from collections.abc import Iterator, Sequence

from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

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
    """The words after the program that are or contain the value of an option, and that value."""
    previous = ""
    for word in words:
        text = word.text or ""
        assignment = _ASSIGNMENT.match(text)
        if assignment is not None:
            if assignment[1].lower() not in _READING_OPTIONS:
                yield word, text
        elif text[:1] == "-" and text[1:2] != "-" and len(text) > 2:
            yield word, text[2:]
        elif text[:1] != "-" and _takes_value(previous):
            yield word, text
        previous = text


def _takes_value(option: str) -> bool:
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
