"""A chat in Flask, without an event loop: streamed answers, approvals over HTTP.

    pip install treadle flask; flask --app examples/products/flask_chat.py run
    curl -N -d message="Pay 12 euros" http://127.0.0.1:5000/ada   the answer, or what waits
    curl -N -d approve=yes http://127.0.0.1:5000/ada              to this or another process

In Django the view is `StreamingHttpResponse(answer(…))`. Run as a program it talks to itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from flask import Flask, Response, request

from treadle import Agent, tool
from treadle.models import Say, Scripted


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay a bill."""
    return f"paid {euros} euros"


app = Flask(__name__)
agent = Agent("anthropic/claude-sonnet-5-5", [pay], store="chats.db")


def answer(chat: str, message: str | None, decision: str | None) -> Iterator[str]:
    """The text as it arrives. A call that waits for an approval ends it; a decision continues."""
    with agent.session_sync(chat) as session:
        for one in session.approvals if decision else ():
            (session.approve if decision == "yes" else session.deny)(one.call.id)
        events = session.stream(None if decision else message, suspend=True)
        yield from events.texts()
        for one in events.waiting:
            yield f"waits for you: {one.summary}"


@app.post("/<chat>")
def post(chat: str) -> Response:
    text = answer(chat, request.form.get("message"), request.form.get("approve"))
    return Response(text, mimetype="text/plain")


# --- the show: what a real model would do ----------------------------------------------------


def main(folder: str) -> None:
    model = Scripted([Say(calls=[("pay", {"euros": 12})]), "Paid."])
    client = app.test_client()
    with agent.override(model=model, store=Path(folder)):
        for name, value in (("message", "Pay 12 euros"), ("approve", "yes")):
            print(">", value, "\n<", client.post("/ada", data={name: value}).text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(name)
