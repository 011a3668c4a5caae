"""Tools: functions as tools, built-in tools, MCP servers, skills, and their union.

The names load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.tools.builtin import builtin_tools
    from treadle.tools.federation import Federation, StaticSource
    from treadle.tools.function import FunctionTool, tool
    from treadle.tools.mcp.auth.token_store import TokenStore
    from treadle.tools.mcp.client_options import McpClientOptions
    from treadle.tools.mcp.server import McpServer
    from treadle.tools.skills import Skills, find_skills, format_skills_section
    from treadle.tools.undo import UndoStep, plan_undo

__all__ = [
    "Federation",
    "FunctionTool",
    "McpClientOptions",
    "McpServer",
    "Skills",
    "StaticSource",
    "TokenStore",
    "UndoStep",
    "builtin_tools",
    "find_skills",
    "format_skills_section",
    "plan_undo",
    "tool",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Federation": "federation",
        "FunctionTool": "function",
        "McpClientOptions": "mcp.client_options",
        "McpServer": "mcp.server",
        "Skills": "skills",
        "StaticSource": "federation",
        "TokenStore": "mcp.auth.token_store",
        "UndoStep": "undo",
        "builtin_tools": "builtin",
        "find_skills": "skills",
        "format_skills_section": "skills",
        "plan_undo": "undo",
        "tool": "function",
    },
)
