"""The Python blocks of the docs run, one after the other, against a provider on loopback."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from treadle.testing import FakeCall, FakeReply, ProviderServer

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(?:<!-- replies: (.*?) -->\n)?```python\n(.*?)```", re.DOTALL)


def read_blocks(page: str) -> list[tuple[list[FakeReply], str]]:
    """The blocks of a page, each with the replies of the model that a comment before it gives."""
    found = BLOCK.findall((DOCS / page).read_text())
    return [([make_reply(one) for one in json.loads(said or "[]")], code) for said, code in found]


def make_reply(said: str | dict[str, Any]) -> FakeReply:
    if isinstance(said, str):
        return FakeReply(said)
    return FakeReply(calls=tuple(FakeCall(name, arguments) for name, arguments in said["calls"]))


@pytest.mark.parametrize("page", ["library.md", "hooks.md", "child-agents.md", "fleet.md"])
async def test_every_block_runs(page: str, monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("code_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for replies, code in read_blocks(page):
        async with ProviderServer(replies) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
            compiled = compile(
                code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
            )
            ended = eval(compiled, vars(module))
            if inspect.isawaitable(ended):
                await ended
            assert server.violations == []
            assert len(server.generation_requests) == len(replies)
