"""Signatures of AWS, version 4: the headers that authorize a request.

Pure: the time is an argument. The steps are those of AWS's documentation: a canonical request, a
text to sign, a key derived from the secret, and the signature.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import msgspec

ALGORITHM = "AWS4-HMAC-SHA256"
# Proxies change these on the way.
_UNSIGNED_HEADERS = frozenset(("expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"))


class AWSKeys(msgspec.Struct, frozen=True):
    """The keys of an account; temporary ones have a session token and an end."""

    access_key: str
    secret_key: str
    session_token: str = ""
    expires_at: float = float("inf")


def sign_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    keys: AWSKeys,
    *,
    region: str,
    service: str,
    timestamp: str,
) -> dict[str, str]:
    """The headers to add; `timestamp` is in the form 20261118T130000Z."""
    added = {"x-amz-date": timestamp}
    if keys.session_token:
        added["x-amz-security-token"] = keys.session_token
    parts = urlsplit(url)
    signed = {"host": _get_host(url)} | {
        name.lower(): " ".join(value.split()) for name, value in {**headers, **added}.items()
    }
    signed = {name: signed[name] for name in sorted(signed.keys() - _UNSIGNED_HEADERS)}
    names = ";".join(signed)
    canonical = "\n".join(
        (
            method,
            quote(_normalize_path(parts.path), safe="/~"),
            _canonical_query(parts.query),
            *[f"{name}:{value}" for name, value in signed.items()],
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{timestamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"{ALGORITHM}\n{timestamp}\n{scope}\n{digest}"
    key = f"AWS4{keys.secret_key}".encode()
    for part in (timestamp[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"Credential={keys.access_key}/{scope}"
    value = f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
    return {**added, "authorization": value}


def _get_host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in (None, default) else f"{host}:{parts.port}"


def _normalize_path(path: str) -> str:
    """Without empty and dot segments; a slash at the end stays."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            kept = kept[:-1]
        elif segment and segment != ".":
            kept.append(segment)
    end = "/" if kept and path.endswith("/") else ""
    return f"/{'/'.join(kept)}{end}"


def _canonical_query(query: str) -> str:
    pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
    return "&".join([f"{name}={value}" for name, value in sorted(pairs)])
