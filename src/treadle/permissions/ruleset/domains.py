"""URLs as rules compare them: one host, in one spelling.

Looks at the text of a URL only. Whether a name resolves to a private address, or redirects, is
checked when it is fetched.
"""

import ipaddress
import re
import unicodedata
from urllib.parse import unquote, urlsplit

import msgspec

# NAT64, and the old compatible form: the last 32 bits are an IPv4 address.
_IPV4_EMBEDDING_NETWORKS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".intranet")


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


def normalize_host(host: str) -> str:
    """The host in lower case and punycode, without a final dot; ValueError if it is not one."""
    host = host.rstrip(".").lower()
    if not host.isascii():
        if any(unicodedata.category(c) == "Cf" for c in host):
            raise ValueError(f"{host!a} contains an invisible character")
        host = host.encode("idna").decode("ascii")
    if not re.fullmatch(r"[a-z0-9_.*-]*|[0-9a-f:.]+(?:%\w+)?", host):
        raise ValueError(f"{host!r} is not a host name")
    return host


def is_private_host(host: str) -> bool:
    """Whether the text of a host names this machine or a private network."""
    if host.endswith(_PRIVATE_SUFFIXES) or ("." not in host and ":" not in host):
        return True  # a single label is a local name, or an address as one number
    address = _parse_ip(host)
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        has_private = any(not ipv4.is_global for ipv4 in _list_embedded_ipv4(address))
        return has_private or address.is_site_local or not address.is_global
    return not address.is_global


def _parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    pieces = host.split(".")
    if len(pieces) > 4 or not all(_is_number(p) for p in pieces):
        return None
    numbers = [_parse_number(p) for p in pieces]
    total = numbers[-1]
    for at, number in enumerate(numbers[:-1]):
        total += number << (24 - 8 * at)
    try:
        return ipaddress.IPv4Address(total)
    except ValueError:
        return ipaddress.IPv4Address(0)


def _list_embedded_ipv4(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address may be translated to."""
    candidates = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _IPV4_EMBEDDING_NETWORKS):
        candidates.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [ipv4 for ipv4 in candidates if ipv4 is not None]


def _is_number(piece: str) -> bool:
    return bool(re.fullmatch(r"0x[0-9a-f]*|[0-9]+", piece))


def _parse_number(piece: str) -> int:
    if piece.startswith("0x"):
        return int(piece[2:] or "0", 16)
    if piece.startswith("0") and piece.isdigit() and all(c in "01234567" for c in piece):
        return int(piece, 8)
    return int(piece)


def _find_embedded_hosts(text: str) -> list[str]:
    """The hosts of URLs inside a URL; "?" for one that cannot be read."""
    hosts: list[str] = []
    text = text.replace("\\", "/")  # as browsers read it
    for match in re.finditer(r"(?:[a-z][a-z0-9+.-]*:)?//([^/?#&\s]*)", text, re.IGNORECASE):
        if match.start() == 0:
            continue
        try:
            host = normalize_host((urlsplit("//" + match.group(1)).hostname) or "")
        except ValueError:
            host = "?"
        if "." in host or host in ("localhost", "?") or ":" in match.group(0)[:-2]:
            hosts.append(host or "?")
    return hosts
