"""What a server's answer to a call becomes: text, pictures and documents for the model.

A resource that is only named stays a name; what no model can take is said in words, with its size.
"""

from __future__ import annotations

import base64
import binascii

import mcp_types as types
import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import Document, Image, ResultContent, Text

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def convert_result(result: types.CallToolResult) -> ToolOutput:
    """The output of a call, as plain text where it is nothing else."""
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
            return _convert_binary(block.data, block.mime_type, "a picture")
        case types.AudioContent():
            return _convert_binary(block.data, block.mime_type, "a sound")
        case types.ResourceLink():
            about = f" ({block.description})" if block.description else ""
            return Text(f"[resource {block.name}: {block.uri}{about}]")
        case types.EmbeddedResource():
            inside = block.resource
            if isinstance(inside, types.TextResourceContents):
                return Text(f"[resource {inside.uri}]\n{inside.text}")
            return _convert_binary(inside.blob, inside.mime_type or "", str(inside.uri))


def _convert_binary(encoded: str, media_type: str, label: str) -> ResultContent:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return Text(f"[{label}: its data is not base64 and is left out]")
    kind = media_type.partition(";")[0].strip().lower()
    if kind in IMAGE_TYPES:
        return Image(kind, data)
    if kind == "application/pdf":
        return Document(kind, data, title=label)
    if kind.startswith("text/"):
        return Text(data.decode("utf-8", errors="replace"))
    return Text(f"[{label}: {len(data):,} bytes of {kind or 'an unknown kind'}, not shown]")
