"""A background job: a web request begins it, a worker does it, and a crash does not repeat a step.

    python examples/products/background_job.py

A job is a stored session. Workers continue what others left; one at work is SessionBusy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from treadle import Agent, SessionBusy, tool
from treadle.models import Say, Scripted


@tool(effect="irreversible")
def send_mail(to: str) -> None:
    """Send the monthly letter."""
    with Path("sent.txt").open("a") as out:
        out.write(f"{to}\n")


def list_sent() -> list[str]:
    return Path("sent.txt").read_text().split()


agent = Agent("anthropic/claude-haiku-5-5", [send_mail], store="jobs.db")


async def begin(job: str, task: str) -> None:
    """What a web request does: the message is stored, nothing runs yet."""
    async with agent.session(job) as session:
        session.submit(task)


async def work() -> None:
    """What a worker does: each job that is not done, and has no other worker."""
    for job in await agent.sessions.list(prefix="job-"):
        with contextlib.suppress(SessionBusy):
            async with agent.session(job.id) as session:
                for doubt in session.doubts:  # of a worker that was killed: look, then tell
                    sent = doubt.arguments["to"] in list_sent()
                    session.settle(doubt.call.id, "sent before" if sent else "not sent")
                if session.can_continue:
                    print(job.id, (await session.run()).text)


# --- the show: a worker is killed inside the tool; what a real model would do ----------------


async def main(folder: str) -> None:
    await begin("job-1", "Send the letter to ada@example.org")
    killed = await asyncio.create_subprocess_exec(sys.executable, __file__, folder)
    print("the first worker:", signal.Signals(-await killed.wait()).name)
    with agent.override(model=Scripted(["The letter is sent."])):
        await work()
    print("letters:", list_sent())


async def die() -> None:
    def send_and_die(to: str) -> None:
        send_mail(to)
        os.kill(os.getpid(), signal.SIGKILL)

    call = Say(calls=[("send_mail", {"to": "ada@example.org"})])
    dying = tool(send_and_die, name="send_mail")
    with agent.override(model=Scripted([call]), tools=[dying]):
        await work()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        os.chdir(folder := (*sys.argv, name)[1])
        asyncio.run(die() if len(sys.argv) > 1 else main(folder))
