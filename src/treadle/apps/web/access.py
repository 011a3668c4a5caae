"""Who may use the page: the person who opened the link, on the page itself.

Every request passes here before anything else sees it.

- The page has a host name of its own, which no other server on this machine has: browsers share
  cookies between ports, not between names. Another name is refused (DNS rebinding, too); a link
  with the name of this machine leads to the page's own. The port may differ, for a tunnel over ssh.
- The token of the link becomes a cookie that scripts cannot read. Its value is that of this start
  of the server, never the token. Without it: 403.
- Without a cookie there is only the health of the fleet, for monitors.
- A request that changes something, and a WebSocket, has to come from the page itself (Origin).
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.apps.web.messages import Problem

LOCAL_NAMES = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "HEAD")
OPEN_PATHS = ("/fleet/health",)  # for monitors of this machine; it has counts, and no names
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


_NO_KEY = (
    "Open the link that `treadle web` printed: it holds the key. A page that was open before "
    "`--new-link` was used needs the new one."
)


class PageAccess(msgspec.Struct, frozen=True):
    """`token` is that of the link, `host` the name of the page. `cookie` is the value of this start
    of the server; tabs of earlier starts may stay, and `earlier` has the hashes of their values.
    `name` is that of the cookie: several servers of the user have one host name."""

    token: str
    host: str
    cookie: str
    earlier: tuple[str, ...] = ()
    name: str = "treadle"

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def is_cookie(self, value: str) -> bool:
        is_own = hmac.compare_digest(value.encode(), self.cookie.encode())
        return is_own or (bool(value) and hash_cookie(value) in self.earlier)


def hash_cookie(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


class AccessGuard:
    """The middleware around the application."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)  # the start and the end of the server
            return
        refusal = self._check(scope)
        if refusal is None:
            await self._app(scope, receive, _with_security_headers(send))
        elif scope["type"] == "http":
            await refusal(scope, receive, _with_security_headers(send))
        elif refusal is _NO_KEY_PAGE:
            await _tell_tab(send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    def _check(self, scope: Scope) -> Response | None:
        """None if the request may pass, else the answer to it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        is_page = scope["type"] == "http" and scope["method"] in SAFE_METHODS
        name = find_host_name(host)
        if is_page and scope["path"] in OPEN_PATHS and name in (*LOCAL_NAMES, self._access.host):
            return None
        if name != self._access.host:
            is_here = is_page and name in LOCAL_NAMES
            return (self._lead_home(scope, host) if is_here else None) or _refuse(
                "This is not the address of the page. Use the link that `treadle web` printed."
            )
        if not is_page and headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return _refuse("This request does not come from the page itself.")
        if is_page and (response := self._accept_link(scope)) is not None:
            return response
        cookie = _read_cookie(headers.get("cookie", ""), self._access.name)
        return None if self._access.is_cookie(cookie) else _NO_KEY_PAGE

    def _lead_home(self, scope: Scope, host: str) -> Response | None:
        """A link with a name of this machine leads to the name of the page."""
        query = scope["query_string"].decode("latin-1")
        if not self._access.is_token(dict(parse_qsl(query)).get("token", "")):
            return None
        port = urlsplit(f"//{host}").port
        home = self._access.host + (f":{port}" if port else "")
        return RedirectResponse(f"http://{home}{scope['path']}?{query}", 303)

    def _accept_link(self, scope: Scope) -> Response | None:
        """The answer to a request whose address has the token: a cookie takes its place."""
        query = parse_qsl(scope["query_string"].decode("latin-1"))
        if not self._access.is_token(dict(query).get("token", "")):
            return None
        others = urlencode([(name, value) for name, value in query if name != "token"])
        response = RedirectResponse(scope["path"] + (f"?{others}" if others else ""), 303)
        name, value = self._access.name, self._access.cookie
        response.set_cookie(name, value, httponly=True, samesite="strict")
        return response


async def _tell_tab(send: Send) -> None:
    """An open tab whose key is not valid any more is told so."""
    problem = msgspec.json.encode(Problem(_NO_KEY, "open")).decode()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": problem})
    await send({"type": "websocket.close", "code": POLICY_VIOLATION})


def find_host_name(host: str) -> str:
    """The name in a Host header, on whatever port; "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _read_cookie(header: str, name: str) -> str:
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _refuse(reason: str) -> Response:
    return HTMLResponse(_REFUSED_PAGE.format(reason=reason), 403)


_NO_KEY_PAGE = _refuse(_NO_KEY)


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
