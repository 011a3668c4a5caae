"""A program that uses an MCP server: its tools are those of the agent, with approvals.

    pip install 'treadle[mcp]'; python examples/products/mcp_consumer.py

A server that does not start is an error with what it printed. This program brings its own server:
`python examples/products/mcp_consumer.py serve`.
"""

from __future__ import annotations

import asyncio
import sys

from treadle import Agent, PendingApproval
from treadle.contracts import Ask, BasePolicy, Model, PermissionRequest, Verdict
from treadle.models import Say, Scripted
from treadle.tools import McpServer


class AsksFirst(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("the server is not ours")


def approve(asked: PendingApproval) -> bool:
    print("asked:", asked.summary)
    return True


SERVER = {"command": sys.executable, "args": [__file__, "serve"]}


async def ask(model: str | Model, question: str) -> str:
    server = McpServer("notes", SERVER)  # it ends with the block
    async with Agent(model, [server], policy=AsksFirst(), approve=approve) as agent:
        return (await agent.run(question)).text


# --- the show: a server by the MCP SDK; what a real model would do ---------------------------


def serve() -> None:
    from mcp.server.mcpserver import MCPServer

    notes = MCPServer("notes", log_level="ERROR")

    @notes.tool()
    def find(word: str) -> str:
        """Find a note."""
        return f"The note about {word}: water it on Mondays."

    notes.run()


def main() -> None:
    call = Say(calls=[("mcp__notes__find", {"word": "ficus"})])
    model = Scripted([call, lambda request: request.transcript[-1].text])
    print(asyncio.run(ask(model, "When do I water the ficus?")))


if __name__ == "__main__":
    serve() if "serve" in sys.argv else main()
