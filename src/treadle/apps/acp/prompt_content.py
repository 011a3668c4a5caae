"""The content blocks of a prompt as parts of a message.

A link to a file of the folder is a mention: the model reads the file when it needs it; an image or
a PDF is attached. Embedded text comes from the editor, so it also has what is not saved. Used by
session.py.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from treadle.apps.conversation.attachments import (
    AttachmentError,
    attach_mention,
    find_mentions,
    make_attachment,
)
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import Document, Image, Text, UserContent

PromptBlock = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)


def read_prompt(
    blocks: Sequence[PromptBlock], folder: Path, added_folders: Sequence[Path] = ()
) -> tuple[UserContent, ...]:
    """The message of a prompt; ConfigError if a block cannot be read."""
    parts: list[UserContent] = []
    attached: list[UserContent] = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                parts.append(Text(text))
                attached += _attach_mentions(text, folder, added_folders)
            case ImageContentBlock():
                parts.append(_decode("the image", block.data, block.mime_type))
            case ResourceContentBlock(uri=uri, name=name):
                parts += _link(uri, name, folder, added_folders)
            case EmbeddedResourceContentBlock(resource=resource):
                if isinstance(resource, BlobResourceContents):
                    parts.append(_decode(resource.uri, resource.blob, resource.mime_type or ""))
                else:
                    name = get_file_path(resource.uri) or resource.uri
                    parts.append(Text(f'\n<file path="{name}">\n{resource.text}\n</file>\n'))
            case _:
                raise ConfigError("a prompt cannot have audio; send text, images and files")
    return (*_join_texts(parts), *attached)


def get_file_path(uri: str) -> str:
    """The path of a file URI, with `:LINE` of its fragment; "" for another URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme == "file":
        path = unquote(parts.path)
    elif not parts.scheme and uri.startswith("/"):
        path = uri
    else:
        return ""
    lines = parts.fragment.removeprefix("L")
    return f"{path}:{lines}" if lines and lines[0].isdigit() else path


def _link(uri: str, name: str, folder: Path, added: Sequence[Path]) -> list[UserContent]:
    """A mention in the text; the model cannot read an image or a PDF as text, so it is attached."""
    path = get_file_path(uri)
    if not path:
        return [Text(f"[{name}]({uri})")]
    shown = _shorten(path, folder)
    attachment = attach_mention(path, folder, lambda: added, include_text=False)
    return [Text(f"@{shown}"), *([attachment.content] if attachment is not None else [])]


def _attach_mentions(text: str, folder: Path, added: Sequence[Path]) -> list[UserContent]:
    found = [
        attach_mention(name, folder, lambda: added, include_text=False)
        for name in find_mentions(text)
    ]
    return [attachment.content for attachment in found if attachment is not None]


def _shorten(path: str, folder: Path) -> str:
    try:
        return str(Path(path).relative_to(folder))
    except ValueError:
        return path


def _decode(name: str, data: str, media_type: str) -> UserContent:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{name} of the prompt is not valid base64: {error}") from error
    try:
        part = make_attachment(name, content)
    except AttachmentError as error:
        raise ConfigError(str(error)) from error
    if media_type.startswith("image/") and not isinstance(part, (Image, Document)):
        raise ConfigError(f"{name} of the prompt is not an image that a model can read")
    return part


def _join_texts(parts: Sequence[UserContent]) -> list[UserContent]:
    """Neighbouring texts as one: editors split a sentence around the files that it mentions."""
    joined: list[UserContent] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined
