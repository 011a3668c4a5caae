"""A host: a small program in which a user talks with an agent."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from treadle import Agent, ApprovalRequest, AwaitingInput, Finished, Session, TextDelta, tool
from treadle.contracts import Ask, BaseObserver, BasePolicy, PermissionRequest, Verdict
from treadle.events import Event, WarningRaised
from treadle.models import Say, Scripted


class Screen(BaseObserver):
    def on_event(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            print(event.text, end="", flush=True)
        elif isinstance(event, WarningRaised):
            print(f"\n({event.text})")


async def talk(session: Session[None, str], ask: Callable[[str], str]) -> None:
    """Until the user says nothing. Ctrl+C stops the turn, not the program."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, session.interrupt)
    while True:
        match await session.next():
            case AwaitingInput():
                if not (message := await asyncio.to_thread(ask, "\n> ")):
                    return
                session.submit(message)
            case ApprovalRequest(pending=pending):
                for one in pending:
                    answer = await asyncio.to_thread(ask, f"\n{one.summary}: yes or no? ")
                    if answer == "yes":
                        session.approve(one.call.id, session_id=one.session_id)
                    else:  # the model reads the answer
                        session.deny(one.call.id, answer, session_id=one.session_id)
            case Finished(result=turn) if turn.reason != "end_turn":
                print(f"\n(the turn ended: {turn.error or turn.reason})")


class AskAlways(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask(f"{request.tool.name} changes something")


@tool
async def send(text: str) -> str:
    """Send a mail."""
    return "sent"


async def main(ask: Callable[[str], str] = input) -> None:
    model = Scripted([Say("I send it.", calls=[("send", {"text": "Hello"})]), "It is sent."])
    agent = Agent(model, [send], policy=AskAlways(), observers=[Screen()])
    async with agent.session("talk", store="talks") as session:
        await talk(session, ask)


if __name__ == "__main__":
    answers = iter(["Send hello", "yes", ""])  # in a program of yours: asyncio.run(main())
    asyncio.run(main(lambda question: next(answers)))
