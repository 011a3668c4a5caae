"""A service for pages that speak AG-UI: stored threads, approvals as interrupts.

    pip install 'treadle[web,agui]'; python examples/products/agui_service.py

Any number of replicas: a thread is a session in the store, and the answer to an interrupt may come
to another replica, or after a restart.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ag_ui.core import RunAgentInput
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from treadle import Agent, tool
from treadle.apps.agui import stream_sse
from treadle.contracts import Model
from treadle.models import Say, Scripted


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay a bill."""
    return f"paid {euros} euros"


def make_app(model: str | Model, store: str) -> Starlette:
    agent = Agent(model, [pay], store=store)

    async def post(request: Request) -> StreamingResponse:
        run_input = RunAgentInput.model_validate_json(await request.body())
        return StreamingResponse(stream_sse(agent, run_input), media_type="text/event-stream")

    return Starlette(routes=[Route("/", post, methods=["POST"])])


# --- the show: what a page does, and a real model would do -----------------------------------


def send(client: TestClient, **more: object) -> list[dict[str, Any]]:
    messages = [{"id": "m1", "role": "user", "content": "Pay 12 euros"}]
    posted = {"threadId": "bill-7", "runId": "r1", "messages": messages, **more}
    lines = client.post("/", json=posted).text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def main(folder: str) -> None:
    model = Scripted([Say(calls=[("pay", {"euros": 12})]), "It is paid."])
    client = TestClient(make_app(model, str(Path(folder, "threads.db"))))
    [interrupt] = send(client)[-1]["outcome"]["interrupts"]
    print("the page asks:", interrupt["message"])
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    for event in send(client, resume=[answer]):
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            print(event["type"], event["delta"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(name)
