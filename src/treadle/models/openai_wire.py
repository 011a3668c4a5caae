"""What both OpenAI dialects share: the address, the key, and the bytes of pictures and tools.

Pure functions, and one object for the account. The dialects themselves are in openai_chat and
openai_responses; which server wants what is in quirks.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.core.contracts.model import ModelOptions
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import AccessDenied
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import Item, ToolResultItem, UserItem
from treadle.models.encoding import json_text
from treadle.models.failures import Provider, checked_key
from treadle.models.quirks import COMPATIBLE, Quirks, chosen, key_from
from treadle.models.wire.limits import Limits


class Account:
    """Where requests go, and what proves that they may.

    The key is read at every call: one that was set or changed meanwhile counts at once.
    """

    def __init__(
        self,
        quirks: Quirks | str | None,
        base_url: str | None,
        api_key: str | None,
        *,
        model: str = "",
        environ: Mapping[str, str] | None = None,
        unknown: Quirks = COMPATIBLE,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._base_url = base_url
        self._given = api_key
        self.quirks, self.url = chosen(quirks, base_url, self._environ, unknown)
        self.who = Provider(self.quirks.name, model, next(iter(self.quirks.keys), ""))

    def key(self) -> str:
        if self._given is not None:
            return checked_key(self.who, self._given)
        return checked_key(self.who, key_from(self.quirks, self._base_url, self._environ))

    def authorization(self) -> dict[str, str]:
        row, key = self.quirks, self.key()
        if self.who.secret != key:
            self.who = msgspec.structs.replace(self.who, secret=key)
        if not self.url:
            raise AccessDenied(
                f"no address is known for {row.name}: set {row.urls[0]}, or give base_url.",
                provider=row.name,
            )
        if not key and row.key_needed:
            raise AccessDenied(
                f"{row.name} needs a key: set {row.keys[0]}, or choose another model; "
                "`treadle models` lists what can be used here.",
                provider=row.name,
            )
        headers: dict[str, str] = {}
        if key:
            bearer = row.key_header == "authorization"
            headers[row.key_header] = f"Bearer {key}" if bearer else key
        if row.name == "openai":
            for variable, header in _MEMBERSHIP:
                if self._environ.get(variable):
                    headers[header] = self._environ[variable].strip()
        return headers


_MEMBERSHIP = (("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project"))


def path_for(url: str, resource: str, environ: Mapping[str, str] | None = None) -> str:
    """The path behind an address. Azure's addresses of single deployments want a version."""
    env = os.environ if environ is None else environ
    if "/openai/deployments/" in url:
        return f"{resource}?api-version={env.get('OPENAI_API_VERSION', '2025-04-01-preview')}"
    return resource


def patience(quirks: Quirks) -> Limits:
    """Reasoning models are silent for minutes, and a small machine reads a long prompt slowly."""
    if quirks.key_needed:
        return Limits(idle=600.0)
    return Limits(first_byte=1800.0, first_content=1800.0, idle=600.0)


# ------------------------------------------------------------------ bytes


def data_url(part: Image | Document) -> bytes:
    """The JSON string of a data URL, or of the part's own address."""
    if not part.data:
        return json_text(part.url)
    kind = part.media_type.encode("ascii", "replace").replace(b'"', b"")
    return b'"data:' + kind + b";base64," + base64.b64encode(part.data) + b'"'


def document_text(part: Document) -> str:
    """A plain text file, as the text that it is."""
    title = f' title="{part.title}"' if part.title else ""
    return f"<document{title}>\n{part.data.decode('utf-8', 'replace')}\n</document>"


def file_name(part: Document) -> bytes:
    return json_text(part.title or ("document.pdf" if "pdf" in part.media_type else "document"))


def arguments_text(call: ToolCall) -> bytes:
    """A call's arguments as a JSON string. Servers parse it: what is not JSON is wrapped."""
    if not call.raw.strip():
        return b'"{}"'
    if call.problem is None:
        return json_text(call.raw)
    return json_text((b'{"unreadable":' + json_text(call.raw) + b"}").decode())


def tool_bytes(spec: ToolSpec, wrapped: bool, with_strict: bool) -> bytes:
    """A tool's declaration, made once and kept with it."""
    key = f"openai tool {wrapped} {with_strict}"
    kept: bytes | None = spec.__dict__.get(key)
    if kept is None:
        body: dict[str, Any] = {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.schema,
        }
        if with_strict:
            body["strict"] = spec.strict and is_strict(spec.schema)
        shape = {"type": "function", "function": body} if wrapped else {"type": "function", **body}
        kept = spec.__dict__[key] = msgspec.json.encode(shape)
    return kept


def is_strict(schema: object) -> bool:
    """Whether a schema keeps to what strict mode demands: closed objects, nothing optional."""
    if isinstance(schema, list):
        return all(is_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    return all(is_strict(part) for part in schema.values())


def effort(options: ModelOptions) -> str | None:
    """How hard to think, as one word; a budget in tokens becomes the nearest one."""
    thinking = options.thinking
    if thinking is None or isinstance(thinking, str):
        return thinking or None
    if thinking <= 0:
        return "minimal"
    return "low" if thinking <= 4_096 else "medium" if thinking <= 16_384 else "high"


def fields(values: Mapping[str, object]) -> bytes:
    """`,"name":value` for each one: what is put between the fixed parts of a body."""
    if not values:
        return b""
    return b"," + msgspec.json.encode(values)[1:-1]


# ------------------------------------------------------------------ places

_PLACE = re.compile(r"(?:messages|input)\.?\[?(\d+)\]?(?:\.(?:content|output)\.?\[?(\d+)\]?)?")


def place_in(message: str) -> tuple[int, int] | None:
    """The message and the part in it that a complaint names."""
    found = _PLACE.search(message)
    return (int(found[1]), int(found[2] or 0)) if found else None


def part_number(item: Item, block: int) -> int:
    """Which part became the block of this number: blank texts are not sent."""
    if not isinstance(item, (UserItem, ToolResultItem)):
        return block
    sent = [
        number
        for number, part in enumerate(item.content)
        if type(part) is not Text or part.text.strip()
    ]
    return sent[block] if block < len(sent) else 0
