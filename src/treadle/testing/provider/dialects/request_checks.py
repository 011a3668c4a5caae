"""Request checks that all dialects share: the limits, a violation, the checks.

Each dialect has further checks beside its rendering. None of them raises on unexpected input.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

NAME_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE_SIGNATURES: Final = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The service's limits. Tokens are estimated at four bytes of request each."""

    context_window: int | None = None
    max_body: int = 32 * 1024 * 1024
    max_images: int = 100
    max_image_bytes: int = 5 * 1024 * 1024
    max_tools: int = 128
    alternate_roles: bool = True
    extra_keys: frozenset[str] = frozenset()


class RequestViolation(msgspec.Struct, frozen=True):
    """One reason for refusal: the path in the request, and the message of the service."""

    path: str
    message: str
    status: int = 400
    kind: str = "invalid_request_error"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def split_words(text: str) -> frozenset[str]:
    """The words of a text, such as field names of a service."""
    return frozenset(text.split())


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def count_assistant_messages(request: Mapping[str, object]) -> int:
    messages = as_list(request.get("messages"))
    return sum(as_dict(message).get("role") == "assistant" for message in messages)


def check_unknown_keys(
    path: str, value: Mapping[str, object], known: frozenset[str], extra: frozenset[str]
) -> Iterator[RequestViolation]:
    for key in value.keys() - known - extra:
        yield RequestViolation(f"{path}.{key}" if path else key, "Extra inputs are not permitted")


def check_image(
    path: str, media_type: object, data: object, limits: ServerLimits
) -> Iterator[RequestViolation]:
    """Checks one base64 image: its size, its encoding, and its media type."""
    if media_type not in _IMAGE_SIGNATURES:
        yield RequestViolation(path, f"unsupported image media type {media_type!r}")
        return
    try:
        raw = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        yield RequestViolation(path, "image data is not valid base64")
        return
    if len(raw) > limits.max_image_bytes:
        yield RequestViolation(
            path,
            f"image exceeds {limits.max_image_bytes} bytes: {len(raw)} bytes",
            kind=REQUEST_TOO_LARGE,
        )
    elif not raw.startswith(_IMAGE_SIGNATURES[str(media_type)]):
        yield RequestViolation(
            path, f"the image was specified as {media_type} but appears to be another"
        )


def check_data_url(path: str, url: object, limits: ServerLimits) -> Iterator[RequestViolation]:
    if not isinstance(url, str):
        yield RequestViolation(path, "image url must be a string")
    elif url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        yield from check_image(path, head.removesuffix(";base64"), data, limits)
    elif not url.startswith(("https://", "http://")):
        yield RequestViolation(path, "image url must be a data or http url")


def check_image_count(count: int, limits: ServerLimits) -> Iterator[RequestViolation]:
    if count > limits.max_images:
        yield RequestViolation(
            "messages", f"too many images: {count} > {limits.max_images}", kind=REQUEST_TOO_LARGE
        )


def check_schema(
    path: str, name: object, schema: object, max_name_length: int
) -> Iterator[RequestViolation]:
    if not isinstance(name, str) or not re.fullmatch(
        rf"[a-zA-Z0-9_-]{{1,{max_name_length}}}", name
    ):
        yield RequestViolation(
            f"{path}.name", f"string should match pattern '^[a-zA-Z0-9_-]{{1,{max_name_length}}}$'"
        )
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield RequestViolation(path, "the tool's schema must be an object schema (type: object)")


def check_unique(path: str, values: Iterable[object], label: str) -> Iterator[RequestViolation]:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            yield RequestViolation(path, f"{label} must be unique: {value!r}")
        seen.add(value)


def is_json(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


REQUEST_TOO_LARGE: Final = "request_too_large"
