"""A hook of your own, as a class: the model does not see mail addresses in results."""

from __future__ import annotations

import asyncio
import re

from treadle import Agent, tool
from treadle.contracts import Change, HookAnswer, HookInput, HookPoint, PostToolUseData
from treadle.models import Say, Scripted

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


class HideAddresses:
    points: frozenset[HookPoint] = frozenset({"post_tool_use"})
    timeout = 5.0  # seconds; 60 without it

    def __init__(self) -> None:
        self.hidden = 0

    async def run(self, hook_input: HookInput[PostToolUseData]) -> HookAnswer | None:
        text, count = ADDRESS.subn("[address]", hook_input.data["tool_response"])
        self.hidden += count
        return Change(text=text) if count else None


@tool(effect="pure")
async def find_customer(name: str) -> str:
    """Find a customer."""
    return f"{name}, {name.lower()}@example.com, since 2021"


async def main() -> None:
    hook = HideAddresses()
    model = Scripted([Say(calls=[("find_customer", {"name": "Ada"})]), "A customer since 2021."])
    result = await Agent(model, [find_customer], hooks=[hook]).run("Who is Ada?")
    print(result.text, hook.hidden, "address was hidden")


if __name__ == "__main__":
    asyncio.run(main())
