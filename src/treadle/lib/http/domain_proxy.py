"""A proxy that connects to listed hosts only, for a command in a network namespace of its own.

A small program in the namespace (STARTER) opens a port, hands the listening socket to us and then
becomes the command: so what connects to that port is served here, outside. HTTPS by CONNECT, where
the TLS client must name the same server; plain HTTP one request per connection. Names are looked up
here, and only listed ones. Used by the sandbox (workspace/sandbox/bubblewrap.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from .hosts import (
    DomainPattern,
    is_private_host,
    is_public,
    normalize_host,
    parse_domains,
    resolve_host,
)
from .local_hosts import is_loopback

MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 64 * 1024
MAX_REFUSALS = 20
_CONNECT_SECONDS = 20.0
_HEAD_SECONDS = 60.0
_RELAYED_BYTES = 64 * 1024
_HOP_HEADERS = frozenset(
    {"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "upgrade"}
    | {"te", "trailer"}
)
STARTER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
with socket.socket(fileno=int(sys.argv[1])) as host:
    socket.send_fds(host, [b"x"], [listener.fileno()])
url = "http://127.0.0.1:%d" % listener.getsockname()[1]
listener.close()
for name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ[name] = os.environ[name.upper()] = url
os.environ["no_proxy"] = os.environ["NO_PROXY"] = sys.argv[2]
os.environ["NODE_USE_ENV_PROXY"] = "1"
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Refused(Exception):
    """A connection that is not made; the text says why, for the program and the model."""


class DomainProxy:
    """Serves the commands of one sandbox, in a thread of its own."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def serve(self, domains: Sequence[str]) -> ProxyConnection:
        """Serve one command. Close what is returned when it has ended."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="domain-proxy")
            self._thread.start()
        return ProxyConnection(self._loop, parse_domains(domains))

    def close(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop = self._thread = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


class ProxyConnection:
    """What one command can reach. `descriptor` is for STARTER, in the sandbox."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, patterns: tuple[DomainPattern, ...]
    ) -> None:
        self._loop = loop
        self._gate = _HostGate(patterns)
        # A localhost in the list is that of the machine, others are the command's own.
        local = "" if any(is_loopback(one.host) for one in patterns) else "localhost,"
        self._direct = f"{local}127.0.0.1,::1"
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.descriptor = theirs.detach()
        self._task = asyncio.run_coroutine_threadsafe(self._serve(ours), loop)

    @property
    def refusals(self) -> list[str]:
        """What the command could not reach, and why."""
        return self._gate.refusals

    def make_argv(self, number: int, argv: Sequence[str]) -> tuple[str, ...]:
        """The command after STARTER, in which `descriptor` has this number."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", "-c", STARTER, str(number), self._direct, *argv)

    def close(self) -> None:
        """End all connections; waits until none is left."""
        self._task.cancel()
        ended = asyncio.run_coroutine_threadsafe(self._gate.wait_closed(), self._loop)
        with contextlib.suppress(TimeoutError):
            ended.result(timeout=10.0)

    async def _serve(self, host: socket.socket) -> None:
        with host:
            await _wait_readable(host)
            _, fds, _, _ = socket.recv_fds(host, 1, 1)
        if not fds:
            return  # the command did not start
        listener = socket.socket(fileno=fds[0])
        listener.setblocking(False)
        server = await asyncio.start_server(self._gate.handle, sock=listener, limit=MAX_HEAD_BYTES)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()


async def _wait_readable(host: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(host, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(host)


class _HostGate:
    """Handles the connections of one command."""

    def __init__(self, patterns: tuple[DomainPattern, ...]) -> None:
        self._patterns = patterns
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusals: list[str] = []

    async def wait_closed(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "start_server runs it as a task"
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except Refused as refused:
            if str(refused) not in self.refusals and len(self.refusals) < MAX_REFUSALS:
                self.refusals.append(str(refused))
            text = f"{refused}\n".encode()
            head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(text)}\r\nConnection: close"
            with contextlib.suppress(OSError):
                writer.write(head.encode() + b"\r\n\r\n" + text)
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one side ended, or sent what is no HTTP
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) > MAX_CONNECTIONS:
            raise Refused(f"more than {MAX_CONNECTIONS} connections at once")
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, headers = _parse_head(head)
        if method == "CONNECT":
            await self._tunnel(target, reader, writer)
        else:
            await self._forward(method, target, headers, reader, writer)

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = _parse_authority(target)
        upstream, sender = await self._connect(host, port, usual=443)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                async with asyncio.timeout(_HEAD_SECONDS):
                    hello, name = await read_client_hello(reader)
                named = normalize_host(name)
            except (NoClientHello, ValueError) as error:
                raise Refused(f"{host}: only TLS to this server is let through: {error}") from error
            if named != host:
                raise Refused(f"{named}: the tunnel is for {host}")
            sender.write(hello)
            await _relay_both(reader, writer, upstream, sender)
        finally:
            sender.close()

    async def _forward(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One plain request. Nothing after its body is sent on: it could be for another host."""
        parts = urlsplit(target)
        if parts.scheme != "http" or "@" in parts.netloc:
            raise Refused(f"{target[:80]}: a proxy takes http:// URLs, without a user name")
        host, port = _parse_authority(parts.netloc if parts.port else f"{parts.netloc}:80")
        lengths = [value for name, value in headers if name == "content-length"]
        is_sized = len(lengths) <= 1 and all(v.isascii() and v.isdigit() for v in lengths)
        if not is_sized or any(name == "transfer-encoding" for name, _ in headers):
            raise Refused(f"{host}: over plain http a body needs one Content-Length; use https")
        upstream, sender = await self._connect(host, port, usual=80)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            authority = host if port == 80 else f"{host}:{port}"
            kept = [f"{name}: {value}" for name, value in headers if name not in _HOP_HEADERS]
            lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close"]
            sender.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
            body = asyncio.ensure_future(_copy(reader, sender, int(lengths[0]) if lengths else 0))
            try:
                await _copy(upstream, writer)
            finally:
                body.cancel()
        finally:
            sender.close()

    async def _connect(
        self, host: str, port: int, usual: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a listed host, at an address that is public, or that the user named."""
        found = [one for one in self._patterns if one.matches(host)]
        if not found:
            raise Refused(f"{host}: it is not in the list of the network")
        if port != usual and port not in {one.port for one in found}:
            raise Refused(f"{host}:{port}: the list of the network has no {host}:{port}")
        try:
            addresses = await resolve_host(host, port)
        except (OSError, UnicodeError) as error:
            raise Refused(f"{host}: it cannot be resolved: {error}") from error
        is_named = is_private_host(host) and any(one.host == host for one in found)
        for address in addresses:
            if not is_named and not is_public(address):
                raise Refused(f"{host}: its address {address} is private")
        problem: Exception = OSError("no address")
        for address in addresses[:4]:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(address, port, limit=MAX_HEAD_BYTES)
            except (OSError, TimeoutError) as error:
                problem = error
        raise Refused(f"{host}:{port}: no connection: {problem or 'it took too long'}")


def _parse_head(head: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    """The request line and the headers, names in lower case; ValueError if programs could read
    them in different ways."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = first.split(" ")
    if version not in ("HTTP/1.0", "HTTP/1.1") or not method.isalpha():
        raise ValueError("no request of HTTP/1")
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        is_plain = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
        if not colon or not is_plain or any(sign in value for sign in "\r\n\0"):
            raise ValueError("a header that is none")
        headers.append((name.lower(), value.strip()))
    if any(ord(sign) <= 32 or ord(sign) == 127 for sign in target):
        raise ValueError("no target")
    return method, target, headers


def _parse_authority(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or not 0 < int(port) < 65536:
        raise Refused(f"{text[:80]}: it needs a host and a port")
    try:
        host = normalize_host(name)
    except ValueError as error:
        raise Refused(f"{text[:80]}: {error}") from error
    if not host or ":" in host or "*" in host:
        raise Refused(f"{text[:80]}: only hosts by their names can be reached")
    return host, int(port)


async def _relay_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    upstream: asyncio.StreamReader,
    sender: asyncio.StreamWriter,
) -> None:
    """Until both sides have ended, or one has failed."""
    tasks = [asyncio.ensure_future(_copy(*pair)) for pair in ((reader, sender), (upstream, writer))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None = None
) -> None:
    """Copy `limit` bytes, or all; then the other side is told that no more will come."""
    while limit is None or limit > 0:
        data = await reader.read(_RELAYED_BYTES if limit is None else min(_RELAYED_BYTES, limit))
        if not data:
            break
        limit = None if limit is None else limit - len(data)
        writer.write(data)
        await writer.drain()
    if limit is None and writer.can_write_eof():
        writer.write_eof()


MAX_BYTES = 64 * 1024
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


class NoClientHello(ValueError):
    """It is not the beginning of a TLS connection to one server, in plain text."""


async def read_client_hello(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """The bytes that were read, and the server that they name; NoClientHello otherwise."""
    data, message = b"", b""
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        try:
            head = await reader.readexactly(5)
            size = int.from_bytes(head[3:5], "big")
            if head[0] != _HANDSHAKE or head[1] != 3 or not size:
                raise NoClientHello("it is not TLS")
            record = await reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise NoClientHello("it ended") from error
        data, message = data + head + record, message + record
        if len(data) > MAX_BYTES or message[0] != _CLIENT_HELLO:
            raise NoClientHello("it is not the first message of TLS")
    try:
        return data, _find_server_name(
            _Fields(message[4 : 4 + int.from_bytes(message[1:4], "big")])
        )
    except IndexError as error:
        raise NoClientHello("the first message of TLS is not complete") from error


class _Fields:
    """Fields of a message, one after the other; IndexError at its end."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise IndexError
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def take_number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take_sized(self, size: int) -> _Fields:
        return _Fields(self.take(self.take_number(size)))


def _find_server_name(hello: _Fields) -> str:
    hello.take(2 + 32)  # version, random
    hello.take_sized(1)  # session
    hello.take_sized(2)  # ciphers
    hello.take_sized(1)  # compression
    extensions, names = hello.take_sized(2), list[bytes]()
    while extensions.rest:
        kind, content = extensions.take_number(2), extensions.take_sized(2)
        if kind == _ENCRYPTED_HELLO:
            raise NoClientHello("it hides the server (encrypted client hello)")
        if kind == _SERVER_NAME:
            listed = content.take_sized(2)
            while listed.rest:
                listed.take(1)
                names.append(listed.take_sized(2).rest)
    if len(names) != 1:
        raise NoClientHello("it names no server, or several")
    return names[0].decode("ascii", "replace")
