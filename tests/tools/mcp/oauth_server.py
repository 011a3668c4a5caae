"""An MCP server at a URL with its authorization server, in process: the flows of OAuth 2.1."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit


class OAuthServer:
    """Accepts tokens `token-1`, `token-2`, …: the newest `accepted`. `seen` has the requests."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.token_requests: list[dict[str, str]] = []
        self.accepted = ""
        self.expires_in: int | None = 3600
        self.refuses_refresh = False
        self.url = ""
        self._issued = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield f"{self.url}/mcp"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, target, _ = head[0].split(" ")
            self.seen.append(f"{method} {urlsplit(target).path}")
            status, more, answer = self._answer(method, target, headers, body)
            data = json.dumps(answer).encode() if answer is not None else b""
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"{more}Content-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _answer(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, str, Any]:
        parts = urlsplit(target)
        match parts.path:
            case "/.well-known/oauth-protected-resource/mcp":
                resource = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
                return "200 OK", "", resource
            case "/.well-known/oauth-authorization-server":
                return "200 OK", "", {
                    "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "registration_endpoint": f"{self.url}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none"],
                }  # fmt: skip
            case "/register":
                wanted = json.loads(body)
                return "201 Created", "", {**wanted, "client_id": "c1",
                                           "token_endpoint_auth_method": "none"}  # fmt: skip
            case "/authorize":
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                back = urlencode({"code": "abc", "state": query["state"]})
                return "302 Found", f"Location: {query['redirect_uri']}?{back}\r\n", None
            case "/token":
                return self._issue({k: v[0] for k, v in parse_qs(body.decode()).items()})
            case "/mcp":
                return self._answer_mcp(method, headers, body)
            case _:
                return "404 Not Found", "", None

    def _issue(self, form: dict[str, str]) -> tuple[str, str, Any]:
        self.token_requests.append(form)
        if form["grant_type"] == "refresh_token" and self.refuses_refresh:
            return "400 Bad Request", "", {"error": "invalid_grant"}
        self._issued += 1
        self.accepted = f"token-{self._issued}"
        token = {"access_token": self.accepted, "token_type": "Bearer", "refresh_token": "again"}
        return "200 OK", "", {**token, "expires_in": self.expires_in}

    def _answer_mcp(
        self, method: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, str, Any]:
        if not self.accepted or headers.get("authorization") != f"bearer {self.accepted}":
            where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return "401 Unauthorized", (
                f'WWW-Authenticate: Bearer resource_metadata="{where}"\r\n'
            ), {}  # fmt: skip
        if method != "POST":
            return "405 Method Not Allowed", "", {}
        message = json.loads(body)
        number = message.get("id")
        if number is None:
            return "202 Accepted", "", None
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "o", "version": "1"}},
            "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }  # fmt: skip
        if message["method"] not in results:
            error = {"code": -32601, "message": "not found"}
            return "200 OK", "", {"jsonrpc": "2.0", "id": number, "error": error}
        result = {"jsonrpc": "2.0", "id": number, "result": results[message["method"]]}
        return "200 OK", "", result
