"""The result of a server's tool as content for the model: text, images, documents.

A resource link stays a link; content that no model can take is named, with its size.
"""

from __future__ import annotations

import base64
import binascii

import mcp_types as types
import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.media_types import IMAGE_MEDIA_TYPES
from treadle.core.transcript.content import Document, Image, ResultContent, Text


def convert_result(result: types.CallToolResult) -> ToolOutput:
    """The output of a call; plain text if it has nothing else."""
    content = [_convert_block(block) for block in result.content]
    if not content and result.structured_content is not None:
        content = [Text(msgspec.json.encode(result.structured_content).decode())]
    if all(isinstance(part, Text) for part in content):
        text = "\n".join(part.text for part in content if isinstance(part, Text))
        return ToolOutput(text or "done", is_error=result.is_error)
    return ToolOutput(tuple(content), is_error=result.is_error)


def _convert_block(block: types.ContentBlock) -> ResultContent:
    match block:
        case types.TextContent():
            return Text(block.text)
        case types.ImageContent():
            return _convert_binary(block.data, block.mime_type, "image")
        case types.AudioContent():
            return _convert_binary(block.data, block.mime_type, "audio")
        case types.ResourceLink():
            about = f" ({block.description})" if block.description else ""
            return Text(f"[resource {block.name}: {block.uri}{about}]")
        case types.EmbeddedResource():
            resource = block.resource
            if isinstance(resource, types.TextResourceContents):
                return Text(f"[resource {resource.uri}]\n{resource.text}")
            return _convert_binary(resource.blob, resource.mime_type or "", str(resource.uri))


def _convert_binary(encoded: str, media_type: str, label: str) -> ResultContent:
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
    return Text(f"[{label}: {len(data):,} bytes of {kind or 'an unknown type'}, not shown]")
