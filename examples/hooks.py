"""A hook of your own: it runs before each call of a tool and may block it.

Shell commands in settings can use the same points; docs/hooks.md shows both.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, tool
from treadle.contracts import Block, HookAnswer, HookInput
from treadle.hooks import hook
from treadle.models import Say, Scripted


@tool
async def deploy(target: str) -> str:
    """Deploy to a target."""
    return f"deployed to {target}"


@hook("pre_tool_use", matcher="deploy")
def block_production(hook_input: HookInput) -> HookAnswer | None:
    if hook_input.data["tool_input"].get("target") == "production":
        return Block("only people deploy to production; use staging")
    return None


async def main() -> None:
    model = Scripted(
        [
            Say(calls=[("deploy", {"target": "production"})]),
            Say(calls=[("deploy", {"target": "staging"})]),
            "It runs on staging.",
        ]
    )
    result = await Agent(model, [deploy], hooks=[block_production]).run("Deploy it")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
