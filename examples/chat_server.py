"""A chat server: any number of stored sessions, streamed answers. It survives `kill -9`.

    pip install 'treadle[web]'; python examples/chat_server.py anthropic/claude-sonnet-5-5 [PORT]
    curl -N -d "A table for two, please" http://127.0.0.1:8000/chats/ada

An empty message continues an answer that a crash cut off; what a tool did before is not done again.
Without a model it chats with itself, by a script, and ends.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from treadle import Agent, Session, SessionBusy, TextDelta, TreadleError, tool
from treadle.contracts import Model
from treadle.models import Say, Scripted


@tool(effect="irreversible")
def book_table(guest: str, seats: int) -> str:
    """Book a table at the restaurant."""
    with Path("bookings.txt").open("a") as file:
        file.write(f"{guest} {seats}\n")
    return f"a table for {seats} is booked for {guest}"


class Chat:
    """Answers a message; its session is open while the answer is sent."""

    def __init__(self, model: str | Model) -> None:
        self.agent = Agent(model, [book_table], instructions="Take bookings.", store="chats.db")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = (await (request := Request(scope, receive)).body()).decode() or None
        async with self.agent.session(request.path_params["chat"]) as session:
            async with contextlib.aclosing(read_text(session, message)) as text:
                await StreamingResponse(text, media_type="text/plain")(scope, receive, send)


async def read_text(session: Session, message: str | None) -> AsyncGenerator[str, None]:
    try:
        async with session.stream(message) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text
    except TreadleError as error:
        yield f"\n[{error}]"
    await session.aclose()  # before the answer ends: the next message may come at once


def refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 409 if isinstance(error, SessionBusy) else 400)


def make_app(model: str | Model) -> Starlette:
    route = Route("/chats/{chat}", Chat(model), methods=["POST"])
    return Starlette(routes=[route], exception_handlers={TreadleError: refuse})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvicorn.run(make_app(sys.argv[1]), port=int((*sys.argv, "8000")[2]))
        sys.exit()
    call = Say("One moment. ", calls=[("book_table", {"guest": "Ada", "seats": 2})])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        client = TestClient(make_app(Scripted([call, "It is booked.", "For two."])))
        for message in ("A table for two, please. Ada", "For how many?"):
            print(">", message, "\n" + client.post("/chats/ada", content=message).text)
