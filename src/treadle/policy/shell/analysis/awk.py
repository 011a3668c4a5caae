"""What an awk program may do: most only print, but it can run commands and open files.

Not a parser: strings, patterns and comments are told apart, and what is left must hold nothing that
could run or open. Where a slash may also divide, nothing is told apart.
"""

import re
from collections.abc import Sequence

from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.options import OptionGrammar, scan_options
from treadle.policy.shell.ast import Word
from treadle.policy.wordset import word_set

_GRAMMAR = OptionGrammar(
    may_permute=False, short_value_options="Fvfei", long_value_options=frozenset({"--field-separator", "--assign", "--source"}),
    runs=word_set(
    "-f --file -E --exec -i --include -l --load -D --debug -o --pretty-print -p --profile -d "
    "--dump-variables -W"
),
)  # fmt: skip
_UNSAFE_NAMES = re.compile(r"system|getline|@|ARGV|ENVIRON|close|PROCINFO|extension|SYMTAB|FUNCTAB")
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*")|(?P<comment>\#[^\n]*)|(?P<slash>/)|(?P<other>\s+|.)""",
    re.DOTALL | re.VERBOSE,
)
_REGEX = re.compile(r"/(?:\\.|[^/\\\n\[])+/")
_GROUP = re.compile(r"\([^()]*\)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_BEFORE_REGEX = "{};,(!~&|="


def analyze_awk(words: Sequence[Word]) -> Effects:
    """The effects of `awk`, its program included."""
    operands: list[Word] = []
    doubts: list[str] = []
    programs: list[Word] = []
    for item in scan_options(words, _GRAMMAR):
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
        elif not _is_print_only(program.text):
            doubts.append("an awk program that may run commands or open files")
    reads = [w for w in operands if not _ASSIGNMENT.match(w.text or "")]
    return Effects(is_read_only=True, reads=tuple(reads), doubts=tuple(doubts))


def _is_print_only(program: str) -> bool:
    code = _strip_literals(program)
    if code is None:
        return not _UNSAFE_NAMES.search(program) and not any(c in program for c in "|<>")
    if _UNSAFE_NAMES.search(code) or "|" in code.replace("||", ""):
        return False
    # A comparison is one outside of every print statement, or in parentheses.
    while (inner := _GROUP.sub("", code)) != code:
        code = inner
    return not re.search(r"\bprintf?\b[^;}]*>", code)


def _strip_literals(program: str) -> str | None:
    """The program without what is text in it; None where that cannot be told."""
    at, made, last = 0, list[str](), "{"
    while at < len(program):
        found = _TOKEN.match(program, at)
        if found is None:
            return None
        kind, text, at = found.lastgroup, found.group(), found.end()
        if kind == "slash":
            pattern = _REGEX.match(program, found.start())
            if last not in _BEFORE_REGEX or pattern is None:
                return None
            at = pattern.end()
        if kind == "other":
            made.append(text)
            last = last if text.isspace() else text
        elif kind != "comment":
            made.append('""')
            last = '"'
    return "".join(made)
