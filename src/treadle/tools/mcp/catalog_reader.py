"""Reads the lists of a server: tools, resources and prompts, page by page, up to a limit.

A server that declares a list and fails at it has none; its tools are what has to work. Imports the
SDK. Used by connection.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from treadle.tools.mcp.catalog import McpCatalog, McpPrompt, McpPromptArgument, McpResource

MAX_PAGES = 100
MAX_ENTRIES = 1_000

T = TypeVar("T")


async def read_tools(client: Client) -> list[types.Tool]:
    return await _read_pages(client.list_tools, lambda page: page.tools)


async def read_catalog(client: Client) -> McpCatalog:
    offers = client.server_capabilities
    resources: list[McpResource] = []
    if offers.resources is not None:
        listed = await _read_or_none(client.list_resources, lambda page: page.resources)
        templates = await _read_or_none(
            client.list_resource_templates, lambda page: page.resource_templates
        )
        resources += [_convert_resource(str(one.uri), one) for one in listed]
        resources += [_convert_resource(one.uri_template, one, True) for one in templates]
    prompts: list[types.Prompt] = []
    if offers.prompts is not None:
        prompts = await _read_or_none(client.list_prompts, lambda page: page.prompts)
    return McpCatalog(
        tuple(resources),
        tuple(map(_convert_prompt, prompts)),
        has_resources=offers.resources is not None,
    )


async def _read_pages(
    read_page: Callable[..., Awaitable[Any]], get_entries: Callable[[Any], list[T]]
) -> list[T]:
    found: list[T] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await read_page(cursor=cursor, cache_mode="refresh")
        found += get_entries(page)
        cursor = page.next_cursor
        if not cursor or len(found) >= MAX_ENTRIES:
            break
    return found[:MAX_ENTRIES]


async def _read_or_none(
    read_page: Callable[..., Awaitable[Any]], get_entries: Callable[[Any], list[T]]
) -> list[T]:
    try:
        return await _read_pages(read_page, get_entries)
    except (MCPError, ValueError):
        return []


def _convert_resource(
    uri: str, found: types.Resource | types.ResourceTemplate, is_template: bool = False
) -> McpResource:
    name, about = found.title or found.name, found.description or ""
    return McpResource(uri, name, about, found.mime_type or "", is_template)


def _convert_prompt(prompt: types.Prompt) -> McpPrompt:
    arguments = tuple(
        McpPromptArgument(one.name, one.description or "", bool(one.required))
        for one in prompt.arguments or ()
    )
    return McpPrompt(prompt.name, prompt.description or prompt.title or "", arguments)
