"""An agent that other agents use by A2A: stored conversations, approvals as required input.

    pip install 'treadle[a2a,web]'; python examples/products/a2a_service.py

The client is that of the protocol's SDK. A real service is served by uvicorn:
`uvicorn.run(make_app("anthropic/claude-sonnet-5-5", "contexts.db"))`.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import httpx
from a2a import helpers, types
from a2a.client import Client, ClientConfig, create_client
from starlette.applications import Starlette

from treadle import Agent, tool
from treadle.apps.a2a import make_card, make_routes
from treadle.contracts import Model
from treadle.models import Say, Scripted

URL = "http://cashier.example.org"


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay a bill."""
    return f"paid {euros} euros"


def make_app(model: str | Model, store: str) -> Starlette:
    agent = Agent(model, [pay], store=store)
    return Starlette(routes=make_routes(agent, make_card("Cashier", "Pays bills.", URL)))


# --- the show: what another agent does, and a real model would do ----------------------------


async def send(client: Client, text: str, task: types.Task | None = None) -> types.Task:
    message = helpers.new_text_message(
        text,
        role=types.Role.ROLE_USER,
        task_id=task.id if task else None,
        context_id=task.context_id if task else None,
    )
    request = types.SendMessageRequest(message=message)
    [*_, last] = [event async for event in client.send_message(request)]
    return last.task


async def main(folder: str) -> None:
    model = Scripted([Say(calls=[("pay", {"euros": 12})]), "It is paid."])
    app = make_app(model, str(Path(folder, "contexts.db")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        client = await create_client(URL, ClientConfig(streaming=False, httpx_client=http))
        task = await send(client, "Pay 12 euros")
        print("the agent asks:", helpers.get_message_text(task.status.message))
        task = await send(client, "yes", task)
        print(types.TaskState.Name(task.status.state), helpers.get_artifact_text(task.artifacts[0]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(name))
