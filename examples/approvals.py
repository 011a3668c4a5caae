"""Approvals: the person says yes, says no with a reason, or edits the arguments first.

The policy decides which calls are asked about; `approve` gets those. The model is told about a
denial and about an edit. In a stream without `approve`, the event ApprovalRequired asks, and
`events.approve(...)` or `events.deny(...)` answers; a call without an answer is denied.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, Approval, Denial, PendingApproval, tool
from treadle.contracts import (
    Allow,
    Ask,
    BasePolicy,
    PermissionRequest,
    ToolResultItem,
    Verdict,
)
from treadle.models import Say, Scripted


@tool
async def pay(to: str, euros: int) -> str:
    """Pay an amount."""
    return f"paid {euros} euros to {to}"


class AskAboutMoney(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("money leaves the account") if request.tool.name == "pay" else Allow()


async def approve(approval: PendingApproval) -> bool | Approval | Denial:
    """Stands for the person: a dialog, a message in a chat, a page."""
    arguments = approval.arguments
    print(f"asked: pay {arguments['euros']} euros to {arguments['to']}? ({approval.reason})")
    if arguments["to"] == "unknown":
        return Denial("we do not know this account")
    if arguments["euros"] > 100:
        return Approval(arguments={**arguments, "euros": 100})
    return True


MODEL = Scripted(
    [
        Say(
            calls=[
                ("pay", {"to": "Ada", "euros": 20}),
                ("pay", {"to": "Bob", "euros": 5000}),
                ("pay", {"to": "unknown", "euros": 1}),
            ]
        ),
        "Ada got 20 euros, Bob 100 instead of 5000; the third payment was refused.",
    ]
)


async def main() -> None:
    agent = Agent(MODEL, [pay], policy=AskAboutMoney(), approve=approve)
    result = await agent.run("Pay the three bills")
    for item in result.transcript[2:5]:
        if isinstance(item, ToolResultItem):
            print("the model reads:", item.model_text)
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
