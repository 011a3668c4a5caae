"""Who may use the page: the person who opened the link, from this machine, on the page itself.

Every request passes here before anything else sees it.

- The name in the Host header has to be one of this machine: a page of another site that lets its
  name point here (DNS rebinding) is refused. The port may differ, for a tunnel over ssh.
- The token of the link becomes a cookie that scripts cannot read. Without it: 403.
- A request that changes something, and a WebSocket, has to come from the page itself (Origin).
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD")
POLICY_VIOLATION = 1008  # the close code of a refused WebSocket

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_REFUSED_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Treadle</title>
<p>{reason}</p></html>"""


class AccessGuard:
    """The middleware around the application. `cookie` is the name of the cookie: browsers share
    cookies between the ports of a machine, so it differs from server to server."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token
        self.cookie = f"treadle_{hmac.new(token.encode(), b'cookie', 'sha256').hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)  # the start and the end of the server
            return
        response = self._check(scope)
        if response is None:
            await self._app(scope, receive, _with_security_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            await response(scope, receive, _with_security_headers(send))

    def _check(self, scope: Scope) -> Response | None:
        """None if the request may pass, else the answer to it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not is_local_host(host):
            return _refuse("This address is not one of this machine. Use the link with 127.0.0.1.")
        is_page = scope["type"] == "http" and scope["method"] in SAFE_METHODS
        if not is_page and headers.get("origin") != f"http://{host}":
            return _refuse("This request does not come from the page itself.")
        if is_page and (response := self._accept_link(scope)) is not None:
            return response
        if not self._is_token(_read_cookie(headers.get("cookie", ""), self.cookie)):
            return _refuse("Open the link that `treadle web` printed: it holds the key.")
        return None

    def _accept_link(self, scope: Scope) -> Response | None:
        """The answer to a request whose address has the token: it moves into a cookie."""
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        if not self._is_token(dict(query).get("token", "")):
            return None
        others = urlencode([(name, value) for name, value in query if name != "token"])
        response = RedirectResponse(scope["path"] + (f"?{others}" if others else ""), 303)
        response.set_cookie(self.cookie, self._token, httponly=True, samesite="strict")
        return response

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine, on whatever port."""
    try:
        return urlsplit(f"//{host}").hostname in LOCAL_NAMES
    except ValueError:
        return False


def _read_cookie(header: str, name: str) -> str:
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _refuse(reason: str) -> Response:
    return HTMLResponse(_REFUSED_PAGE.format(reason=reason), 403)


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
