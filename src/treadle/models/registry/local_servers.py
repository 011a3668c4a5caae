"""Model servers on this machine: Ollama, LM Studio, llama.cpp, vLLM.

It asks each server for the names of its models, all at once. Used by default_model.py and the
command line.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec

from treadle.core.errors import ConfigError
from treadle.models.provider_base.quirks import SERVERS, resolve_server

PROBE_SECONDS = 2.0  # where nothing listens, the connection is refused at once
LOCAL_SERVERS = ("ollama", "lmstudio", "llamacpp")


class LocalServer(msgspec.Struct, frozen=True):
    """A server that answered, and the models that it offers."""

    provider: str
    url: str
    models: tuple[str, ...]


async def find_local_servers(
    environ: Mapping[str, str] | None = None,
    seconds: float = PROBE_SECONDS,
    names: tuple[str, ...] = LOCAL_SERVERS,
) -> list[LocalServer]:
    """The local servers that answer within `seconds`, in the order of `names`."""
    env = os.environ if environ is None else environ
    addresses = _find_addresses(names, env)
    answers = await asyncio.gather(*[_list_server_models(url, seconds) for _, url in addresses])
    return [
        LocalServer(name, url.removesuffix("/v1"), models)
        for (name, url), models in zip(addresses, answers, strict=True)
        if models is not None
    ]


def _find_addresses(names: tuple[str, ...], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    addresses = []
    for name in names:
        try:
            addresses.append((name, resolve_server(SERVERS[name], None, environ)[1]))
        except ConfigError:
            pass  # its variable has no valid address; a user who names this server is told
    return addresses


class _ListedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ListedModel] | None


async def _list_server_models(base_url: str, seconds: float) -> tuple[str, ...] | None:
    """The names that a server lists; None if no model server answers there."""
    from treadle.lib.http.client import Client
    from treadle.lib.http.timeouts import Timeouts
    from treadle.lib.http.transport import TransportError

    client = Client(environ={})  # no proxy: it would answer for servers that are not running
    timeouts = Timeouts(connect=seconds, first_byte=seconds, total=seconds, max_bytes=1 << 20)
    try:
        async with client.get(f"{base_url}/models", {}, timeouts) as response:
            body = await response.read()
            if response.status != 200:
                return None
        listed = msgspec.json.decode(body, type=_ModelList).data or []
        return tuple([entry.id for entry in listed])
    except (TransportError, ValueError):  # no server, or another program listens on that port
        return None
    finally:
        await client.aclose()
