"""What an awk program may do: most only print, but it can run commands and open files.

Not a parser: strings, patterns and comments are told apart, and what is left must hold nothing that
could run or open. Where a slash may also divide, nothing is told apart.
"""

import re
from collections.abc import Sequence

from treadle.policy.listed import listed
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Word
from treadle.policy.shell.options import Grammar, scan

_GRAMMAR = Grammar(
    permutes=False, value="Fvfei", values=frozenset({"--field-separator", "--assign", "--source"}),
    runs=listed(
    "-f --file -E --exec -i --include -l --load -D --debug -o --pretty-print -p --profile -d "
    "--dump-variables -W"
),
)  # fmt: skip
_RUNS = re.compile(r"system|getline|@|ARGV|ENVIRON|close|PROCINFO|extension|SYMTAB|FUNCTAB")
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*")|(?P<comment>\#[^\n]*)|(?P<slash>/)|(?P<other>\s+|.)""",
    re.DOTALL | re.VERBOSE,
)
_PATTERN = re.compile(r"/(?:\\.|[^/\\\n\[])+/")
_GROUP = re.compile(r"\([^()]*\)")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_BEFORE_PATTERN = "{};,(!~&|="


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
    reads = [w for w in operands if not _ASSIGNS.match(w.text or "")]
    return Effects(plain=True, reads=tuple(reads), doubts=tuple(doubts))


def _only_prints(program: str) -> bool:
    code = _code(program)
    if code is None:
        return not _RUNS.search(program) and not any(c in program for c in "|<>")
    if _RUNS.search(code) or "|" in code.replace("||", ""):
        return False
    # A comparison is one outside of every print statement, or in parentheses.
    while (inner := _GROUP.sub("", code)) != code:
        code = inner
    return not re.search(r"\bprintf?\b[^;}]*>", code)


def _code(program: str) -> str | None:
    """The program without what is text in it; None where that cannot be told."""
    at, made, last = 0, list[str](), "{"
    while at < len(program):
        found = _TOKEN.match(program, at)
        if found is None:
            return None
        kind, text, at = found.lastgroup, found.group(), found.end()
        if kind == "slash":
            pattern = _PATTERN.match(program, found.start())
            if last not in _BEFORE_PATTERN or pattern is None:
                return None
            at = pattern.end()
        if kind == "other":
            made.append(text)
            last = last if text.isspace() else text
        elif kind != "comment":
            made.append('""')
            last = '"'
    return "".join(made)
