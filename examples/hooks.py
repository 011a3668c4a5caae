"""A hook of your own: it looks at each call before it happens, and may object.

The same points are open to shell commands in settings; docs/hooks.md shows both.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, tool
from treadle.core.contracts.hook import Block, HookAnswer, HookInput
from treadle.models import Say, Scripted
from treadle.policy.hooks import hook


@tool
async def deploy(target: str) -> str:
    """Deploy to a target."""
    return f"deployed to {target}"


@hook("pre_tool_use", matcher="deploy")
def not_to_production(hook_input: HookInput) -> HookAnswer | None:
    if hook_input.data["tool_input"].get("target") == "production":
        return Block("production is deployed by people; use staging")
    return None


async def main() -> None:
    model = Scripted(
        [
            Say(calls=[("deploy", {"target": "production"})]),
            Say(calls=[("deploy", {"target": "staging"})]),
            "It runs on staging.",
        ]
    )
    result = await Agent(model, [deploy], hooks=[not_to_production]).run("Deploy it")
    print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
