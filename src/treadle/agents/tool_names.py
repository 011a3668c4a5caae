"""Names of tools in agent files, whatever their form: `WebFetch`, `web_fetch`, `Bash(git *)`.

Files that were written for other programs use the names of those programs, which a tool has as its
`aliases`. Used by child_settings.py.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

from treadle.core.arguments.fit_names import fold_name
from treadle.core.contracts.tool import ToolSpec

EVERY_TOOL = "*"
# An agent that may edit may do so with any of these tools: a model has the one that it knows.
_EDIT_NAMES = frozenset({"edit", "editfile", "multiedit"})
_EDIT_TOOLS = frozenset({"edit", "apply_patch", "notebook_edit"})


def match_tools(wanted: Iterable[str], specs: Collection[ToolSpec]) -> frozenset[str]:
    """The names of those tools that the list means."""
    return frozenset(name for one in wanted for name in _match(one, specs))


def find_unknown(wanted: Iterable[str], specs: Collection[ToolSpec]) -> list[str]:
    """The entries of the list that mean no tool. Tools of MCP servers may come later."""
    return [
        one
        for one in wanted
        if one != EVERY_TOOL and not _strip(one).startswith("mcp__") and not _match(one, specs)
    ]


def _strip(name: str) -> str:
    """A name without arguments in parentheses, in lower case."""
    return name.partition("(")[0].strip().casefold()


def _match(wanted: str, specs: Collection[ToolSpec]) -> list[str]:
    plain = _strip(wanted)
    if plain.startswith("mcp__"):
        patterns = (plain, f"{plain}__*")  # a server's name means all of its tools
        names = [spec.name for spec in specs]
        return [n for n in names if any(fnmatch.fnmatchcase(n.casefold(), p) for p in patterns)]
    return [spec.name for spec in specs if wanted == EVERY_TOOL or _means(fold_name(plain), spec)]


def _means(folded: str, spec: ToolSpec) -> bool:
    if folded in _EDIT_NAMES and spec.name in _EDIT_TOOLS:
        return True
    return folded in map(fold_name, (spec.name, *spec.aliases))
