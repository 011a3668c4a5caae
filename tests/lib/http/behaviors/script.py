"""The values of a behavior: the bytes of a server with its pauses and its ending, and the outcome.

It opens nothing: `server` plays a behavior, `behaviors` lists them.
"""

from typing import Final, Literal

import msgspec

BODY: Final = b"data: hello\n\n" * 20
NEXT_BODY: Final = b"the answer to the next request"

HTTPOutcome = Literal[
    "whole",  # the status and the body of the behavior
    "disconnected",
    "malformed",
    "too_large",
    "timed_out",
    "bad_redirect",
    "proxy_failed",
]
ServerRole = Literal["server", "http_proxy", "tunnel"]
ServerEnding = Literal[
    "keep",  # wait for the next request
    "close",
    "reset",
    "silence",  # keep the connection open and read nothing
    "repeat",  # send the last part again and again
]


class HTTPBehavior(msgspec.Struct, frozen=True):
    """One way to answer a request, and what a client should make of it.

    `is_reused`: whether the next request uses the same connection (None: either is right).
    `has_surplus`: bytes follow the response; they must arrive with it, because no client can tell
    later whose they are. A `tunnel` answers a CONNECT; if it opens, a server with TLS is behind it.
    """

    name: str
    parts: tuple[bytes, ...]
    outcome: HTTPOutcome = "whole"
    body: bytes = BODY
    status: int = 200
    ending: ServerEnding = "keep"
    is_reused: bool | None = True
    has_surplus: bool = False
    role: ServerRole = "server"
    reads_body: bool = True  # false: the answer is sent when the headers of the request are read
    request_bytes: int = 2


def format_head(status: str, *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join((f"HTTP/{version} {status}", *headers, "", "")).encode("latin-1")


def format_response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A response with its length."""
    return format_head(status, *headers, f"content-length: {len(body)}") + body


def format_chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """The chunked form of a body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end
