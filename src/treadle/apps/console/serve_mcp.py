"""`treadle.serve_mcp`: the tools of an agent as an MCP server, for other programs."""

from __future__ import annotations

from typing import Any

from treadle.agents.agent import Agent
from treadle.core.extras import require_extra


async def serve_mcp(
    agent: Agent[Any, Any], *, name: str = "", instructions: str = "", deps: Any = None
) -> None:
    """Offer the tools of the agent, as an MCP server over stdin and stdout, until the client is
    gone: `asyncio.run(treadle.serve_mcp(agent))`. No model is asked. `deps` are those of the
    calls; policy, approver and hooks of the agent decide on them. The agent is closed at the end.
    """
    require_extra("mcp")
    from treadle.apps.console.tool_server import ToolServer

    async with agent:
        name = name or agent.config.name or "treadle"
        await ToolServer(agent, name, instructions, deps).serve_stdio()
