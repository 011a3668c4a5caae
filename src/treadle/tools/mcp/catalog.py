"""What a server offers besides tools: resources and prompts, as values.

connection.py reads them; the hosts show resources as `@server:uri` and prompts as slash commands.
"""

from __future__ import annotations

import msgspec

from treadle.core.transcript.content import UserContent


class McpResource(msgspec.Struct, frozen=True):
    """A resource, or with `is_template` a pattern of URIs such as `file:///{path}`."""

    uri: str
    name: str
    description: str = ""
    media_type: str = ""
    is_template: bool = False


class McpPromptArgument(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    is_required: bool = False


class McpPrompt(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    arguments: tuple[McpPromptArgument, ...] = ()


class McpCatalog(msgspec.Struct, frozen=True):
    """What a server listed last."""

    resources: tuple[McpResource, ...] = ()
    prompts: tuple[McpPrompt, ...] = ()
    has_resources: bool = False  # it may have some that it does not list


class PromptMessage(msgspec.Struct, frozen=True):
    """One message of a prompt of a server."""

    role: str
    content: UserContent


NO_CATALOG = McpCatalog()
