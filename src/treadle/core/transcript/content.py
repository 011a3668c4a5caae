"""The parts of an item: text, thinking, images, documents, tool calls.

Frozen values that do not depend on storage, display or providers. Items (items.py) consist of
these; the codec of a provider converts them to its own blocks and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.lib.json.strict_json import NotStrict, decode_strictly

Arguments = dict[str, Any]


ENGINE = "engine"


class Text(msgspec.Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """Plain text of the user, the model or a tool. `by` is ENGINE for a text in a reply that the
    engine wrote, not the model."""

    text: str
    by: str = ""


class Thinking(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True):
    """Reasoning of a model. The signature is sent back only to the provider named by `origin`."""

    text: str
    signature: str = ""
    id: str = ""
    origin: str = ""


class RedactedThinking(msgspec.Struct, frozen=True, tag="redacted_thinking", omit_defaults=True):
    """Reasoning that the provider encrypted; it is sent back to that provider unchanged."""

    data: str
    origin: str = ""


class Image(msgspec.Struct, frozen=True, tag="image", omit_defaults=True, dict=True):
    """An image: its bytes, or its URL."""

    media_type: str
    data: bytes = b""
    url: str = ""


class Document(msgspec.Struct, frozen=True, tag="document", omit_defaults=True, dict=True):
    """A file that the provider reads, such as a PDF."""

    media_type: str
    data: bytes = b""
    url: str = ""
    title: str = ""


class Opaque(msgspec.Struct, frozen=True, tag="opaque", omit_defaults=True):
    """A block of one provider, kept as JSON text so that it can be sent back unchanged.

    Used for server-side tool calls and their results.
    """

    origin: str
    json: str
    label: str = ""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True, dict=True):
    """A call. `raw` is stored; the arguments are parsed from it. `repaired` says what the loop has
    corrected of what the model wrote: a name, the spelling of an argument; `is_guessed`: a value of
    an argument, too. `by` is ENGINE if the engine chose it, not the model.

    `arguments` is None when `raw` is not one complete JSON object: such a call is never executed,
    and its result is `problem`.
    """

    id: str
    name: str
    raw: str
    repaired: str = ""
    by: str = ""
    is_guessed: bool = False

    @property
    def parsed(self) -> Arguments | str:
        """The arguments, or what is wrong with them; parsed once."""
        kept: Arguments | str | None = self.__dict__.get("parsed")
        if kept is None:
            kept = self.__dict__["parsed"] = parse_arguments(self.raw)
        return kept

    @property
    def arguments(self) -> Arguments | None:
        parsed = self.parsed
        return None if isinstance(parsed, str) else parsed

    @property
    def problem(self) -> str | None:
        parsed = self.parsed
        return parsed if isinstance(parsed, str) else None


UserContent = Text | Image | Document
AssistantContent = Text | Thinking | RedactedThinking | ToolCall | Opaque
ResultContent = Text | Image | Document


def check_parts(parts: object) -> None:
    """TypeError if these are not texts, images and documents: the log could not be read again."""
    if not isinstance(parts, tuple):
        raise TypeError(f'content is a tuple of parts, such as (Text("hi"),); got {parts!r:.80}')
    for part in parts:
        match part:
            case Text(text=str(), by=str()):
                pass
            case Image(media_type=str(), data=bytes(), url=str()):
                pass
            case Document(media_type=str(), data=bytes(), url=str(), title=str()):
                pass
            case _:
                raise TypeError(_describe_wrong_part(part))


def check_files(parts: Sequence[UserContent]) -> None:
    """TypeError for an image or a document without content. A log may hold such a part."""
    for part in parts:
        if isinstance(part, Text):
            continue
        kind = type(part).__name__
        example = "image/png" if isinstance(part, Image) else "application/pdf"
        usage = f'write {kind}("{example}", data), with the bytes of the file'
        if not part.data and not part.url:
            raise TypeError(f"{kind}({part.media_type!r:.80}) has no data and no url; {usage}")
        if part.data and "/" not in part.media_type:
            raise TypeError(f"media_type of {kind} is {part.media_type!r:.80}; {usage}")


def _describe_wrong_part(part: object) -> str:
    data: object = part.data if isinstance(part, (Image, Document)) else b""
    if not isinstance(data, bytes):
        place = f"{type(part).__name__}.data is a {type(data).__name__}"
        return f"{place}; it must be the bytes of the file, decoded if they are base64"
    hint = ". Earlier messages are given as `history`" if isinstance(part, dict) else ""
    return f"content consists of Text, Image and Document parts, not {part!r:.80}{hint}"


def parse_arguments(raw: str) -> Arguments | str:
    """Parse the arguments of a call strictly; a string says what is wrong with them."""
    if not raw.strip():
        return {}
    try:
        value = decode_strictly(raw)
    except NotStrict as problem:
        return str(problem)
    except RecursionError:
        return "the arguments are nested too deeply"
    except ValueError as error:
        return f"the arguments are not valid JSON ({error}); they may have been cut off"
    if isinstance(value, dict):
        return value
    kind = type(value).__name__
    hint = " (JSON encoded twice?)" if isinstance(value, str) else ""
    return f"the arguments must be a JSON object, not {kind}{hint}"
