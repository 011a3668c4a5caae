"""What the model sees: the system prompt, memory files, reminders, compaction.

The names load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.context.compaction import Compactor
    from treadle.context.reminders import ChangedFiles, ChangedMemory, Reminders
    from treadle.context.tool_summaries import ToolSummaries

__all__ = [
    "ChangedFiles",
    "ChangedMemory",
    "Compactor",
    "Reminders",
    "ToolSummaries",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ChangedFiles": "reminders",
        "ChangedMemory": "reminders",
        "Compactor": "compaction",
        "Reminders": "reminders",
        "ToolSummaries": "tool_summaries",
    },
)
