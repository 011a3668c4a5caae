"""What the tests of the built-in tools share: an agent that makes given calls, for real."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.workspace.helpers import opened
from treadle import Agent
from treadle.core.contracts.policy import AllowAll
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.tools.builtin import STANDARD_TOOLS, BuiltinSource, builtin_tools
from treadle.workspace.local import LocalWorkspace

Call = tuple[str, dict[str, Any]]
ALL = (*STANDARD_TOOLS, "apply_patch")


class Hands:
    """Calls through a whole agent: its loop, the scripted model, a real workspace."""

    def __init__(self, workspace: LocalWorkspace, tools: BuiltinSource, **agent: Any) -> None:
        self.workspace = workspace
        self.root = workspace.root
        self.tools = tools
        self._agent = {"policy": AllowAll(), **agent}

    async def do(self, *rounds: Call | Sequence[Call]) -> list[ToolResultItem]:
        """Each round one call or several at once; the answers in the order of the calls."""
        replies = [Say(calls=[one] if isinstance(one, tuple) else one) for one in rounds]
        agent = Agent(Scripted([*replies, "done"]), [self.tools], **self._agent)
        result = await agent.run("go", background_wait=0)
        assert result.text == "done", "the loop continues whatever a tool does"
        return [item for item in result.transcript if isinstance(item, ToolResultItem)]

    async def one(self, name: str, **arguments: Any) -> ToolResultItem:
        return (await self.do((name, arguments)))[0]


@contextlib.asynccontextmanager
async def hands(
    folder: Path,
    *,
    sandbox: bool = False,
    names: Sequence[str] = ALL,
    agent: dict[str, Any] | None = None,
    workspace: dict[str, object] | None = None,
    **tools: Any,
) -> AsyncIterator[Hands]:
    async with opened(folder, sandbox=sandbox, **(workspace or {})) as place:
        yield Hands(place, builtin_tools(place, names, **tools), **(agent or {}))


def plain(item: ToolResultItem) -> str:
    assert not item.is_error, item.text
    return item.text


def failed(item: ToolResultItem) -> str:
    assert item.is_error, item.text
    return item.text


def spec_json(source: BuiltinSource) -> bytes:
    return msgspec.json.encode([tool.spec for tool in source.tools()])
