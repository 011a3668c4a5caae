"""Hosts by their names and addresses: one spelling, patterns, and whether one is public.

Looks names up only in `resolve_host`. Used by permission rules, `web_fetch` and the proxy of the
sandbox. local_hosts.py knows the names of this machine.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

# NAT64, and the old compatible form: the last 32 bits are an IPv4 address.
_IPV4_EMBEDDING_NETWORKS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("::/96"))
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".intranet")


class DomainPattern(msgspec.Struct, frozen=True):
    """`x.org`, or `*.x.org` for every host below it. `port`: the one that an allow rule covers
    besides the usual ones."""

    host: str
    port: int = 0

    def forbids(self, host: str) -> bool:
        """Whether a deny or ask rule matches: the host it names, and all below it."""
        return self.matches(host) or host.endswith("." + self.host)

    def matches(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host or self.host == "*"


def parse_domain(text: str) -> DomainPattern:
    """A host, or `host:port`; ValueError if it is none."""
    name, _, port = text.strip().rpartition(":")
    if name and port.isdecimal() and ":" not in name:
        return DomainPattern(normalize_host(name), int(port))
    return DomainPattern(normalize_host(text.strip()))


def parse_domains(texts: Sequence[str]) -> tuple[DomainPattern, ...]:
    """The hosts that commands may reach; ValueError for an address or for all hosts."""
    patterns = tuple(map(parse_domain, texts))
    for text, pattern in zip(texts, patterns, strict=True):
        if not pattern.host or "*" in pattern.host.removeprefix("*.") or _parse_ip(pattern.host):
            raise ValueError(f"{text!r} is no host name such as example.org or *.example.org")
    return patterns


def is_within(texts: Iterable[str], wider: Iterable[str]) -> bool:
    """Whether one list of hosts covers all that another one does."""
    known = parse_domains(tuple(wider))
    return all(
        any(other.matches(one.host) and one.port in (0, other.port) for other in known)
        for one in parse_domains(tuple(texts))
    )


def join_network(
    own: bool | tuple[str, ...], asked: bool | tuple[str, ...] | None
) -> bool | tuple[str, ...]:
    """All hosts, none or a list: what a program has, with what it was allowed in addition."""
    if isinstance(own, tuple) and isinstance(asked, tuple):
        return tuple(dict.fromkeys((*own, *asked)))
    return own if asked is None or (asked and own is True) else asked


def normalize_host(host: str) -> str:
    """The host in lower case and punycode, without a final dot; ValueError if it is not one."""
    host = host.rstrip(".").lower()
    if not host.isascii():
        import unicodedata

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


# Not public, although Python counts them as global or does not know them.
_INTERNAL_NETWORKS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # the host of a virtual machine in Azure
            "192.0.0.0/24",  # assigned to protocols; metadata of a virtual machine at Oracle
            "192.88.99.0/24",  # relays of 6to4
            "3fff::/20",  # documentation
        ),
    )
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address is on the public internet, also if it is embedded in an IPv6 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = _find_embedded(ip)
        if embedded is not None:
            return is_public(str(embedded))
        if ip not in _GLOBAL_UNICAST:
            return False
    is_internal = any(ip in network for network in _INTERNAL_NETWORKS)
    return ip.is_global and not ip.is_multicast and not is_internal


def _find_embedded(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one may end at."""
    known = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
    if known is not None:
        return known
    is_isatap = (int(ip) >> 32) & 0xFDFFFFFF == 0x5EFE
    if is_isatap or ip in _NAT64 or int(ip) >> 32 == 0:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


async def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host; OSError if there is none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
