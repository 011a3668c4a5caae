"""The behaviors, in groups: framing, interim responses, connections, encodings, errors, proxies.

Each name completes the sentence "the server sends …" or "the server …". `script` says what the
fields mean.
"""

import gzip
import zlib
from typing import Final

from .script import (
    BODY,
    NEXT_BODY,
    HTTPBehavior,
    format_chunks,
    format_head,
    format_response,
)

_B = HTTPBehavior
_WHOLE: Final = format_response(BODY)
_CHUNKED: Final = format_head("200 OK", "transfer-encoding: chunked")
_GZIP: Final = "content-encoding: gzip"
_DEFLATE: Final = "content-encoding: deflate"
_SWITCH: Final = format_head("101 Switching", "connection: upgrade", "upgrade: h2c")
_LARGE: Final = 50_000_000


def _deflate_without_header(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


_FRAMING: Final = (
    _B("a body with its length", (_WHOLE,)),
    _B("a body in chunks", (_CHUNKED, format_chunks(BODY[:7], BODY[7:]))),
    _B(
        "chunks with extensions, leading zeros and a trailer",
        (_CHUNKED, b"00%X;a=b\r\n%s\r\n0;c\r\nx-trailer: 1\r\n\r\n" % (len(BODY), BODY)),
    ),
    _B("a body of one large chunk", (_CHUNKED, format_chunks(BODY * 5_000)), body=BODY * 5_000),
    _B(
        "a body that ends with the connection",
        (format_head("200 OK"), BODY),
        ending="close",
        is_reused=False,
    ),
    _B(
        "a body of HTTP/1.0 that ends with the connection",
        (format_head("200 OK", version="1.0"), BODY),
        ending="close",
        is_reused=False,
    ),
    _B(
        "HTTP/1.0 that keeps the connection",
        (_WHOLE.replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK\r\nconnection: keep-alive"),),
    ),
    _B("HTTP/1.0 with a length", (_WHOLE.replace(b"1.1", b"1.0"),), is_reused=False),
    _B("an empty body", (format_response(b""),), body=b""),
    _B("no content", (format_head("204 No Content"),), body=b"", status=204),
    _B(
        "not modified, with the length of a body that does not follow",
        (format_head("304 Not Modified", "content-length: 9"),),
        body=b"",
        status=304,
    ),
    _B("no reason phrase", (_WHOLE.replace(b" OK", b""),)),
    _B("header names in odd case", (_WHOLE.replace(b"content-l", b"CoNtEnT-L"),)),
    _B("blank lines before the status", (b"\r\n\r\n", _WHOLE)),
    _B("a header of 100,000 bytes", (format_response(BODY, "x: " + "y" * 100_000),)),
    _B("an error with a body", (format_response(BODY, status="500 Oops"),), status=500),
    _B("an unknown status", (format_response(BODY, status="799 Odd"),), status=799),
)

_INTERIM: Final = (
    _B("100 Continue first", (format_head("100 Continue"), _WHOLE)),
    _B(
        "early hints first",
        (format_head("103 Early Hints", "link: </a>", "content-type: text/x"), _WHOLE),
    ),
    _B("fifty interim responses first", (format_head("102 Processing") * 50, _WHOLE)),
    _B("a switch of protocols", (_SWITCH,), "malformed", ending="silence"),
    _B("interim responses without end", (format_head("102 x") * 99,), "malformed", ending="repeat"),
)

_CONNECTIONS: Final = (
    _B(
        "a length and 'connection: close'",
        (format_response(BODY, "connection: close"),),
        is_reused=False,
    ),
    _B("a whole body and closes without a word", (_WHOLE,), ending="close", is_reused=None),
    _B("a whole body and resets the connection", (_WHOLE,), ending="reset", is_reused=None),
    _B("a blank line after the body", (_WHOLE, b"\r\n"), is_reused=None),
    _B(
        "two responses",
        (_WHOLE, format_response(b"a second one")),
        is_reused=False,
        has_surplus=True,
    ),
    _B(
        "a response and half of another",
        (_WHOLE, b"HTTP/1.1 200 OK\r\ncontent-le"),
        is_reused=False,
        has_surplus=True,
    ),
    _B("garbage after the body", (_WHOLE, b"\x00garbage"), is_reused=False, has_surplus=True),
    _B(
        "garbage after the last chunk",
        (_CHUNKED, format_chunks(BODY) + b"5\r\nhello"),
        is_reused=False,
        has_surplus=True,
    ),
    _B(
        "no content and yet a body",
        (format_head("204 No"), b"body"),
        body=b"",
        status=204,
        is_reused=False,
        has_surplus=True,
    ),
    _B(
        "an answer before it has read a large body",
        (format_response(BODY, status="413 Too Large"),),
        status=413,
        reads_body=False,
        request_bytes=_LARGE,
        ending="silence",
        is_reused=False,
    ),
    _B(
        "an answer before it has read a small body",
        (format_response(BODY, status="401 No"),),
        status=401,
        reads_body=False,
        request_bytes=100_000,
        ending="silence",
        is_reused=False,
    ),
)

_ENCODINGS: Final = (
    _B("gzip", (format_response(gzip.compress(BODY), _GZIP),)),
    _B(
        "gzip in two members, with padding",
        (format_response(gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]) + bytes(5), _GZIP),),
    ),
    _B("x-gzip in upper case", (format_response(gzip.compress(BODY), "content-encoding: X-GZIP"),)),
    _B("deflate", (format_response(zlib.compress(BODY), _DEFLATE),)),
    _B("deflate without a header", (format_response(_deflate_without_header(BODY), _DEFLATE),)),
    _B("gzip of nothing", (format_response(b"", _GZIP),), body=b""),
    _B("gzip that is cut", (format_response(gzip.compress(BODY)[:-12], _GZIP),), "malformed"),
    _B("deflate that is cut", (format_response(zlib.compress(BODY)[:-6], _DEFLATE),), "malformed"),
    _B("gzip that is none", (format_response(BODY, _GZIP),), "malformed"),
    _B(
        "an unknown content encoding", (format_response(BODY, "content-encoding: br"),), "malformed"
    ),
    _B(
        "a transfer encoding that was not asked for",
        (format_head("200 OK", "transfer-encoding: gzip, chunked"), format_chunks(BODY)),
        "malformed",
    ),
    _B(
        "little gzip that becomes 64 MB",
        (format_response(gzip.compress(bytes(1 << 20)) * 64, _GZIP),),
        "too_large",
    ),
    _B(
        "a body without end",
        (_CHUNKED, format_chunks(bytes(60_000), end=b"")),
        "too_large",
        ending="repeat",
    ),
)

_DISCONNECTS: Final = (
    _B("nothing and closes", (), "disconnected", ending="close"),
    _B("nothing and resets the connection", (), "disconnected", ending="reset"),
    _B("half a status line and closes", (b"HTTP/1.1 20",), "disconnected", ending="close"),
    _B("half of the headers and closes", (_WHOLE[:30],), "disconnected", ending="close"),
    _B("an interim response and closes", (format_head("102 x"),), "disconnected", ending="close"),
    _B("a body shorter than its length", (_WHOLE[:-1],), "disconnected", ending="close"),
    _B("half of a body and resets", (_WHOLE[:-9],), "disconnected", ending="reset"),
    _B(
        "a chunk that is cut",
        (_CHUNKED, format_chunks(BODY, end=b"")[:-9]),
        "disconnected",
        ending="close",
    ),
    _B(
        "chunks without the last one",
        (_CHUNKED, format_chunks(BODY, end=b"")),
        "disconnected",
        ending="close",
    ),
    _B(
        "a last chunk without its blank line",
        (_CHUNKED, format_chunks(BODY, end=b"0\r\n")),
        "disconnected",
        ending="close",
    ),
    _B(
        "compressed chunks without the last one",
        (
            format_head("200 OK", "transfer-encoding: chunked", _GZIP),
            format_chunks(gzip.compress(BODY), end=b""),
        ),
        "disconnected",
        ending="close",
    ),
)

_MALFORMED_ANSWERS: Final = (
    ("two different lengths", format_response(BODY, "content-length: 9")),
    ("a length and chunks", format_response(format_chunks(BODY), "transfer-encoding: chunked")),
    ("a negative length", format_head("200 OK", "content-length: -1")),
    ("a length beyond all numbers", format_head("200 OK", "content-length: " + "9" * 30)),
    ("a chunk size that is no number", _CHUNKED, b"xyz\r\nhello\r\n"),
    ("a chunk size beyond all numbers", _CHUNKED, b"F" * 20 + b"\r\nhello\r\n"),
    ("a chunk longer than its size", _CHUNKED, b"2\r\nhello\r\n0\r\n\r\n"),
    ("the banner of SSH", b"SSH-2.0-OpenSSH_9.9\r\n"),
    ("the first frame of HTTP/2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)),
    ("HTTP/2 as text", b"HTTP/2 200 OK\r\n\r\n"),
    ("an alert of TLS", b"\x15\x03\x01\x00\x02\x02\x46"),
    ("a page without headers", b"<html>Sign in to this network</html>"),
    ("the status 000", format_head("000 None", "content-length: 0")),
    ("a status that is no number", b"HTTP/1.1 OK\r\n\r\n"),
    ("a zero byte in a header", format_response(BODY, "x: a\x00b")),
    ("a header name with a blank", format_response(BODY, "x y: 1")),
    ("a header that goes on in the next line", format_response(BODY, "x: a\r\n b")),
    ("lines that end without CR", _WHOLE.replace(b"\r", b"")),
)

_MALFORMED: Final = (
    *(_B(name, tuple(parts), "malformed", ending="silence") for name, *parts in _MALFORMED_ANSWERS),
    _B(
        "headers without end",
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 999),
        "malformed",
        ending="repeat",
    ),
    _B(
        "one header without end",
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 9_999),
        "malformed",
        ending="repeat",
    ),
)

_SILENCE: Final = (
    _B("nothing and keeps the connection", (), "timed_out", ending="silence"),
    _B("half of the headers and nothing more", (_WHOLE[:30],), "timed_out", ending="silence"),
    _B(
        "interim responses and nothing more", (format_head("102 x"),), "timed_out", ending="silence"
    ),
    _B("the headers and nothing more", (_WHOLE[: -len(BODY)],), "timed_out", ending="silence"),
    _B("half of a body and nothing more", (_WHOLE[:-9],), "timed_out", ending="silence"),
    _B("a body with no end in sight", (format_head("200 OK"), BODY), "timed_out", ending="silence"),
)

_REDIRECTS: Final = (
    _B(
        "a redirect within its origin",
        (format_response(b"", "location: /there", status="307 There"),),
        body=NEXT_BODY,
    ),
    _B(
        "a redirect to another host",
        (format_response(b"", "location: http://other.invalid/", status="308 There"),),
        "bad_redirect",
        is_reused=None,
    ),
    _B(
        "a redirect to what is no URL",
        (format_response(b"", "location: http://[x", status="307 There"),),
        "bad_redirect",
        is_reused=None,
    ),
    _B(
        "a redirect that drops the body of a POST",
        (format_response(b"", "location: /there", status="302 There"),),
        "bad_redirect",
        is_reused=None,
    ),
)

_REFUSED_TUNNELS: Final = (
    ("a tunnel refused without a password", format_head("407 Password")),
    ("a tunnel refused", format_head("403 Forbidden", "content-length: 0")),
    ("a tunnel to a server that is not there", format_response(BODY, status="503 No")),
    (
        "a tunnel answered with a redirect",
        format_head("302 Sign in", "location: http://x/"),
    ),
    ("a tunnel answered with garbage", b"garbage\r\n\r\n"),
    ("a tunnel answered with nothing",),
    ("a tunnel answered with half of the headers", b"HTTP/1.1 200 OK\r\nx: "),
    ("a tunnel that closes at once", format_head("200 OK")),
    ("bytes in the tunnel before the handshake", format_head("200 OK") + b"hello"),
)

_PROXIES: Final = (
    _B("a proxy that forwards", (_WHOLE,), role="http_proxy"),
    _B(
        "a proxy that wants a password",
        (format_response(BODY, status="407 Proxy Authentication Required"),),
        role="http_proxy",
        status=407,
    ),
    _B(
        "a proxy that finds no server",
        (format_response(BODY, status="502 Bad Gateway"),),
        role="http_proxy",
        status=502,
    ),
    _B(
        "a proxy that opens the tunnel",
        (format_head("200 Established"),),
        role="tunnel",
        body=NEXT_BODY,
    ),
    _B(
        "a proxy of HTTP/1.0 that opens the tunnel",
        (format_head("200 OK", version="1.0"),),
        role="tunnel",
        body=NEXT_BODY,
    ),
    _B(
        "a proxy that sends an interim response before it opens the tunnel",
        (format_head("100 Continue"), format_head("200 OK", "via: 1.1 proxy")),
        role="tunnel",
        body=NEXT_BODY,
    ),
    *(
        _B(name, tuple(parts), "proxy_failed", role="tunnel", ending="close")
        for name, *parts in _REFUSED_TUNNELS
    ),
    _B(
        "a tunnel answered with headers without end",
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 999),
        "proxy_failed",
        role="tunnel",
        ending="repeat",
    ),
    _B("a tunnel that is never answered", (), "timed_out", role="tunnel", ending="silence"),
    _B(
        "a tunnel in which no server answers",
        (format_head("200 OK"),),
        "timed_out",
        role="tunnel",
        ending="silence",
    ),
)

HTTP_BEHAVIORS: Final = (
    *_FRAMING,
    *_INTERIM,
    *_CONNECTIONS,
    *_ENCODINGS,
    *_DISCONNECTS,
    *_MALFORMED,
    *_SILENCE,
    *_REDIRECTS,
    *_PROXIES,
)
