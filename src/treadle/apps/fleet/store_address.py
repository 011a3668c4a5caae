"""Addresses of databases: the default one, and their passwords, which are not to be seen."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit, urlunsplit

DEFAULT_STORE = "sqlite:~/.treadle/fleet.db"
FILE_SCHEME, SERVER_SCHEMES = "sqlite", ("postgresql", "postgres")
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


def is_store_address(text: str) -> bool:
    """Whether it is the address of a database, and not the name of a machine, say."""
    scheme, separator, _ = text.partition(":")
    return bool(separator) and scheme in (FILE_SCHEME, *SERVER_SCHEMES)


def hide_password(store: str) -> str:
    """For messages."""
    return _PASSWORD.sub(r"\1:***@", store)


def split_password(store: str) -> tuple[str, str]:
    """The address without its password, and the password. Other users see the arguments of a
    process: the password reaches a worker as PGPASSWORD."""
    parts = urlsplit(store)
    if not parts.password:
        return store, ""
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}"
    return urlunsplit(parts._replace(netloc=netloc)), unquote(parts.password)
