"""A policy of your own: what only looks is allowed, for the rest the user is asked once."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from treadle import Agent, Approval, PendingApproval, tool
from treadle.contracts import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.models import Say, Scripted


class AskOnce:
    def __init__(self, rules_file: Path, denied: frozenset[str] = frozenset()) -> None:
        self._file = rules_file
        self._denied = denied
        rules = rules_file.read_text() if rules_file.exists() else "[]"
        self._allowed = set[str](json.loads(rules))

    async def decide(self, request: PermissionRequest) -> Verdict:
        name = request.tool.name
        if name in self._denied:
            return Deny(f"{name} is not allowed here; say what you would have done")
        if request.tool.effect == "pure" or name in self._allowed:
            return Allow()
        return Ask(f"{name} changes something", rules=(name,))

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        """The user said "always" to the rules that `Ask` offered."""
        self._allowed.update(rules)
        await asyncio.to_thread(self._file.write_text, json.dumps(sorted(self._allowed)))


@tool
async def send(text: str) -> str:
    """Send a mail."""
    return "sent"


def approve(approval: PendingApproval) -> Approval:
    print("asked about", approval.call.name, approval.rules)
    return Approval(always=True)


async def main() -> None:
    call = Say(calls=[("send", {"text": "Hello"})])
    with tempfile.TemporaryDirectory() as folder:
        policy = AskOnce(Path(folder) / "rules.json")
        agent = Agent(Scripted([call, call, "Sent two."]), [send], policy=policy, approve=approve)
        print((await agent.run("Send hello twice")).text)


if __name__ == "__main__":
    asyncio.run(main())
