"""The parts of an item: text, thinking, images, documents, tool calls.

Frozen values that do not depend on storage, display or providers. Items (items.py) consist of
these; the codec of a provider converts them to its own blocks and back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from json import JSONDecoder

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
    corrected of what the model wrote: a name, the spelling of an argument. `by` is ENGINE if the
    engine chose it, not the model.

    `arguments` is None when `raw` is not one complete JSON object: such a call is never executed,
    and its result is `problem`.
    """

    id: str
    name: str
    raw: str
    repaired: str = ""
    by: str = ""

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


def to_json_object(value: object) -> dict[str, Any]:
    """The value as the log will give it back, paths as texts; TypeError if it cannot be stored."""
    if not isinstance(value, dict):
        raise TypeError(f"a dict is expected, not {type(value).__name__}")
    try:
        stored = msgspec.json.encode(value, enc_hook=_encode_path)
    except UnicodeEncodeError:
        import json  # rarely needed

        builtins = msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_path)
        return cast(dict[str, Any], json.loads(json.dumps(builtins)))
    except RecursionError:
        raise TypeError("the value contains itself") from None
    return cast(dict[str, Any], msgspec.json.decode(stored))


def _encode_path(value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot be stored in a session")


def fix_surrogates(text: str) -> str:
    """The text with lone surrogates joined or replaced: UTF-8 cannot encode them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def parse_arguments(raw: str) -> Arguments | str:
    """Parse the arguments of a call strictly; a string says what is wrong with them."""
    if not raw.strip():
        return {}
    try:
        decoder = _get_strict_decoder()
        value, end = decoder.raw_decode(raw.lstrip(_JSON_SPACES))
        if end != len(raw):  # spaces, or more than one value
            value = decoder.decode(raw)
    except _InvalidArguments as problem:
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


_JSON_SPACES = " \t\r\n"


class _InvalidArguments(ValueError):
    pass


def _unique_keys(pairs: list[tuple[str, Any]]) -> Arguments:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _InvalidArguments(f"the key {twice!r} is given twice in the arguments")
    return value


def _reject_constant(name: str) -> Any:
    raise _InvalidArguments(f"{name} is not valid JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise _InvalidArguments(f"the number {text:.40} in the arguments is too large")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _InvalidArguments(f"the number {text:.40}... in the arguments is too large")
    return int(text)


_INFINITY = float("inf")
_MAX_DIGITS = 308  # of a number that other JSON parsers read


@cache
def _get_strict_decoder() -> JSONDecoder:
    from json import JSONDecoder  # an agent is made without it

    return JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_constant=_reject_constant,
        parse_float=_parse_float,
        parse_int=_parse_integer,
    )
