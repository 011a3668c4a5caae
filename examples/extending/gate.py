"""A gate of your own: a number of model calls for each customer, over all sessions."""

from __future__ import annotations

import asyncio

from treadle import Agent
from treadle.contracts import Admit, RequestEstimate, Stop, Usage
from treadle.models import Scripted


class CallQuota:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made = 0
        self._reserved = 0

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        left = self._limit - self._made - self._reserved
        if left <= 0:
            return Stop("budget_exceeded", f"all {self._limit} calls of this customer are used")
        self._reserved += 1  # other sessions may ask before this call is settled
        return Admit(notice="This is your last call: answer now." if left == 1 else "")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self._reserved -= 1
        self._made += usage.requests  # none if the call was not made


async def main() -> None:
    quota = CallQuota(2)  # one for all agents and sessions of the customer
    agent = Agent(Scripted(["One.", "Two.", "Three."]), gates=[quota])
    for _ in range(3):
        result = await agent.run("Count")
        print(result.reason, result.text)


if __name__ == "__main__":
    asyncio.run(main())
