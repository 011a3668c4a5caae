"""Signs a JSON Web Token with the key of a Google service account: RS256, without a library.

It reads the private key (PKCS #8 or PKCS #1, PEM) and signs with PKCS #1 v1.5 and SHA-256. A server
of Google checks the signature; nothing is decided here. Pure functions, used by google.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

import msgspec

# DER of the algorithm SHA-256 and of its digest's head (RFC 8017, 9.2).
_SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
_INTEGER, _OCTETS, _SEQUENCE = 2, 4, 48


def sign_token(private_key: str, key_id: str, claims: Mapping[str, object]) -> str:
    """A signed token with these claims. ValueError if the key is not an RSA key."""
    header = {"typ": "JWT", "alg": "RS256"} | ({"kid": key_id} if key_id else {})
    text = b".".join([_encode(msgspec.json.encode(part)) for part in (header, claims)])
    return (text + b"." + _encode(_sign(private_key, text))).decode()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _sign(private_key: str, text: bytes) -> bytes:
    numbers = _read_key(private_key)
    modulus, exponent = numbers[1], numbers[3]  # version, n, e, d, ...
    size = (modulus.bit_length() + 7) // 8
    digest = _SHA256_PREFIX + hashlib.sha256(text).digest()
    padded = b"\0\1" + b"\xff" * (size - len(digest) - 3) + b"\0" + digest
    return pow(int.from_bytes(padded, "big"), exponent, modulus).to_bytes(size, "big")


def _read_key(pem: str) -> list[int]:
    """The numbers of an RSA key."""
    lines = [line for line in pem.strip().splitlines() if not line.startswith("-----")]
    try:
        fields = _read_sequence(base64.b64decode("".join(lines), validate=True))
        inner = [value for tag, value in fields if tag == _OCTETS]
        if inner:  # PKCS #8 has the key as bytes inside
            fields = _read_sequence(inner[0])
        numbers = [int.from_bytes(value, "big") for tag, value in fields if tag == _INTEGER]
    except (ValueError, IndexError) as error:
        raise ValueError(f"the private key cannot be read ({error})") from None
    if len(numbers) < 9:
        raise ValueError("the private key is not an RSA key")
    return numbers


def _read_sequence(data: bytes) -> list[tuple[int, bytes]]:
    tag, content, _ = _read_value(data, 0)
    if tag != _SEQUENCE:
        raise ValueError("no sequence")
    fields, at = [], 0
    while at < len(content):
        tag, value, at = _read_value(content, at)
        fields.append((tag, value))
    return fields


def _read_value(data: bytes, at: int) -> tuple[int, bytes, int]:
    tag, size = data[at], data[at + 1]
    at += 2
    if size & 128:
        count = size & 127
        size = int.from_bytes(data[at : at + count], "big")
        at += count
    if at + size > len(data):
        raise ValueError("it is cut")
    return tag, data[at : at + size], at + size
