"""A server of tokens on loopback: it records what it is asked, and answers by the path."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Asked(NamedTuple):
    """One request. `form` has the fields of the body or of the query."""

    method: str
    path: str
    headers: dict[str, str]
    form: dict[str, str]


class TokenServer:
    """`answers` is JSON or text by path; other paths get a token. `status` is that of all."""

    def __init__(self, answers: dict[str, Any] | None = None, status: int = 200) -> None:
        self.asked: list[Asked] = []
        self.answers = answers or {}
        self.status = status
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        body = handler.rfile.read(size).decode()
        parts = urlsplit(handler.path)
        fields = parse_qs(body or parts.query)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        form = {name: values[0] for name, values in fields.items()}
        self.asked.append(Asked(handler.command, parts.path, headers, form))
        default = {"access_token": "the-token", "expires_in": 3600, "token_type": "Bearer"}
        value = self.answers.get(parts.path, default)
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        handler.send_response(self.status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@contextmanager
def serve_tokens(answers: dict[str, Any] | None = None, status: int = 200) -> Iterator[TokenServer]:
    server = TokenServer(answers, status)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def do_POST(self) -> None:
            server.answer(self)

        def do_PUT(self) -> None:
            server.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()
