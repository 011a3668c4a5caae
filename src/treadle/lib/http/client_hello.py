"""The first message of a TLS client: which server it names.

Reads no more than that message, and decrypts nothing. Used by the proxy of the sandbox.
"""

from __future__ import annotations

import asyncio

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
