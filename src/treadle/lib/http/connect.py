"""Opens a connection for a route: directly or through a proxy, with or without TLS.

It sends no request. Used by client.py, with a route from urls.py. Every failure is a
TransportError with the address.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from .connection import Connection
from .transport import ConnectFailed, ProxyFailed, TimedOut, TLSFailed, TransportError
from .urls import Proxy, Route

_MAX_PROXY_HEAD = 64 * 1024

# The addresses of a host and a port, the preferred one first.
ResolveHost = Callable[[str, int], Awaitable[list[str]]]


async def open_connection(
    route: Route,
    make_connection: Callable[[], Connection],
    get_tls_context: Callable[[], ssl.SSLContext],
    timeout: float | None,
    resolve: ResolveHost | None = None,
) -> Connection:
    """A new connection, ready for a request. The timeout is one of each address."""
    if resolve is None:
        return await _open_route(route, make_connection, get_tls_context, timeout, route.host)
    failure: TransportError = ConnectFailed(f"{route.host} has no address", route.address)
    for address in await resolve(route.host, route.port):
        try:
            return await _open_route(route, make_connection, get_tls_context, timeout, address)
        except (ConnectFailed, TimedOut) as error:
            failure = error
    raise failure


async def _open_route(
    route: Route,
    make_connection: Callable[[], Connection],
    get_tls_context: Callable[[], ssl.SSLContext],
    timeout: float | None,
    host: str,
) -> Connection:
    try:
        async with asyncio.timeout(timeout):
            if route.socket_path:
                loop = asyncio.get_running_loop()
                return (await loop.create_unix_connection(make_connection, route.socket_path))[1]
            if route.proxy is None:
                context = get_tls_context() if route.tls else None
                return await _open_direct(host, route.port, context, make_connection, route.host)
            return await _open_through_proxy(route, route.proxy, make_connection, get_tls_context)
    except TimeoutError as error:
        raise TimedOut("connect", timeout or 0.0, route.address) from error
    except ssl.SSLCertVerificationError as error:
        raise TLSFailed(
            f"the certificate of {route.address} is not trusted ({error.verify_message}): if a "
            "company proxy signs it, point SSL_CERT_FILE to its certificates",
            route.address,
        ) from error
    except ssl.SSLError as error:
        raise TLSFailed(
            f"no TLS with {route.address} ({error.reason or error}): check that the URL should "
            "be https and the port is right",
            route.address,
        ) from error
    except OSError as error:
        raise _connect_error(route, error) from error


async def _open_direct(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    make_connection: Callable[[], Connection],
    name: str,
) -> Connection:
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"ssl": context, "server_hostname": name if context else None}
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_ip_address(host):
        options["happy_eyeballs_delay"] = 0.25  # uvloop has none
    transport, connection = await loop.create_connection(make_connection, host, port, **options)
    _enable_keepalive(transport)
    return connection


async def _open_through_proxy(
    route: Route,
    proxy: Proxy,
    make_connection: Callable[[], Connection],
    get_tls_context: Callable[[], ssl.SSLContext],
) -> Connection:
    context = get_tls_context() if proxy.tls else None
    if not route.tls:
        return await _open_direct(proxy.host, proxy.port, context, make_connection, proxy.host)
    loop = asyncio.get_running_loop()
    transport, tunnel = await loop.create_connection(
        lambda: _ProxyTunnel(loop), proxy.host, proxy.port, ssl=context
    )
    try:
        _enable_keepalive(transport)
        await tunnel.request_tunnel(transport, route, proxy)
        connection = make_connection()
        secured = await loop.start_tls(
            transport, connection, get_tls_context(), server_hostname=route.host
        )
        if secured is None:
            raise ConnectionResetError("the proxy closed the tunnel")
        connection.connection_made(secured)
    except BaseException:
        transport.abort()
        raise
    return connection


class _ProxyTunnel(asyncio.Protocol):
    """The CONNECT exchange with a proxy, up to the blank line after its final answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answer: asyncio.Future[bytes] = loop.create_future()  # the status; empty: none
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while not self._answer.done():
            head, blank_line, rest = self._received.partition(b"\r\n\r\n")
            if not blank_line:
                if len(head) > _MAX_PROXY_HEAD:
                    self._answer.set_result(b"")
                return
            self._received = rest
            status = _parse_status(head)
            if not status.startswith(b"1"):  # after 1xx the final answer follows
                self._answer.set_result(status)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_result(b"")

    async def request_tunnel(
        self, transport: asyncio.Transport, route: Route, proxy: Proxy
    ) -> None:
        bracketed = f"[{route.host}]" if ":" in route.host else route.host
        target = f"{bracketed}:{route.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if proxy.authorization is not None:
            lines.append(f"proxy-authorization: {proxy.authorization}")
        transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        status = await self._answer
        if not status.startswith(b"2") or self._received:  # in a tunnel the client speaks first
            raise ProxyFailed(_refusal_message(route, proxy, status), route.address)


def _parse_status(head: bytes) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    is_status = len(words) > 1 and words[0].startswith(b"HTTP/") and len(words[1]) == 3
    return words[1] if is_status else b""


def _refusal_message(route: Route, proxy: Proxy, status: bytes) -> str:
    answer = f"answered {status.decode('latin-1')}" if status else "gave no answer"
    hint = "check HTTPS_PROXY, or add the host to NO_PROXY"
    if status == b"407":
        hint = "put user and password into the proxy's URL"
    return f"the proxy {proxy.host}:{proxy.port} {answer} for {route.address}: {hint}"


def _connect_error(route: Route, error: OSError) -> ConnectFailed | ProxyFailed:
    address, setting = route.address, "the URL"
    if route.proxy is not None:
        address, setting = f"{route.proxy.host}:{route.proxy.port}", "the proxy variables"
    if isinstance(error, socket.gaierror):
        host = address.rpartition(":")[0] or address
        message = f"cannot find the server {host}: check the network and {setting}"
    elif isinstance(error, ConnectionRefusedError):
        message = f"{address} refused the connection: start the server, check {setting}"
    else:
        message = f"no connection to {address} ({error}): check the network and {setting}"
    if route.proxy is not None:
        return ProxyFailed(f"through the proxy: {message}", route.address)
    return ConnectFailed(message, route.address)


def _is_ip_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _enable_keepalive(transport: asyncio.Transport) -> None:
    # After a suspend the server may be gone without notice: let the kernel find out.
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 45), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        pass  # this kind of socket has no such option
