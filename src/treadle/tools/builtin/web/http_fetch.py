"""One page over HTTP, from a public address only: cancellable, with limits on time and size.

The name is resolved and every address checked here, and the client connects to a checked address,
so that a name which resolves differently later is no way in. No cookies, no proxies, no
redirects: `web_fetch` decides about those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import msgspec

from treadle._version import __version__
from treadle.core.errors import ToolError

if TYPE_CHECKING:
    from treadle.lib.http.client import Client
    from treadle.lib.http.connect import ResolveHost

MAX_BODY_BYTES = 5 << 20
TOTAL_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0  # of each address
MAX_ADDRESSES = 4
_URL_CHARACTERS = "/%:@!$&'()*+,;=~-._?[]"  # of a path and a query, beside letters and digits
HEADERS: Final = {
    "user-agent": f"treadle/{__version__}",
    "accept": "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "accept-encoding": "gzip, deflate",
    "connection": "close",
}


class FetchedPage(msgspec.Struct, frozen=True):
    """The response of a server. Header names are in lower case."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    is_truncated: bool = False


FetchPage = Callable[[str], Awaitable[FetchedPage]]


class HttpFetcher:
    """Fetches public pages. `private_hosts` are hosts of this machine or network that the user
    allowed; no other private address is connected to."""

    def __init__(
        self,
        *,
        private_hosts: frozenset[str] = frozenset(),
        resolve: ResolveHost | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._private_hosts = private_hosts
        self._resolve = resolve
        self._environ = environ
        self._client: Client | None = None  # made at first use, as its modules are loaded then

    async def __call__(self, url: str) -> FetchedPage:
        from treadle.lib.http.client import Client
        from treadle.lib.http.timeouts import Timeouts
        from treadle.lib.http.transport import TransportError

        if self._client is None:
            self._client = Client(
                max_idle=0, environ=self._environ, resolve=self._resolve_public, redirects="none"
            )
        timeouts = Timeouts(connect=CONNECT_TIMEOUT, max_bytes=None)
        parts = urlsplit(url)
        path, query = (quote(part, safe=_URL_CHARACTERS) for part in (parts.path, parts.query))
        target = parts._replace(path=path, query=query, fragment="").geturl()
        try:
            async with (
                asyncio.timeout(TOTAL_TIMEOUT),
                self._client.get(target, HEADERS, timeouts) as response,
            ):
                body = await response.read(MAX_BODY_BYTES + 1)
                headers = dict(response.headers)
        except TimeoutError:
            limit = f"{TOTAL_TIMEOUT:g} s"
            raise ToolError(f"{url} did not send a complete response within {limit}") from None
        except (TransportError, ValueError) as error:
            raise ToolError(f"{url} could not be read: {error}") from error
        is_truncated = len(body) > MAX_BODY_BYTES
        return FetchedPage(url, response.status, headers, body[:MAX_BODY_BYTES], is_truncated)

    async def _resolve_public(self, host: str, port: int) -> list[str]:
        from treadle.lib.http.hosts import is_public, resolve_host

        try:
            addresses = await (self._resolve or resolve_host)(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the host name {host} cannot be resolved: {error}") from error
        if not self._is_allowed(host):
            for address in addresses:
                if not is_public(address):
                    raise ToolError(
                        f"{host} resolves to {address}, which is this machine or a private "
                        "network; such addresses are not fetched"
                    )
        return addresses[:MAX_ADDRESSES]

    def _is_allowed(self, host: str) -> bool:
        from treadle.lib.http.urls import encode_idna

        return host in map(encode_idna, self._private_hosts)
