"""The coding agent in one call: the agent of the command line, for a folder of yours.

It reads, edits and runs commands in that folder. Rules say what runs without a question; `approve`
decides about the rest. Without `model=` it uses that of your settings.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import treadle
from treadle import Denial, PendingApproval, ToolFinished, ToolStarted
from treadle.models import Say, Scripted

# What a model would do. Leave out `model=` below to let a real one work.
FIX = {"file_path": "greet.py", "old_string": "Helo", "new_string": "Hello"}
MODEL = Scripted(
    [
        Say("I look at the file.", calls=[("read", {"file_path": "greet.py"})]),
        Say("A letter is missing.", calls=[("edit", FIX)]),
        Say("I try it.", calls=[("bash", {"command": "python3 greet.py"})]),
        Say("I tidy up.", calls=[("bash", {"command": "rm greet.py"})]),
        "The greeting is right now. I was not allowed to delete the file.",
    ]
)


def approve(approval: PendingApproval) -> bool | Denial:
    """Called for what no rule allows. A Denial tells the model why."""
    print("asked about:", approval.summary)
    return Denial("leave the file alone") if "rm " in approval.summary else False


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "greet.py").write_text('print("Helo")\n')
    async with treadle.coding_agent(
        folder,
        model=MODEL,
        permission_mode="accept-edits",
        allow=["Bash(python3 greet.py)"],
        deny=["Read(.env)"],
        approve=approve,
        sandbox="off",  # so that the example runs anywhere; leave it out at home
        instructions="Keep changes small.",
        max_turns=20,
    ) as agent:
        async with agent.stream("The greeting is misspelt. Fix it.") as events:
            async for event in events:
                match event:
                    case ToolStarted(summary=summary):
                        print("runs", summary)
                    case ToolFinished(is_error=True, result=result):
                        print("denied:", result)
        print(events.result.text)
    print((folder / "greet.py").read_text(), end="")


if __name__ == "__main__":
    asyncio.run(main())
