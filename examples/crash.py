"""A crash inside a payment: whether it was made is not known, so it is not made again unasked.

This program starts itself as a child process, which is killed (`kill -9`) in the middle of the
tool. Then it opens the same session: the call is in doubt. The host asks the bank, by the key under
which the payment was sent, and settles the call; the model goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from treadle import Agent, ToolContext, tool
from treadle.models import Say, Scripted


@tool(effect="irreversible")
async def pay(euros: int, context: ToolContext[Path]) -> str:
    """Pay an amount."""
    with context.deps.open("a") as bank:
        bank.write(f"{context.idempotency_key} {euros}\n")
    os.kill(os.getpid(), signal.SIGKILL)  # the power fails here
    return "paid"


def make_agent(folder: Path, *replies: Say | str) -> Agent[Path]:
    return Agent(Scripted(replies), [pay], deps_type=Path, store=folder / "sessions.db")


async def crash(folder: Path) -> None:
    agent = make_agent(folder, Say(calls=[("pay", {"euros": 20})]))
    async with agent.session("invoice-7", deps=folder / "bank") as session:
        await session.run("Pay the invoice")


async def recover(folder: Path) -> None:
    agent, bank = make_agent(folder, "The invoice is paid."), folder / "bank"
    async with agent.session("invoice-7", deps=bank) as session:
        for doubt in session.doubts:
            is_paid = doubt.idempotency_key in bank.read_text()
            print(f"in doubt: {doubt.tool} {doubt.arguments}; the bank has it: {is_paid}")
            answer = "paid, says the bank" if is_paid else "not paid: the bank knows nothing of it"
            session.settle(doubt.call.id, answer, is_error=not is_paid)
        print((await session.run()).text)  # without a prompt: go on where the crash was
    print("payments:", len(bank.read_text().splitlines()))


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(crash(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as place:
        child = subprocess.run([sys.executable, __file__, place], check=False)
        print("the process ended with", signal.Signals(-child.returncode).name)
        asyncio.run(recover(Path(place)))
