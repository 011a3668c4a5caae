"""The effects of an awk program: most only print, but awk can run commands and open files.

Not a parser: removes strings, patterns and comments, and searches the rest for names that run or
open something. Where a slash may be a division, it searches the whole program.
"""

import re
from collections.abc import Sequence

from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

_GRAMMAR = OptionGrammar(
    "Fvfei",
    word_set("--field-separator --assign --source"),
    runs=word_set(
        "-f --file -E --exec -i --include -l --load -D --debug -o --pretty-print -p --profile -d "
        "--dump-variables -W"
    ),
    may_permute=False,
)
_UNSAFE_NAMES = compile_lazily(
    r"system|getline|@|ARGV|ENVIRON|close|PROCINFO|extension|SYMTAB|FUNCTAB"
)
_TOKEN = compile_lazily(
    r"""(?P<string>"(?:\\.|[^"\\\n])*")|(?P<comment>\#[^\n]*)|(?P<slash>/)|(?P<other>\s+|.)""",
    re.DOTALL | re.VERBOSE,
)
_REGEX = compile_lazily(r"/(?:\\.|[^/\\\n\[])+/")
_GROUP = compile_lazily(r"\([^()]*\)")
_ASSIGNMENT = compile_lazily(r"[A-Za-z_]\w*=", re.ASCII)  # awk's own, without `+=`
_BEFORE_REGEX = "{};,(!~&|="


def analyze_awk(words: Sequence[Word]) -> Effects:
    """The effects of `awk`, its program included."""
    options, operands = scan_options(words, _GRAMMAR)
    doubts = [f"{o.name} loads or writes a file" for o in options if o.name in _GRAMMAR.runs]
    programs = [o.value for o in options if o.name in ("-e", "--source") and o.value]
    if not programs:
        programs, operands = operands[:1], operands[1:]
    for program in programs:
        if program.text is None or program.is_glob:
            doubts.append("the awk program is known only when the command runs")
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
    # `>` compares in parentheses and outside of print statements.
    while (inner := _GROUP.sub("", code)) != code:
        code = inner
    return not re.search(r"\bprintf?\b[^;}]*>", code)


def _strip_literals(program: str) -> str | None:
    """The program without strings, patterns and comments; None if they are not clear."""
    at, code, last = 0, list[str](), "{"
    while at < len(program):
        token = _TOKEN.match(program, at)
        if token is None:
            return None
        kind, text, at = token.lastgroup, token.group(), token.end()
        if kind == "slash":
            pattern = _REGEX.match(program, token.start())
            if last not in _BEFORE_REGEX or pattern is None:
                return None
            at = pattern.end()
        if kind == "other":
            code.append(text)
            last = last if text.isspace() else text
        elif kind != "comment":
            code.append('""')
            last = '"'
    return "".join(code)
