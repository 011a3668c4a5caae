"""A support bot: it looks up orders, hands refunds over to another agent, and a person approves.

    python examples/products/support_bot.py

The conversation is stored: the next message of the customer, in any process, goes to the agent that
has it. Without a key a script plays the model.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass

from treadle import Agent, PendingApproval, ToolContext, tool
from treadle.models import Say, Scripted

MODEL = "anthropic/claude-sonnet-5-5"


@dataclass
class Shop:
    """What the tools of a run depend on: the database of the shop, the customer."""

    customer: str
    orders: dict[int, float]


@tool(effect="pure")
def find_orders(context: ToolContext[Shop]) -> dict[int, float]:
    """List the orders of the customer with their prices."""
    return context.deps.orders


@tool(effect="irreversible", approval=True)
def refund(context: ToolContext[Shop], order: int) -> str:
    """Pay an order back."""
    return f"{context.deps.orders.pop(order)} euros go to {context.deps.customer}"


def approve(asked: PendingApproval) -> bool:
    """A person of the shop decides; here it is a rule."""
    return asked.arguments.get("order") != 8


refunds = Agent(MODEL, [find_orders, refund], deps_type=Shop, instructions="You refund orders.")
bot = Agent(
    MODEL,
    [find_orders, refunds.as_handoff("refunds", "Refunds orders.")],
    deps_type=Shop,
    instructions="You answer customers of a shop.",
    approve=approve,
)


async def answer(shop: Shop, message: str) -> str:
    """The answer to a message of a customer."""
    return (await bot.run(message, deps=shop, session=f"chat-{shop.customer}")).text


# --- the show: what a real model would do ----------------------------------------------------


async def main(folder: str) -> None:
    look = Say(calls=[("find_orders", {})])
    over = Say(calls=[("refunds", {"prompt": "Refund the lamp."})])
    pay = Say(calls=[("refund", {"order": 7})])
    first = Scripted([look, "You have orders 7 and 8.", over])
    second = Scripted([pay, "24 euros are on their way.", "Two or three days."])
    shop = Shop("ada", {7: 24.0, 8: 99.0})
    with bot.override(model=first, store=folder), refunds.override(model=second):
        for message in ("What did I order?", "Give me back 7", "When is it here?"):
            print(">", message, "\n<", await answer(shop, message))
    print("orders left:", shop.orders)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(name))
