"""The kind of a tool by its name, for hosts that show calls of a log or of an event.

A tool says its kind in its spec; a call has only the name of its tool, which may have been removed
since, or be one of another program's log.
"""

from __future__ import annotations

from functools import lru_cache

from treadle.core.arguments.fit_names import fold_name
from treadle.core.contracts.tool import ToolKind


@lru_cache(maxsize=512)
def get_tool_kind(name: str) -> ToolKind:
    """The kind of a built-in tool or of the one that starts child agents; `other` for the rest."""
    from treadle.agents.child_settings import TASK_NAMES
    from treadle.tools.builtin import KINDS_BY_NAME

    folded = fold_name(name)
    if folded in map(fold_name, (TASK_NAMES.name, *TASK_NAMES.aliases)):
        return TASK_NAMES.kind
    return KINDS_BY_NAME.get(folded, "other")
