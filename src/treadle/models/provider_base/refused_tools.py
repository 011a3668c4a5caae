"""Finds the tools for which a provider refuses a request without naming them.

Used by quarantine.py. The number of requests is small, whatever the number of tools: a bisection
for each of the first few tools, then all the tools that are still suspected are left out at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.tool import ToolSpec

MAX_BISECTIONS = 3

IsAcceptedWithout = Callable[[Sequence[ToolSpec]], Awaitable[bool]]


class ToolSearch:
    """`is_accepted_without` sends the request without these tools."""

    def __init__(self, is_accepted_without: IsAcceptedWithout) -> None:
        self._is_accepted_without = is_accepted_without
        self._suspects: list[ToolSpec] | None = None  # it is accepted without all of these
        self._found_count = 0
        self._is_doubted = False

    @property
    def has_suspects(self) -> bool:
        return bool(self._suspects)

    async def find(self, refused: ModelRequest) -> list[ToolSpec] | None:
        """The tools to leave out; empty: they are not to blame; None: send the request once more,
        because no second refusal has confirmed the first one."""
        if self._suspects is None:
            self._suspects = await self._select_suspects(refused)
        suspects = self._suspects
        takes_all = len(suspects) <= 1 or self._found_count == MAX_BISECTIONS
        count = len(suspects) if takes_all else await self._bisect(suspects)
        if count == 1 and not self._found_count and not self._is_doubted:
            self._is_doubted = True
            return None
        self._found_count += 1
        self._suspects = [] if takes_all else suspects[: count - 1]
        return suspects if takes_all else [suspects[count - 1]]

    async def _select_suspects(self, refused: ModelRequest) -> list[ToolSpec]:
        """The tools of servers come last in a request, and are suspected first."""
        wanted = refused.options.tool_choice
        tools = [spec for spec in reversed(refused.tools) if spec.name != wanted]
        if tools and await self._is_accepted_without(tools):
            return tools
        # A history with calls may need a request with tools.
        if len(tools) > 1 and await self._is_accepted_without(tools[:-1]):
            return tools[:-1]
        return []

    async def _bisect(self, suspects: list[ToolSpec]) -> int:
        """The least number of first suspects without which the request is accepted."""
        low, high = 0, len(suspects)
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_accepted_without(suspects[:middle]):
                high = middle
            else:
                low = middle
        return high
