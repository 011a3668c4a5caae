"""Treadle: an agent engine, and the coding agent on it.

    from treadle import Agent, tool

The names below load when they are used, so that a start pays only for what it needs.
"""

from treadle.lib.lazy_exports import lazy_exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle._version import __version__
    from treadle.agents.agent import Agent
    from treadle.agents.agent_definition import AgentDefinition
    from treadle.agents.agent_sessions import SessionSnapshot, StoredSession
    from treadle.agents.child_agents import PreparedChild
    from treadle.agents.run import Result
    from treadle.agents.session import Session
    from treadle.agents.stream import Stream
    from treadle.agents.subagents import ChildStart, ChildTask
    from treadle.agents.sync_session import SyncSession, SyncStream
    from treadle.apps.assembly.coding_agent import coding_agent
    from treadle.apps.console.serve_mcp import serve_mcp
    from treadle.core.contracts.model import CacheRequest, ModelOptions
    from treadle.core.contracts.tool import Access, ToolContext, ToolOutput
    from treadle.core.errors import (
        ConfigError,
        InputBlocked,
        LoopError,
        MissingExtra,
        ModelError,
        OutputMismatch,
        OutputMissing,
        SessionBusy,
        SessionNotFound,
        StoreError,
        ToolError,
        ToolsUnavailable,
        TreadleError,
    )
    from treadle.core.events import (
        ApprovalRequired,
        ChildEvent,
        RunFailed,
        TextDelta,
        ThinkingDelta,
        ToolFinished,
        ToolStarted,
        TurnFinished,
    )
    from treadle.core.loop.config import RunContext
    from treadle.core.loop.driver import Driver
    from treadle.core.retry import Retry
    from treadle.core.steps import (
        AfterToolResult,
        Approval,
        ApprovalRequest,
        AwaitingInput,
        Denial,
        Doubt,
        DriverSnapshot,
        Finished,
        PendingApproval,
    )
    from treadle.core.transcript.content import Document, Image, Text
    from treadle.core.transcript.items import AssistantItem, UserItem
    from treadle.core.transcript.transcript import Transcript
    from treadle.core.transcript.usage import Usage
    from treadle.tools.function import tool

__all__ = [
    "Access",
    "AfterToolResult",
    "Agent",
    "AgentDefinition",
    "Approval",
    "ApprovalRequest",
    "ApprovalRequired",
    "AssistantItem",
    "AwaitingInput",
    "CacheRequest",
    "ChildEvent",
    "ChildStart",
    "ChildTask",
    "ConfigError",
    "Denial",
    "Document",
    "Doubt",
    "Driver",
    "DriverSnapshot",
    "Finished",
    "Image",
    "InputBlocked",
    "LoopError",
    "MissingExtra",
    "ModelError",
    "ModelOptions",
    "OutputMismatch",
    "OutputMissing",
    "PendingApproval",
    "PreparedChild",
    "Result",
    "Retry",
    "RunContext",
    "RunFailed",
    "Session",
    "SessionBusy",
    "SessionNotFound",
    "SessionSnapshot",
    "StoreError",
    "StoredSession",
    "Stream",
    "SyncSession",
    "SyncStream",
    "Text",
    "TextDelta",
    "ThinkingDelta",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolOutput",
    "ToolStarted",
    "ToolsUnavailable",
    "Transcript",
    "TreadleError",
    "TurnFinished",
    "Usage",
    "UserItem",
    "__version__",
    "coding_agent",
    "serve_mcp",
    "tool",
]


def _find_elsewhere(name: str) -> str:
    from treadle.agents.foreign_names import find_class

    return find_class(name)


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Access": "core.contracts.tool",
        "AfterToolResult": "core.steps",
        "Agent": "agents.agent",
        "AgentDefinition": "agents.agent_definition",
        "Approval": "core.steps",
        "ApprovalRequest": "core.steps",
        "ApprovalRequired": "core.events",
        "AssistantItem": "core.transcript.items",
        "AwaitingInput": "core.steps",
        "CacheRequest": "core.contracts.model",
        "ChildEvent": "core.events",
        "ChildStart": "agents.subagents",
        "ChildTask": "agents.subagents",
        "ConfigError": "core.errors",
        "Denial": "core.steps",
        "Document": "core.transcript.content",
        "Doubt": "core.steps",
        "Driver": "core.loop.driver",
        "DriverSnapshot": "core.steps",
        "Finished": "core.steps",
        "Image": "core.transcript.content",
        "InputBlocked": "core.errors",
        "LoopError": "core.errors",
        "MissingExtra": "core.errors",
        "ModelError": "core.errors",
        "ModelOptions": "core.contracts.model",
        "OutputMismatch": "core.errors",
        "OutputMissing": "core.errors",
        "PendingApproval": "core.steps",
        "PreparedChild": "agents.child_agents",
        "Result": "agents.run",
        "Retry": "core.retry",
        "RunContext": "core.loop.config",
        "RunFailed": "core.events",
        "Session": "agents.session",
        "SessionBusy": "core.errors",
        "SessionNotFound": "core.errors",
        "SessionSnapshot": "agents.agent_sessions",
        "StoreError": "core.errors",
        "StoredSession": "agents.agent_sessions",
        "Stream": "agents.stream",
        "SyncSession": "agents.sync_session",
        "SyncStream": "agents.sync_session",
        "Text": "core.transcript.content",
        "TextDelta": "core.events",
        "ThinkingDelta": "core.events",
        "ToolContext": "core.contracts.tool",
        "ToolError": "core.errors",
        "ToolFinished": "core.events",
        "ToolOutput": "core.contracts.tool",
        "ToolStarted": "core.events",
        "ToolsUnavailable": "core.errors",
        "Transcript": "core.transcript.transcript",
        "TreadleError": "core.errors",
        "TurnFinished": "core.events",
        "Usage": "core.transcript.usage",
        "UserItem": "core.transcript.items",
        "__version__": "_version",
        "coding_agent": "apps.assembly.coding_agent",
        "serve_mcp": "apps.console.serve_mcp",
        "tool": "tools.function",
    },
    _find_elsewhere,
)
del TYPE_CHECKING
