"""A service with server-sent events: any number of replicas, approvals over HTTP.

    pip install 'treadle[web]'; python examples/products/sse_service.py

A replica needs nothing but the store: the approval may come to another one, or after a restart.
A PostgreSQL address instead of the file makes it work on many machines.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from treadle import Agent, tool
from treadle.contracts import Model
from treadle.models import Say, Scripted
from treadle.observe import encode_line

EMPTY: Mapping[str, bool] = {}


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay a bill."""
    return f"paid {euros} euros"


def make_replica(model: str | Model, store: str) -> Starlette:
    agent = Agent(model, [pay], store=store)

    async def serve(
        chat: str, message: str | None = None, decisions: Mapping[str, bool] = EMPTY
    ) -> AsyncIterator[bytes]:
        """The events of an answer to a message, or to decisions on the calls that wait."""
        async with agent.session(chat) as session:
            for call_id, is_allowed in decisions.items():
                (session.approve if is_allowed else session.deny)(call_id)
            async with session.stream(message, suspend=True) as events:
                async for event in events:
                    yield b"data: " + encode_line(event) + b"\n"

    async def post(request: Request) -> Response:
        events = serve(request.path_params["chat"], **await request.json())
        return StreamingResponse(events, media_type="text/event-stream")

    async def get(request: Request) -> Response:
        """What waits for a person."""
        stored = await agent.sessions.read(request.path_params["chat"])
        return JSONResponse([(one.call.id, one.summary) for one in stored.approvals])

    routes = [Route("/{chat}", post, methods=["POST"]), Route("/{chat}", get)]
    return Starlette(routes=routes)


# --- the show: two replicas; what a real model would do --------------------------------------


def main(folder: str) -> None:
    store = str(Path(folder, "chats.db"))
    asking = TestClient(make_replica(Scripted([Say(calls=[("pay", {"euros": 12})])]), store))
    deciding = TestClient(make_replica(Scripted(["It is paid."]), store))
    asking.post("/bill-7", json={"message": "Pay 12 euros"})
    [(call_id, summary)] = deciding.get("/bill-7").json()
    print("the other replica sees:", summary)
    reply = deciding.post("/bill-7", json={"decisions": {call_id: True}})
    print("paid 12 euros" in reply.text, "It is paid." in reply.text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(name)
