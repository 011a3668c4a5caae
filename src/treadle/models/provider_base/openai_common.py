"""What openai_chat and openai_responses share: the account, media, tools, usage, part references.

Pure functions, the account, and the half of a codec that depends on it. quirks.py says what each
server needs.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import AccessDenied, BadRequest
from treadle.core.transcript.content import Document, Image, Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage
from treadle.lib.http.timeouts import Timeouts
from treadle.models.output_schema import is_strict_schema
from treadle.models.profiles import (
    DISABLED,
    fit_effort,
    resolve_sampling,
    resolve_thinking,
    to_effort,
)
from treadle.models.provider_base.codec import EncodedRequest, build_usage
from treadle.models.provider_base.encoding import encode_json, encode_json_string
from treadle.models.provider_base.error_map import (
    ProviderInfo,
    make_missing_key_error,
    validate_key,
)
from treadle.models.provider_base.quirks import (
    COMPATIBLE,
    Quirks,
    find_server_key,
    find_set_variable,
    resolve_server,
)
from treadle.models.provider_base.request_limits import (
    OFFICE_TYPES,
    TEXT_TYPES,
    make_provider_tool_name,
)
from treadle.models.provider_base.tool_schema import adapt_tool_schema


class OpenAIAccount:
    """The address of a server and its key.

    The key is read at every request, so that a changed key is used at once.
    """

    def __init__(
        self,
        quirks: Quirks | str | None,
        base_url: str | None,
        api_key: str | None,
        *,
        model: str = "",
        environ: Mapping[str, str] | None = None,
        default_quirks: Quirks = COMPATIBLE,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._base_url = base_url
        self._api_key = api_key
        self.quirks, self.url = resolve_server(quirks, base_url, self._environ, default_quirks)
        key_variable = next(iter(self.quirks.key_variables), "")
        has_own_url = bool(base_url or find_set_variable(self.quirks.url_variables, self._environ))
        self.provider = ProviderInfo(self.quirks.name, model, key_variable, has_own_url=has_own_url)

    def read_key(self) -> str:
        key = self._api_key
        if key is None:
            key = find_server_key(self.quirks, self._base_url, self._environ)
        return validate_key(self.provider, key)

    def auth_headers(self) -> dict[str, str]:
        quirks, key = self.quirks, self.read_key()
        if self.provider.secret != key:
            self.provider = msgspec.structs.replace(self.provider, secret=key)
        if not self.url:
            raise AccessDenied(
                f"the address of {quirks.name} is not set: set {quirks.url_variables[0]}, or pass "
                "base_url.",
                provider=quirks.name,
            )
        if not key and quirks.needs_key:
            raise make_missing_key_error(self.provider, quirks.key_variables[0])
        headers: dict[str, str] = {}
        if key:
            bearer = quirks.key_header == "authorization"
            headers[quirks.key_header] = f"Bearer {key}" if bearer else key
        if quirks.name == "openai":
            for variable, header in _ORGANIZATION_HEADERS:
                if self._environ.get(variable):
                    headers[header] = self._environ[variable].strip()
        return headers


_ORGANIZATION_HEADERS = (
    ("OPENAI_ORG_ID", "openai-organization"),
    ("OPENAI_PROJECT_ID", "openai-project"),
)


class OpenAICodec:
    """The half of a codec that depends on the account: provider, address and key."""

    resource: str

    def __init__(self, model: str, card: ModelCard, account: OpenAIAccount) -> None:
        self._model = model
        self.card = card
        self._account = account

    @property
    def quirks(self) -> Quirks:
        return self._account.quirks

    @property
    def provider(self) -> ProviderInfo:
        return self._account.provider

    @property
    def origin(self) -> str:
        return self._account.quirks.name

    def endpoint(self) -> str:
        return self._account.url

    def auth_headers(self) -> dict[str, str]:
        return self._account.auth_headers()

    def adapt(self, refusal: BadRequest) -> str:
        return ""

    def _build_request(self, body: Sequence[bytes]) -> EncodedRequest:
        return EncodedRequest(self._path, {"content-type": "application/json"}, body)

    @cached_property
    def _path(self) -> str:
        return build_path(self._account.url, self.resource)


def build_path(url: str, resource: str, environ: Mapping[str, str] | None = None) -> str:
    """The path for an address. Azure's addresses of single deployments need a version."""
    env = os.environ if environ is None else environ
    if "/openai/deployments/" in url:
        return f"{resource}?api-version={env.get('OPENAI_API_VERSION', '2025-04-01-preview')}"
    return resource


def default_timeouts(quirks: Quirks) -> Timeouts:
    """Reasoning models are silent for minutes; a local server reads a long prompt slowly."""
    if quirks.needs_key:
        return Timeouts(idle=600.0)
    return Timeouts(first_byte=1800.0, first_content=1800.0, idle=600.0)


# ------------------------------------------------------------------ encoding


def encode_data_url(part: Image | Document) -> bytes:
    """The JSON string of a data URL, or of the part's own URL."""
    if not part.data:
        return encode_json_string(part.url)
    kind = part.media_type.encode("ascii", "replace").replace(b'"', b"")
    return b'"data:' + kind + b";base64," + base64.b64encode(part.data) + b'"'


def format_document(part: Document) -> str:
    """A text file or a table, as text."""
    title = f' title="{part.title}"' if part.title else ""
    return f"<document{title}>\n{part.data.decode('utf-8', 'replace')}\n</document>"


def list_document_types(quirks: Quirks) -> frozenset[str]:
    """The types of documents that a server accepts."""
    pdf = ("application/pdf",) if quirks.supports_documents else ()
    office = OFFICE_TYPES if quirks.supports_office_files else ()
    return TEXT_TYPES.union(pdf, office)


def encode_file(part: Document) -> bytes:
    """The fields with a file's name and data."""
    ending = OFFICE_TYPES.get(part.media_type) or ("pdf" if "pdf" in part.media_type else "")
    name = part.title or (f"document.{ending}" if ending else "document")
    return b'"filename":%b,"file_data":%b' % (encode_json_string(name), encode_data_url(part))


def encode_arguments(call: ToolCall) -> bytes:
    """A call's arguments as a JSON string. Servers parse it, so invalid JSON is wrapped."""
    if not call.raw.strip():
        return b'"{}"'
    if call.problem is None:
        return encode_json_string(call.raw)
    return encode_json_string((b'{"unreadable":' + encode_json_string(call.raw) + b"}").decode())


def encode_tool(spec: ToolSpec, nested: bool, with_strict: bool) -> bytes:
    """A tool's declaration, encoded once and cached in the spec."""
    key = f"openai tool {nested} {with_strict}"
    encoded: bytes | None = spec.__dict__.get(key)
    if encoded is None:
        name = make_provider_tool_name(spec.name)
        body: dict[str, Any] = {"name": name, "description": spec.description}
        schema = adapt_tool_schema(spec.schema)
        # OpenAI refuses an object without the field.
        body["parameters"] = schema if "properties" in schema else {**schema, "properties": {}}
        if spec.deferred:
            body["defer_loading"] = True
        if with_strict:
            body["strict"] = spec.strict and is_strict_schema(schema)
        shape = {"type": "function", "function": body} if nested else {"type": "function", **body}
        encoded = spec.__dict__[key] = encode_json(shape)
    return encoded


def build_common_options(
    options: ModelOptions, card: ModelCard, has_tools: bool
) -> dict[str, object]:
    """The options that have the same name in both APIs."""
    given = zip(("temperature", "top_p"), resolve_sampling(options, card), strict=True)
    values: dict[str, object] = {name: value for name, value in given if value is not None}
    if has_tools and options.parallel_calls is not None:
        values["parallel_tool_calls"] = options.parallel_calls
    if options.service_tier:
        values["service_tier"] = options.service_tier
    return values


def resolve_effort(options: ModelOptions, card: ModelCard) -> str | None:
    """The thinking effort as one word; a budget in tokens becomes the nearest effort."""
    thinking = resolve_thinking(options, card)
    if thinking is None or isinstance(thinking, str):
        return "none" if thinking == DISABLED else thinking
    return fit_effort(to_effort(thinking), card)


def encode_tool_choice(choice: str, nested: bool) -> object:
    """The value of `tool_choice` for none, any, or a tool's name."""
    if choice in ("none", "any"):
        return "none" if choice == "none" else "required"
    named = {"name": make_provider_tool_name(choice)}
    return {"type": "function", "function": named} if nested else {"type": "function", **named}


def get_engine_role(quirks: Quirks, system_role: str = "developer") -> bytes:
    """The role of the engine's own notices: that of the system prompt. Not every server accepts
    another one than user."""
    return system_role.encode() if quirks.system_role == "developer" else b"user"


def build_cache_fields(quirks: Quirks, request: ModelRequest) -> dict[str, object]:
    """The field that sends the requests of one session to the same cache."""
    key = request.cache.key or request.session_id
    if not key or not quirks.supports_cache_key or not request.cache.enabled:
        return {}
    return {"prompt_cache_key": key[:64]}


def encode_fields(values: Mapping[str, object]) -> bytes:
    """`,"name":value` for each field."""
    return b"," + encode_json(values)[1:-1] if values else b""


# ------------------------------------------------------------------ usage


class InputTokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    audio_tokens: int | None = None


class OutputTokenDetails(msgspec.Struct):
    reasoning_tokens: int | None = None
    audio_tokens: int | None = None


class OpenAIUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputTokenDetails | None = None
    output_tokens_details: OutputTokenDetails | None = None


def convert_usage(
    card: ModelCard, usage: OpenAIUsage, cache_hits: int | None = None, searches: int = 0
) -> Usage:
    """Usage of one request. Their prompt tokens include cache reads and writes; ours do not. Audio
    has prices of its own, which are not known: then the cost is unknown, too."""
    details = usage.input_tokens_details or InputTokenDetails()
    made = usage.output_tokens_details or OutputTokenDetails()
    read = details.cached_tokens or cache_hits or 0
    write = details.cache_write_tokens or 0
    total = usage.input_tokens
    converted = build_usage(
        card,
        input=None if total is None else total - read - write,
        output=usage.output_tokens,
        cache_read=read,
        cache_write=write,
        reasoning=made.reasoning_tokens,
        searches=searches,
    )
    has_audio = bool(details.audio_tokens or made.audio_tokens)
    return msgspec.structs.replace(converted, cost=None) if has_audio else converted


# ------------------------------------------------------------------ part references

_PART_REFERENCE = re.compile(
    r"(?:messages|input)\.?\[?(\d+)\]?(?:\.(content|output|tool_calls)\.?(?:\[?(\d+)\]?)?)?"
)


class PartReference(NamedTuple):
    """The message that an error names, and the part in it."""

    message: int
    field: str
    number: int


def find_part_reference(error: BadRequest) -> PartReference | None:
    match = _PART_REFERENCE.search(f"{error.param} {error.provider_message}")
    return PartReference(int(match[1]), match[2] or "", int(match[3] or 0)) if match else None


def find_part_number(item: Item, reference: PartReference) -> int:
    """The part of the item that an error names: blank texts are not sent."""
    if isinstance(item, AssistantItem):
        kind = ToolCall if reference.field == "tool_calls" else Text
        numbers = [number for number, part in enumerate(item.content) if type(part) is kind]
    elif isinstance(item, (UserItem, ToolResultItem)):
        parts = enumerate(item.content) if isinstance(item, UserItem) else item.model_parts
        numbers = [number for number, part in parts if type(part) is not Text or part.text.strip()]
    else:
        numbers = []
    return numbers[reference.number] if reference.number < len(numbers) else 0
