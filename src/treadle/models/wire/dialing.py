"""Opening a connection along a route: directly, through a proxy, with TLS or without.

It ends where the first request would begin. `routes` says where to go, `connection` is what
comes out, `client` above keeps it. Every failure leaves as a wire error that names the place.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from .connection import Connection
from .routes import Proxy, Route
from .transport import ConnectFailed, ProxyFailed, TimedOut, TLSFailed

_MAX_PROXY_HEAD = 64 * 1024


async def dial(
    route: Route,
    make: Callable[[], Connection],
    tls: Callable[[], ssl.SSLContext],
    seconds: float | None,
) -> Connection:
    """A fresh connection, ready for a request."""
    try:
        async with asyncio.timeout(seconds):
            if route.proxy is None:
                context = tls() if route.tls else None
                return await _open(route.host, route.port, context, make)
            return await _through(route, route.proxy, make, tls)
    except TimeoutError as error:
        raise TimedOut("connect", seconds or 0.0, route.where) from error
    except ssl.SSLCertVerificationError as error:
        raise TLSFailed(
            f"the certificate of {route.where} is not trusted ({error.verify_message}): if a "
            "company proxy signs it, point SSL_CERT_FILE to its certificates",
            route.where,
        ) from error
    except ssl.SSLError as error:
        raise TLSFailed(
            f"no TLS with {route.where} ({error.reason or error}): check that the URL should "
            "be https and the port is right",
            route.where,
        ) from error
    except OSError as error:
        raise _connect_failed(route, error) from error


async def _open(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    make: Callable[[], Connection],
) -> Connection:
    loop = asyncio.get_running_loop()
    name = host if context is not None else None
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(host):
        transport, connection = await loop.create_connection(
            make, host, port, ssl=context, server_hostname=name, happy_eyeballs_delay=0.25
        )
    else:  # uvloop races no addresses
        transport, connection = await loop.create_connection(
            make, host, port, ssl=context, server_hostname=name
        )
    _keep_alive(transport)
    return connection


async def _through(
    route: Route,
    proxy: Proxy,
    make: Callable[[], Connection],
    tls: Callable[[], ssl.SSLContext],
) -> Connection:
    if not route.tls:
        return await _open(proxy.host, proxy.port, tls() if proxy.tls else None, make)
    loop = asyncio.get_running_loop()
    transport, tunnel = await loop.create_connection(
        lambda: _Tunnel(loop), proxy.host, proxy.port, ssl=tls() if proxy.tls else None
    )
    try:
        _keep_alive(transport)
        await tunnel.ask(transport, route, proxy)
        connection = make()
        secured = await loop.start_tls(transport, connection, tls(), server_hostname=route.host)
        if secured is None:
            raise ConnectionResetError("the proxy closed the tunnel")
        connection.connection_made(secured)
    except BaseException:
        transport.abort()
        raise
    return connection


class _Tunnel(asyncio.Protocol):
    """The CONNECT exchange with a proxy, up to the blank line after its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answer: asyncio.Future[bytes] = loop.create_future()
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if not self._answer.done() and (end >= 0 or len(self._head) > _MAX_PROXY_HEAD):
            self._answer.set_result(self._head[: max(end, 0)])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_result(b"")

    async def ask(self, transport: asyncio.Transport, route: Route, proxy: Proxy) -> None:
        bracketed = f"[{route.host}]" if ":" in route.host else route.host
        place = f"{bracketed}:{route.port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}"]
        if proxy.authorization is not None:
            lines.append(f"proxy-authorization: {proxy.authorization}")
        transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        words = (await self._answer).split(b"\r\n", 1)[0].split(b" ", 2)
        status = words[1] if len(words) > 1 and words[0].startswith(b"HTTP/") else b""
        if not (len(status) == 3 and status.startswith(b"2")):
            raise ProxyFailed(_refusal(route, proxy, status), route.where)


def _refusal(route: Route, proxy: Proxy, status: bytes) -> str:
    said = f"answered {status.decode('latin-1')}" if status else "gave no answer"
    hint = (
        "put user and password into the proxy's URL"
        if status == b"407"
        else "check HTTPS_PROXY, or add the host to NO_PROXY"
    )
    return f"the proxy {proxy.host}:{proxy.port} {said} for {route.where}: {hint}"


def _connect_failed(route: Route, error: OSError) -> ConnectFailed | ProxyFailed:
    place, kind = route.where, "the base URL"
    if route.proxy is not None:
        place, kind = f"{route.proxy.host}:{route.proxy.port}", "the proxy variables"
    if isinstance(error, socket.gaierror):
        message = f"the host of {place} is not known: check the network and {kind}"
    elif isinstance(error, ConnectionRefusedError):
        message = f"nothing answers at {place} (connection refused): start the server, check {kind}"
    else:
        message = f"no connection to {place} ({error}): check the network and {kind}"
    if route.proxy is not None:
        return ProxyFailed(f"through the proxy: {message}", route.where)
    return ConnectFailed(message, route.where)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _keep_alive(transport: asyncio.Transport) -> None:
    # After a laptop's sleep the peer may be gone without a word: let the kernel find out.
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # a socket of a kind that has no such option
