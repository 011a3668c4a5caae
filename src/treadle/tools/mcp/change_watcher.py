"""What a server reports by itself: its lists changed, a resource that was read changed.

The older protocol sends notifications; the newer one has a stream for those who subscribe. Imports
the SDK. Used by connection.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from treadle.tools.mcp.client_callbacks import LOG_LEVEL

REQUEST_TIMEOUT = 5.0
LISTEN_PAUSE = 1.0


def is_modern(client: Client) -> bool:
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


async def send_plain(client: Client, request: Any) -> None:
    """A request of the older protocol; the SDK warns of its own functions for these."""
    async with asyncio.timeout(REQUEST_TIMEOUT):
        await client.session.send_request(request, types.EmptyResult)


class ChangeWatcher:
    """`has_new_lists` and `updated_resources` are reset by who has seen them."""

    def __init__(self, on_new_lists: Callable[[], None]) -> None:
        self._on_new_lists = on_new_lists
        self._client: Client | None = None
        self.has_new_lists = False
        self.updated_resources: set[str] = set()
        self._subscribed: set[str] = set()
        self._subscriptions_changed = asyncio.Event()

    async def on_message(self, message: object) -> None:
        """A notification of the older protocol; exceptions of the transport are ignored."""
        match message:
            case (
                types.ToolListChangedNotification()
                | types.ResourceListChangedNotification()
                | types.PromptListChangedNotification()
            ):
                self._mark_lists_changed()
            case types.ResourceUpdatedNotification():
                self.updated_resources.add(str(message.params.uri))

    def _mark_lists_changed(self) -> None:
        self.has_new_lists = True
        self._on_new_lists()

    async def subscribe(self, uri: str) -> None:
        """Get reports about a resource, where the server offers them."""
        assert self._client is not None, "attached after the handshake"
        resources = self._client.server_capabilities.resources
        if uri in self._subscribed or not resources or not resources.subscribe:
            return
        self._subscribed.add(uri)
        if is_modern(self._client):
            self._subscriptions_changed.set()
        else:
            params = types.SubscribeRequestParams(uri=uri)
            await send_plain(self._client, types.SubscribeRequest(params=params))

    def attach(self, client: Client) -> None:
        """The handshake is over."""
        self._client = client

    async def watch(self, client: Client) -> None:
        """Until it is cancelled. Runs beside the connection."""
        if not is_modern(client):
            await self._set_log_level(client)
            return
        offers = client.server_capabilities
        wanted = {
            "tools_list_changed": bool(offers.tools and offers.tools.list_changed),
            "prompts_list_changed": bool(offers.prompts and offers.prompts.list_changed),
            "resources_list_changed": bool(offers.resources and offers.resources.list_changed),
        }
        while True:
            self._subscriptions_changed.clear()
            if not any(wanted.values()) and not self._subscribed:
                await self._subscriptions_changed.wait()
                continue
            started = time.monotonic()
            with contextlib.suppress(SubscriptionLost, MCPError, TimeoutError):
                await self._listen(client, wanted)
            is_short = time.monotonic() - started < LISTEN_PAUSE
            if is_short and not self._subscriptions_changed.is_set():
                await asyncio.sleep(LISTEN_PAUSE)  # changes meanwhile are seen at the next event

    async def _listen(self, client: Client, wanted: dict[str, bool]) -> None:
        uris = sorted(self._subscribed)
        async with client.listen(**wanted, resource_subscriptions=uris) as changes:
            stop = asyncio.create_task(self._subscriptions_changed.wait())
            try:
                while True:
                    event = asyncio.ensure_future(anext(changes, None))
                    try:
                        await asyncio.wait([event, stop], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not event.done():
                            event.cancel()
                            await asyncio.gather(event, return_exceptions=True)
                    if event.cancelled() or (change := event.result()) is None:
                        return
                    if uri := getattr(change, "uri", None):
                        self.updated_resources.add(str(uri))
                    else:
                        self._mark_lists_changed()
            finally:
                stop.cancel()

    async def _set_log_level(self, client: Client) -> None:
        if client.server_capabilities.logging is not None:
            params = types.SetLevelRequestParams(level=LOG_LEVEL)
            with contextlib.suppress(MCPError, TimeoutError):
                await send_plain(client, types.SetLevelRequest(params=params))
