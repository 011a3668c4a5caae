"""An approval that takes a week: the process ends, another one answers and continues.

    python examples/products/approval_of_a_week.py order "Order 200 chairs"
    python examples/products/approval_of_a_week.py list
    python examples/products/approval_of_a_week.py yes ID

Nothing runs while it waits. Without arguments it does all three, with a script as the model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile

from treadle import Agent, tool
from treadle.models import Say, Scripted


@tool(effect="irreversible", approval=True)
def order(item: str, count: int) -> str:
    """Order something."""
    return f"{count} {item} are ordered"


agent = Agent("anthropic/claude-sonnet-5-5", [order], store="orders.db")


async def ask(task: str) -> str:
    """Begin; the id of the session if it waits for a decision, else the answer."""
    async with agent.session() as session, session.stream(task, suspend=True) as events:
        await events.wait()
        return session.id if events.waiting else events.result.text


async def show_waiting() -> None:
    for one in await agent.sessions.list(state="suspended (approval)"):
        stored = await agent.sessions.read(one.id)
        print(one.id, one.title, *[asked.summary for asked in stored.approvals])


async def decide(session_id: str, is_allowed: bool) -> str:
    async with agent.session(session_id, must_exist=True) as session:
        for asked in session.approvals:
            (session.approve if is_allowed else session.deny)(asked.call.id)
        return (await session.run()).text


async def main(words: list[str]) -> None:
    match words:
        case ["order", task]:
            print(await ask(task))
        case ["list"]:
            await show_waiting()
        case ["yes" | "no" as said, session_id]:
            print(await decide(session_id, said == "yes"))
        case _:
            await show()


# --- the show: what a real model would do ----------------------------------------------------


async def show() -> None:
    call = Say(calls=[("order", {"item": "chairs", "count": 200})])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with agent.override(model=Scripted([call])):
            session_id = await ask("Order 200 chairs")
        await show_waiting()
        with agent.override(model=Scripted(["200 chairs are on their way."])):  # a week later
            print(await decide(session_id, is_allowed=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
