"""Names of tools in agent files, whatever their form: `WebFetch`, `web_fetch`, `Bash(git *)`.

Files that were written for other programs use the names of those programs. Used by
child_settings.py.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

EVERY_TOOL = "*"
# Names of other programs, folded, and the tools that do the same here.
ALIASES = {
    "agent": ("task",),
    "askuserquestion": ("ask",),
    "bashoutput": ("task_output",),
    "edit": ("edit", "apply_patch", "notebook_edit"),
    "editfile": ("edit", "apply_patch"),
    "fetch": ("web_fetch",),
    "killbash": ("task_stop",),
    "killshell": ("task_stop",),
    "list": ("ls",),
    "listdir": ("ls",),
    "multiedit": ("edit", "apply_patch"),
    "readfile": ("read",),
    "runshellcommand": ("bash",),
    "search": ("grep",),
    "shell": ("bash",),
    "todoread": ("todo",),
    "todowrite": ("todo",),
    "writefile": ("write",),
}


def match_tools(wanted: Iterable[str], names: Collection[str]) -> frozenset[str]:
    """Those of the names that the list means."""
    return frozenset(name for one in wanted for name in _match(one, names))


def find_unknown(wanted: Iterable[str], names: Collection[str]) -> list[str]:
    """The entries of the list that mean no tool. Tools of MCP servers may come later."""
    return [
        one
        for one in wanted
        if one != EVERY_TOOL and not fold_name(one).startswith("mcp__") and not _match(one, names)
    ]


def fold_name(name: str) -> str:
    """A name to compare with: without arguments in parentheses, in lower case; of a tool that is
    not of an MCP server also without `_` and `-`."""
    plain = name.partition("(")[0].strip().casefold()
    return plain if plain.startswith("mcp__") else plain.replace("_", "").replace("-", "")


def _match(wanted: str, names: Collection[str]) -> list[str]:
    if wanted == EVERY_TOOL:
        return list(names)
    folded = fold_name(wanted)
    if folded.startswith("mcp__"):
        patterns = (folded, f"{folded}__*")  # a server's name means all of its tools
        return [n for n in names if any(fnmatch.fnmatchcase(n.casefold(), p) for p in patterns)]
    meant = {folded, *map(fold_name, ALIASES.get(folded, ()))}
    return [name for name in names if fold_name(name) in meant]
