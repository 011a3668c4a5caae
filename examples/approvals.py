"""Approvals: the loop stops at each call that the policy wants the user to decide on.

Approve, deny with a reason, or approve with other arguments. The loop continues when every call is
decided.
"""

from __future__ import annotations

import asyncio

from treadle import Agent, ApprovalRequest, Finished, tool
from treadle.contracts import Allow, Ask, PermissionRequest, Verdict
from treadle.models import Say, Scripted


@tool
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


class AskBeforeDeleting:
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("it cannot be undone") if request.tool.name == "delete" else Allow()

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


async def main() -> None:
    model = Scripted(
        [
            Say(
                "Tidying up.", calls=[("delete", {"path": "a.txt"}), ("delete", {"path": "b.txt"})]
            ),
            "One is gone, one stays.",
        ]
    )
    driver = Agent(model, [delete], policy=AskBeforeDeleting()).start(prompt="Tidy up")
    while True:
        match await driver.next():
            case ApprovalRequest() as request:
                first, second = request.pending
                print("approve?", first.summary, "-", first.reason)
                request.approve(first.call.id)
                request.deny(second.call.id, "that one is still needed")
            case Finished(result=result):
                print(result.text)
                break
    await driver.aclose()


if __name__ == "__main__":
    asyncio.run(main())
