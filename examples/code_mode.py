"""Code mode: the model writes a program that calls its tools; it sees only what that prints.

Each call of the program is a call as any other: rules and `approve` decide on it, it is an event
and in the log of the session. The program runs in the sandbox, as a command does.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import treadle
from treadle import Denial, PendingApproval, ToolStarted
from treadle.contracts import ToolResultItem
from treadle.events import ChildEvent
from treadle.models import Say, Scripted

CODE = """
names = glob("*.log").split()
for name, text in zip(names, call_all([("read", {"file_path": name}) for name in names])):
    errors = [line for line in text.splitlines() if "ERROR" in line]
    if errors:
        print(name, len(errors), errors[-1])
try:
    bash("rm *.log")
except ToolError as error:
    print(error)
"""
# What a model would do. Leave out `model=` below to let a real one work.
MODEL = Scripted([Say(calls=[("run_code", {"code": CODE})]), "Only web.log has errors."])


def approve(approval: PendingApproval) -> bool | Denial:
    print("asked about:", approval.summary)
    return True if approval.call.name == "run_code" else Denial("keep the logs")


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for name in ("web", "mail", "cron"):
        line = "ERROR disk full\n" if name == "web" else ""
        (folder / f"{name}.log").write_text("all is well\n" * 400 + line)
    async with treadle.coding_agent(
        folder,
        model=MODEL,
        approve=approve,
        settings={"code_mode": True},
        sandbox="off",  # so that the example runs anywhere; leave it out at home
    ) as agent:
        async with agent.stream("Which logs have errors?") as events:
            async for event in events:
                match event:
                    case ChildEvent(child=ToolStarted(summary=summary)):
                        print("the program runs", summary)
        print(events.result.text)
    saw = [item for item in MODEL.requests[-1].transcript if isinstance(item, ToolResultItem)]
    print("the model saw:", saw[-1].text, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
