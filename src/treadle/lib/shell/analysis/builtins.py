"""The effects of shell builtins. What is not known to be harmless is a doubt."""

import re
from collections.abc import Sequence

from treadle.lib.shell.analysis.effects import Effects
from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

_VARIABLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PRINTF_COUNT = re.compile(r"%[-#+ '0-9.*]*[hjlLqtz]*n")
_INTEGER = re.compile(r"-?[0-9]+")
_STATE_BUILTINS = word_set(
    "source . alias unalias hash enable trap bind complete compgen compopt fc history let "
    "mapfile readarray getopts shopt umask ulimit export declare typeset local readonly unset "
    "dirs disown fg bg suspend logout caller exec"
)
_STATE_DOUBT = "changes the shell that later commands run in"


def analyze_builtin(name: str, words: Sequence[Word]) -> Effects | None:
    """The effects of a builtin, or None if `name` is not one."""
    if name == "echo":
        return Effects(is_read_only=True, is_print_only=True)
    if name == "printf":
        if words and (words[0].text is None or words[0].text.startswith("-v")):
            return Effects(
                doubts=("printf -v sets a variable, and its subscript can run commands",)
            )
        formats = words[1:2] if words and words[0].text == "--" else words[:1]
        if any(_PRINTF_COUNT.search((w.text or "").replace("%%", "")) for w in formats):
            return Effects(doubts=("printf %n sets a variable",))
        return Effects(is_read_only=True, is_print_only=True)
    if name in ("[", "[[", "test"):
        return _analyze_test(name, words)
    if name in ("cd", "pushd", "popd"):
        return Effects()  # evaluation/ checks the folder
    if name == "command":
        return Effects(is_read_only=True, is_print_only=True)  # only `command -v` is not unwrapped
    if name == "set":
        return _analyze_set(words)
    if name == "read":
        texts = [w.text or "?" for w in words]
        is_safe = all(t in ("-r", "-s") or _VARIABLE_NAME.fullmatch(t) for t in texts)
        return Effects(is_read_only=is_safe, doubts=() if is_safe else (_STATE_DOUBT,))
    if name in _STATE_BUILTINS:
        return Effects(doubts=(_STATE_DOUBT,))
    return None


def _analyze_set(words: Sequence[Word]) -> Effects:
    texts = [w.text or "?" for w in words]
    is_safe = bool(texts)
    for at, text in enumerate(texts):
        if at and re.fullmatch(r"[-+][eux]*o", texts[at - 1]):
            is_safe = is_safe and text in ("pipefail", "errexit", "nounset", "xtrace")
        else:
            is_safe = is_safe and bool(re.fullmatch(r"[-+][eux]*o?", text)) and len(text) > 1
    return Effects(is_read_only=is_safe, doubts=() if is_safe else (_STATE_DOUBT,))


def _analyze_test(name: str, words: Sequence[Word]) -> Effects:
    texts = [w.text for w in words]
    if name != "[[" and not _has_static_operators(words):
        return Effects(doubts=("a test in which a value may become an operator",))
    if any(t in ("-v", "-R") for t in texts):
        return Effects(doubts=("-v evaluates a subscript, which can run commands",))
    if name == "[[":
        for at, text in enumerate(texts):
            if text in ("-eq", "-ne", "-lt", "-le", "-gt", "-ge"):
                sides = [*texts[max(at - 1, 0) : at], *texts[at + 1 : at + 2]]
                if not all(side and _INTEGER.fullmatch(side) for side in sides):
                    return Effects(doubts=("[[ evaluates arithmetic, which can run commands",))
    return Effects(is_read_only=True, is_print_only=True)


def _has_static_operators(words: Sequence[Word]) -> bool:
    """Whether no value that is not static can be read as an operator of the test."""
    if all(w.text is not None for w in words):
        return True
    words = [w for w in words if w.text not in ("[", "]")]
    if any(w.may_split for w in words):
        return False
    if words and words[0].text == "!":
        words = words[1:]
    # One value; an operator and a value; a value, an operator and a value.
    return len(words) <= 3 and (len(words) < 2 or words[len(words) - 2].text is not None)
