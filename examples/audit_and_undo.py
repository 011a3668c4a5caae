"""What happened, and taking it back: the log is verified, and a tool declares its inverse.

`undo` of a tool names the call that takes a call back. Here the program makes that call through the
same agent, so the policy decides on it, and the log has it; `sessions.verify` says that it was not
changed since.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from treadle import Agent, tool
from treadle.models import Say, Scripted
from treadle.sessions import SqliteStore
from treadle.tools import plan_undo

tickets: dict[str, str] = {}


@tool
async def close_ticket(number: str) -> str:
    """Close a ticket."""
    return f"closed {tickets.pop(number)}"


@tool(undo=lambda arguments, result: ("close_ticket", {"number": result.text}))
async def open_ticket(title: str) -> str:
    """Open a ticket."""
    tickets["T1"] = title
    return "T1"


async def main(folder: Path) -> None:
    store = folder / "chats.db"
    replies = [Say(calls=[("open_ticket", {"title": "a broken lamp"})]), Say("It is open.")]
    agent = Agent(Scripted(replies), [open_ticket, close_ticket], store=store)
    await agent.run("Open a ticket for the lamp", session="ada")

    log = SqliteStore(store, "ada")
    [step] = plan_undo(await log.load(), [open_ticket, close_ticket])
    await log.aclose()
    print(f"{step.summary} is taken back by {step.tool} {step.arguments}")
    inverse = Scripted([Say(calls=[(step.tool, step.arguments)]), Say("It is closed.")])
    await agent.replace(model=inverse).run("Take it back", session="ada")
    print(f"tickets: {tickets}")

    report = await agent.sessions.verify("ada")
    print(f"the log is {report.state}: {report.entries} entries")
    with closing(sqlite3.connect(store)) as database, database:
        database.execute("UPDATE entries SET entry = replace(entry, 'lamp', 'door')")
    print(f"after a change it is {(await agent.sessions.verify('ada')).state}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
