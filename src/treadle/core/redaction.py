"""What is secret in an environment: which variables, which values, and texts without them.

    is_secret(name, value)   a variable that is a key by its name, or holds one in an address
    secrets_of(environ)      the values to be taken out of texts, longest first
    without(secrets, text)   a text with [redacted] in their places

It is in the core because commands must not see such variables (workspace), tapes must not keep
them (models), and hosts must not show them (apps). What a stranger's token looks like is not known
here: models/secret_redactor.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 8  # a shorter value would also be found where it is none

# Long words may end another one (PGPASSWORD), short ones stand for themselves (not MONKEY).
_SECRET_NAME = re.compile(
    r"((API|ACCESS|SECRET|PRIVATE)_?KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(?=\d|_|$)"
    r"|(^|_)(KEY|PASS|PAT|AUTH|COOKIE)(?=\d|_|$)"
    r"|_PWD(?=\d|_|$)",
    re.IGNORECASE,
)
# Such a name speaks about a secret: where it is, who has it, how it is used.
_METADATA_SUFFIX = re.compile(
    r"_(FILE|PATH|DIR|FOLDER|URL|URI|ENDPOINT|HOST|PORT|SOCK|NAME|USER|USERNAME|TYPE|KIND|METHOD"
    r"|MODE|SCHEME|PROVIDER|DOMAIN|REALM|SCOPES?|REGION|ALG|ALGORITHM|HEADER|PREFIX|LENGTH|SIZE"
    r"|COUNT|LIMIT|TTL|EXPIRY|EXPIRES|TIMEOUT|VERSION|STORE|BACKEND|HELPER|ENABLED|DISABLED)$",
    re.IGNORECASE,
)
_URL_WITH_USERINFO = re.compile(r"([a-z][a-z0-9+.-]*)://([^/\s]+)@([^/\s?#,;@]+)", re.IGNORECASE)
_MIN_URL_TOKEN_CHARS = 12  # so many characters before the @ of a web address are no person's name

# Values that everybody uses where no secret is needed: to hide them would only garble texts.
_COMMON_VALUE_WORDS = """
password passw0rd postgres postgresql changeme changeit username disabled required optional
undefined localhost development production kubernetes
"""
_COMMON_VALUES = frozenset(_COMMON_VALUE_WORDS.split())


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is a key by its name, or has a password or a token in an address."""
    if _has_secret_name(name):
        return True
    return any(
        ":" in who or scheme.lower() in ("http", "https")
        for scheme, who, _ in _URL_WITH_USERINFO.findall(value)
    )


def find_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values, longest first, also as they stand in JSON."""
    found = {one for name, value in environ.items() for one in _secret_values(name, value.strip())}
    found |= {_escape_for_json(one) for one in found}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def redact(secrets: Sequence[str], text: str) -> str:
    """The text without these values."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, REDACTED)
    return text


def _secret_values(name: str, value: str) -> Iterator[str]:
    # The place of a secret is none.
    if _has_secret_name(name) and _is_redactable(value) and not value.startswith("/"):
        yield value
    for scheme, who, host in _URL_WITH_USERINFO.findall(value):
        user, colon, password = who.partition(":")
        if colon and password != user and password.lower() not in _COMMON_VALUES:
            yield f"{who}@{host}"
            yield from filter(_is_redactable, _password_spellings(password))
        elif (
            not colon and scheme.lower() in ("http", "https") and len(user) >= _MIN_URL_TOKEN_CHARS
        ):
            yield user


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
