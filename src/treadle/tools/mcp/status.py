"""The state of an MCP server, as hosts show it. Set by server.py."""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.lib.text.text import plural

# slow: it is up, but does not answer a ping at the moment
McpState = Literal["closed", "starting", "up", "slow", "down", "failed", "login"]
RUNNING_STATES: tuple[McpState, ...] = ("up", "slow")
# Its tools may still come: after its start, or when the user has logged in.
AWAITED_STATES: tuple[McpState, ...] = ("closed", "starting", "down", "login")
SLOW_PROBLEM = "it does not answer at the moment, and calls wait"


class McpStatus(msgspec.Struct, frozen=True):
    """The state of a server, for the user."""

    name: str
    state: McpState
    tools: int
    problem: str = ""

    @property
    def summary(self) -> str:
        tools = plural(self.tools, "tool")
        if self.state == "starting" and self.problem:
            return f"{self.name}: restarting, {tools}; the last time: {self.problem}"
        problem = f": {self.problem}" if self.problem else ""
        return f"{self.name}: {self.state}, {tools}{problem}"
