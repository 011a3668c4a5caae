"""What a server returns, as content for the model: text, images, documents.

A resource link stays a link. Sound and other data that no model takes is kept as a file and named.
Structured content is always there: in the text for the model, and as data for programs.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types
import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import Document, Image, ResultContent, Text
from treadle.lib.files.media_types import IMAGE_MEDIA_TYPES
from treadle.tools.mcp.client_options import SaveFile


def convert_result(result: types.CallToolResult, save_file: SaveFile | None = None) -> ToolOutput:
    """The output of a call; plain text if it has nothing else."""
    content = [convert_block(block, save_file) for block in result.content]
    structured, data = result.structured_content, None
    if structured is not None:
        data = {"structured_content": structured}
        if not _has_json(content, structured):
            content.append(Text(msgspec.json.encode(structured).decode()))
    if all(isinstance(part, Text) for part in content):
        text = "\n".join(part.text for part in content if isinstance(part, Text))
        return ToolOutput(text or "done", is_error=result.is_error, data=data)
    return ToolOutput(tuple(content), is_error=result.is_error, data=data)


def _has_json(content: Sequence[ResultContent], value: dict[str, Any]) -> bool:
    """Whether the texts of the content say this already, as the protocol advises: as JSON, or as
    the plain values, one after the other. A value that is no object is wrapped by servers:
    `{"result": 5}` or `{"content": "5"}` beside the text `5`."""
    texts = [part.text for part in content if isinstance(part, Text)]
    inner = next(iter(value.values())) if len(value) == 1 else value
    if any(_parse_json(text) in (value, inner) for text in texts):
        return True
    values = inner if isinstance(inner, list) else [inner]
    said = [_get_said(one) for one in values]
    return said == texts or "\n".join(said).strip() == "\n".join(texts).strip()


def _get_said(value: Any) -> str:
    """A value as a text of its own; a block of content is its text."""
    if isinstance(value, dict) and value.get("type") == "text":
        value = value.get("text")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _NOT_JSON


_NOT_JSON = object()


def convert_block(block: types.ContentBlock, save_file: SaveFile | None = None) -> ResultContent:
    """One block of a result, a prompt or a message."""
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return _convert_binary(block.data, block.mime_type, "image", save_file)
        case types.AudioContent():
            return _convert_binary(block.data, block.mime_type, "audio", save_file)
        case types.ResourceLink():
            about = f" ({block.description})" if block.description else ""
            return Text(f"[resource {block.name}: {block.uri}{about}]")
        case types.EmbeddedResource():
            return convert_resource(block.resource, save_file)


def convert_resource(
    resource: types.TextResourceContents | types.BlobResourceContents,
    save_file: SaveFile | None = None,
) -> ResultContent:
    if isinstance(resource, types.TextResourceContents):
        return Text(f"[resource {resource.uri}]\n{resource.text}")
    return _convert_binary(resource.blob, resource.mime_type or "", str(resource.uri), save_file)


def _convert_binary(
    encoded: str, media_type: str, label: str, save_file: SaveFile | None
) -> ResultContent:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{label}: left out, its data is not valid base64]")
    kind = media_type.partition(";")[0].strip().lower()
    if kind in IMAGE_MEDIA_TYPES:
        return Image(kind, data)
    if kind == "application/pdf":
        return Document(kind, data, title=label)
    if kind.startswith("text/"):
        return Text(data.decode("utf-8", errors="replace"))
    what = f"{len(data):,} bytes of {kind or 'an unknown type'}"
    if save_file is None:
        return Text(f"[{label}: {what}, not shown]")
    try:
        path = save_file(_make_file_name(label, kind), data)
    except OSError as error:
        return Text(f"[{label}: {what}, not shown; it could not be saved: {error.strerror}]")
    return Text(f"[{label}: {what}, saved as {path}]")


def _make_file_name(label: str, media_type: str) -> str:
    """A name for the data: the last part of its URI, with a suffix that fits its type."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", urlsplit(label).path.rpartition("/")[2]).strip("._")
    subtype = media_type.rpartition("/")[2]
    suffix = mimetypes.guess_extension(media_type) or f".{subtype if subtype.isalnum() else 'bin'}"
    name = name[-80:] or "data"
    return name if "." in name else f"{name}{suffix}"
