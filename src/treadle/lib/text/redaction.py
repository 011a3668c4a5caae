"""Finds secrets in environment variables and redacts them in texts.

    is_secret(name, value)   whether a variable has a secret name, or a URL with a password in it
    find_secrets(environ)    the secret values, longest first
    redact(secrets, text)    the text with [redacted] instead of these values

Commands must not see such variables (workspace), cassettes must not contain
them (models), and hosts must not show them (apps). Tokens of known formats that are not in the
environment are redacted by models/secret_redactor.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from treadle.lib.text.lazy_regex import compile_lazily

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8  # a shorter value also occurs in ordinary text

# Long words may be the end of another word (PGPASSWORD), short ones not (MONKEY).
_SECRET_NAME = compile_lazily(
    r"((API|ACCESS|SECRET|PRIVATE)_?KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?=\d|_|$)"
    r"|(^|_)(KEY|PASS|PAT|AUTH|COOKIE)(?=\d|_|$)"
    r"|_PWD(?=\d|_|$)",
    re.IGNORECASE,
)
# Such a name describes a secret (its path, owner or use) and does not hold it.
_METADATA_SUFFIX = compile_lazily(
    r"_(FILE|PATH|DIR|FOLDER|URL|URI|ENDPOINT|HOST|PORT|SOCK|NAME|USER|USERNAME|TYPE|KIND|METHOD"
    r"|MODE|SCHEME|PROVIDER|DOMAIN|REALM|SCOPES?|REGION|ALG|ALGORITHM|HEADER|PREFIX|LENGTH|SIZE"
    r"|COUNT|LIMIT|TTL|EXPIRY|EXPIRES|TIMEOUT|VERSION|STORE|BACKEND|HELPER|ENABLED|DISABLED)$",
    re.IGNORECASE,
)
# The scheme is bounded: in a value of many letters each of them could begin one.
_URL_WITH_USERINFO = compile_lazily(
    r"([a-z][a-z0-9+.-]{0,40})://([^/\s]+)@([^/\s?#,;@]+)", re.IGNORECASE
)
_MIN_URL_TOKEN_CHARS = 12  # a longer part before the @ of a URL is not a user name

# Common default values: to redact them would damage ordinary texts.
_COMMON_VALUE_WORDS = """
password passw0rd postgres postgresql changeme changeit username disabled required optional
undefined localhost development production kubernetes
"""
_COMMON_VALUES = frozenset(_COMMON_VALUE_WORDS.split())


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable has a secret name, or a URL with a password or token in it."""
    if _has_secret_name(name):
        return True
    urls = _URL_WITH_USERINFO.findall(value)
    return any(":" in who or _is_http(scheme) for scheme, who, _ in urls)


def find_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values, longest first, also in their JSON form."""
    found = {one for name, value in environ.items() for one in _secret_values(name, value.strip())}
    found |= {_escape_for_json(one) for one in found}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def redact(secrets: Sequence[str], text: str) -> str:
    """The text with these values replaced by [redacted]."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


def _secret_values(name: str, value: str) -> Iterator[str]:
    # A path to a secret is not itself secret.
    if _has_secret_name(name) and _is_redactable(value) and not value.startswith("/"):
        yield value
    for scheme, who, host in _URL_WITH_USERINFO.findall(value):
        user, colon, password = who.partition(":")
        if colon and password != user and password.lower() not in _COMMON_VALUES:
            yield f"{who}@{host}"
            yield from filter(_is_redactable, _password_spellings(password))
        elif not colon and _is_http(scheme) and len(user) >= _MIN_URL_TOKEN_CHARS:
            yield user


def _is_http(scheme: str) -> bool:
    return scheme.lower() in ("http", "https")


def _has_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _METADATA_SUFFIX.search(name) is None


def _is_redactable(value: str) -> bool:
    return len(value) >= MIN_SECRET_CHARS and value.lower() not in _COMMON_VALUES


def _password_spellings(password: str) -> tuple[str, ...]:
    if "%" not in password:
        return (password,)
    from urllib.parse import unquote

    return password, unquote(password)


def _escape_for_json(value: str) -> str:
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return value
    from json import dumps

    return dumps(value, ensure_ascii=False)[1:-1]
