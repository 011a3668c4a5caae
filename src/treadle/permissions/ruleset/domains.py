"""URLs as rules compare them: one host, in one spelling.

Looks at the text of a URL only. Whether a name resolves to a private address, or redirects, is
checked when it is fetched.
"""

import re
from urllib.parse import unquote, urlsplit

import msgspec

from treadle.lib.http.hosts import is_private_host, normalize_host


class UrlTarget(msgspec.Struct, frozen=True):
    """The host of a URL in ASCII, and what is suspicious about the URL."""

    host: str
    is_private: bool = False
    embedded_hosts: tuple[str, ...] = ()  # hosts in the path or query, as targets of a redirect
    refusal: str = ""  # why it can never be fetched
    port: int = 0  # if it is not the usual one of http or https
    ambiguity: str = ""  # why rules cannot be applied to it


def parse_url_target(url: str) -> UrlTarget:
    """Parse a URL strictly; what programs read differently is ambiguous."""
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in url):
        return UrlTarget("", refusal="control characters in the URL")
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https"):
        return UrlTarget("", refusal=f"only http and https URLs can be fetched, not {scheme!r}")
    if "\\" in url or " " in url.strip():
        return UrlTarget("", ambiguity="programs read this URL in different ways")
    try:
        parts = urlsplit(url.strip())
        host, port = normalize_host(parts.hostname or ""), parts.port or 0
    except ValueError as error:
        return UrlTarget("", ambiguity=f"not a URL: {error}")
    if not host:
        return UrlTarget("", ambiguity="a URL without a host")
    if "@" in parts.netloc:
        return UrlTarget(host, ambiguity="a user name in the URL hides its host")
    embedded = _find_embedded_hosts(unquote(unquote(url[len(parts.scheme) + 3 :])))
    others = tuple(h for h in embedded if h != host)
    is_usual = port in (0, 80 if scheme == "http" else 443)
    return UrlTarget(host, is_private_host(host), others, port=0 if is_usual else port)


def _find_embedded_hosts(text: str) -> list[str]:
    """The hosts of URLs inside a URL; "?" for one that cannot be read."""
    hosts: list[str] = []
    text = text.replace("\\", "/")  # as browsers read it
    for match in re.finditer(r"(?:[a-z][a-z0-9+.-]{0,40}:)?//([^/?#&\s]*)", text, re.IGNORECASE):
        if match.start() == 0:
            continue
        try:
            host = normalize_host((urlsplit("//" + match.group(1)).hostname) or "")
        except ValueError:
            host = "?"
        if "." in host or host in ("localhost", "?") or ":" in match.group(0)[:-2]:
            hosts.append(host or "?")
    return hosts
