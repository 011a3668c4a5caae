"""The command that takes back what a command did, as far as its output says what that was.

Only single commands of git and gh whose effect is known from their output. Used by bash.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from treadle.lib.text.lazy_regex import compile_lazily

_COMMIT = compile_lazily(r"^\[[^\]]*\b([0-9a-f]{7,40})\] ", re.MULTILINE)
_NEW_REF = compile_lazily(r"^ \* \[new (?:branch|tag)\]\s+\S+ -> (\S+)$", re.MULTILINE)
_URL = compile_lazily(r"https://\S+/(?:issues|pull)/\d+")
_OPERATORS = frozenset(";&|<>()`$\n")


def find_inverse(command: str, output: str) -> str | None:
    """The inverse command; None if it is not known."""
    if _OPERATORS.intersection(command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    match words:
        case ["git", "commit", *options] if "--amend" not in options:
            found = _COMMIT.search(output)
            return f"git revert --no-edit {found.group(1)}" if found else None
        case ["git", "push", *rest]:
            return _find_push_inverse(rest, output)
        case ["git", "branch" | "tag" as kind, name] if not name.startswith("-"):
            return f"git {kind} -d {shlex.quote(name)}"
        case ["gh", "issue" | "pr" as kind, "create", *_]:
            url = _URL.search(output)
            return f"gh {kind} close {url.group(0)}" if url else None
        case _:
            return None


def _find_push_inverse(rest: Sequence[str], output: str) -> str | None:
    """A branch that is new on the remote is removed there; others' commits may be on an old one."""
    remotes = [word for word in rest if not word.startswith("-")]
    new = _NEW_REF.findall(output)
    if len(new) != 1 or not remotes:
        return None
    return f"git push {shlex.quote(remotes[0])} --delete {shlex.quote(new[0])}"
