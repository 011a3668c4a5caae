"""What an awk program may do: most only print, but it can run commands and open files.

Not a parser: a program with anything that could run or open is a doubt, strings apart.
"""

import re
from collections.abc import Sequence

from treadle.policy.listed import listed
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Word
from treadle.policy.shell.options import Grammar, scan

_GRAMMAR = Grammar(
    value="Fvfei", values=frozenset({"--field-separator", "--assign", "--source"}),
    runs=listed(
    "-f --file -E --exec -i --include -l --load -D --debug -o --pretty-print -p --profile -d "
    "--dump-variables"
),
)  # fmt: skip
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_RUNS = re.compile(r"system|getline|@|ARGV|ENVIRON|close|PROCINFO|extension")


def awk_effects(words: Sequence[Word]) -> Effects:
    """The effects of `awk`, its program included."""
    operands: list[Word] = []
    doubts: list[str] = []
    programs: list[Word] = []
    for item in scan(words, _GRAMMAR):
        if isinstance(item, Word):
            operands.append(item)
        elif item.name in _GRAMMAR.runs:
            doubts.append(f"{item.name} loads or writes a file")
        elif item.name in ("-e", "--source") and item.value:
            programs.append(item.value)
    if not programs:
        programs, operands = operands[:1], operands[1:]
    for program in programs:
        if program.text is None:
            doubts.append("a program that is not static")
        elif not _only_prints(program.text):
            doubts.append("an awk program that may run commands or open files")
    reads = [w for w in operands if "=" not in (w.text or "").partition("/")[0]]
    return Effects(plain=True, reads=tuple(reads), doubts=tuple(doubts))


def _only_prints(program: str) -> bool:
    code = _STRING.sub('""', program)
    if _RUNS.search(code):
        return False
    rest = code.replace("||", "")
    if "|" not in rest and ">" not in rest and "<" not in rest:
        return True
    if "/" in program or "#" in program or '"' in code.replace('""', ""):
        return False  # a regular expression may hide where a string begins
    if "|" in rest:
        return False
    # A comparison is one outside of every print statement.
    return not re.search(r"\bprintf?\b[^;}\n]*>", rest)
