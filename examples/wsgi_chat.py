"""A web application without an event loop: plain WSGI, as below Flask and Django.

    python examples/wsgi_chat.py 8000
    curl -N -d "Pay 12 euros" http://127.0.0.1:8000/ada      streams the answer, or what waits
    curl -N -d "yes" http://127.0.0.1:8000/ada               approves, in this or another process

In Flask the view is `return Response(answer(chat, message))`, in Django
`StreamingHttpResponse(answer(chat, message))`. Without a port it talks to itself, and ends.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen
from wsgiref.simple_server import WSGIRequestHandler, make_server

from treadle import Agent, TextDelta, tool
from treadle.models import Say, Scripted

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


@tool(approval=True)
def pay(euros: int) -> str:
    """Pay a bill."""
    return f"paid {euros} euros"


HOST = "127.0.0.1"
agent = Agent("anthropic/claude-sonnet-5-5", [pay])


def answer(chat: str, message: str) -> Iterator[bytes]:
    """The text as it arrives. A call that waits for an approval ends it: the next message says."""
    with agent.session_sync(chat) as session:
        waiting = session.approvals
        for one in waiting:
            decide = session.approve if message == "yes" else session.deny
            decide(one.call.id)
        with session.stream(None if waiting else message, suspend=True) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    yield event.text.encode()
        for one in events.waiting:
            yield f"waits for you: {one.summary}".encode()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    size = int(environ.get("CONTENT_LENGTH") or 0)
    message = environ["wsgi.input"].read(size).decode()
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return answer(environ["PATH_INFO"].strip("/"), message)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def show(folder: Path) -> None:
    model = Scripted([Say(calls=[("pay", {"euros": 12})]), "Paid."])
    with agent.override(model=model, store=folder), make_server(HOST, 0, application) as server:
        server.RequestHandlerClass = Quiet
        for message in ("Pay 12 euros", "yes"):
            threading.Thread(target=server.handle_request).start()
            with urlopen(f"http://{HOST}:{server.server_port}/ada", message.encode()) as reply:
                print(">", message, "\n<", reply.read().decode())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        make_server(HOST, int(sys.argv[1]), application).serve_forever()
    with tempfile.TemporaryDirectory() as name:
        show(Path(name))
