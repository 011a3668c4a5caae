"""Parses a URL into a route: host, port, TLS, and the proxy that the environment sets.

Pure functions of a URL and an environment. It opens nothing: connect.py does.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from .local_hosts import is_loopback
from .transport import ProxyFailed

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy; `authorization` is the header value made from its URL's user and password."""

    host: str
    port: int
    tls: bool
    authorization: str | None = None


class Route(msgspec.Struct, frozen=True):
    """How to reach one URL. Routes with the same `key` can share a connection."""

    scheme: str
    host: str
    port: int
    target: str
    proxy: Proxy | None
    host_header: str
    socket_path: str = ""  # of a unix socket; then host and port are only names

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def key(self) -> tuple[str, str, int, Proxy | None]:
        return (self.scheme, self.host, self.port, self.proxy)

    @property
    def origin(self) -> tuple[str, str, int]:
        return (self.scheme, self.host, self.port)


def parse_route(url: str, environ: Mapping[str, str]) -> Route:
    """Parse a URL; ValueError if it is not an http or https URL."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"not a URL: {redact_url(url)!r} ({error})") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"it does not begin with http:// or https://: {redact_url(url)!r}")
    if not parts.hostname:
        raise ValueError(f"the URL has no host name: {redact_url(url)!r}")
    if "@" in parts.netloc:
        raise ValueError("a URL must not contain a user or password: use headers")
    if " " in url or not url.isprintable():
        raise ValueError(f"the URL contains blanks or control characters: {redact_url(url)!r}")
    host = parts.hostname if parts.hostname.isascii() else encode_idna(parts.hostname)
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    bracketed = f"[{host}]" if ":" in host else host
    host_header = bracketed if parts.port is None else f"{bracketed}:{port}"
    proxy = find_proxy(parts.scheme, host, port, environ)
    target = parts.path or "/"
    if parts.query:
        target += "?" + parts.query
    if proxy is not None and parts.scheme == "http":
        target = f"http://{host_header}{target}"
    return Route(parts.scheme, host, port, target, proxy, host_header)


def find_proxy(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for this host."""
    value = _read_variable(environ, f"{scheme}_proxy") or _read_variable(environ, "all_proxy")
    if not value or is_loopback(host):  # a server on this machine is never behind the proxy
        return None
    if _is_bypassed(host, port, _read_variable(environ, "no_proxy") or ""):
        return None
    return _parse_proxy(value)


def _read_variable(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name)
    if value is None and not (name == "http_proxy" and "REQUEST_METHOD" in environ):
        # Under CGI a client's "Proxy:" header arrives as HTTP_PROXY: not to be trusted.
        value = environ.get(name.upper())
    return value


def _parse_proxy(value: str) -> Proxy:
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        raise _invalid_proxy_error(value) from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ProxyFailed(
            f"the proxy in the environment is of the kind {parts.scheme!r}: only http and https "
            "proxies are supported; unset the variable or add the host to NO_PROXY"
        )
    if not parts.hostname:
        raise _invalid_proxy_error(value)
    authorization = None
    if parts.username is not None:
        import base64

        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(parts.hostname, port, parts.scheme == "https", authorization)


def _invalid_proxy_error(value: str) -> ProxyFailed:
    return ProxyFailed(
        f"the proxy {redact_url(value)!r} in the environment is not a URL such as "
        "http://proxy.example.com:3128: correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, or unset it"
    )


def _is_bypassed(host: str, port: int, no_proxy: str) -> bool:
    for entry in no_proxy.replace(" ", ",").lower().split(","):
        if not entry:
            continue
        if entry == "*":
            return True
        if "/" in entry:
            if _is_in_network(host, entry):
                return True
            continue
        name, colon, entry_port = entry.rpartition(":")
        has_port = colon and entry_port.isdigit() and (":" not in name or name.endswith("]"))
        if has_port:
            if int(entry_port) != port:
                continue
            entry = name
        entry = entry.strip("[]").removeprefix("*").lstrip(".")
        if host == entry or host.endswith("." + entry):
            return True
        if ":" in entry and _is_in_network(host, entry):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def encode_idna(host: str) -> str:
    """A host name in ASCII, as DNS and HTTP have it; ValueError if there is none."""
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(f"not a host name: {host!r}") from error


def redact_url(url: str) -> str:
    """A URL for a message, without user, password and query."""
    return url.split("?", 1)[0].rsplit("@", 1)[-1][:200]
