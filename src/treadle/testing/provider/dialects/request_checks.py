"""Request checks that all dialects share: the limits, a violation, the checks.

Each dialect has further checks beside its rendering. None of them raises on unexpected input.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

JsonObject = Mapping[str, object]

REQUEST_TOO_LARGE: Final = "request_too_large"
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


Violations = Iterator[RequestViolation]


def split_words(text: str) -> frozenset[str]:
    """The words of a text, such as field names of a service."""
    return frozenset(text.split())


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_dict(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def count_assistant_messages(request: JsonObject) -> int:
    messages = as_list(request.get("messages"))
    return sum(as_dict(message).get("role") == "assistant" for message in messages)


def check_unknown_keys(
    path: str, value: JsonObject, known: frozenset[str], extra: frozenset[str]
) -> Violations:
    for key in value.keys() - known - extra:
        yield RequestViolation(f"{path}.{key}" if path else key, "Extra inputs are not permitted")


def check_image(path: str, media_type: object, data: object, limits: ServerLimits) -> Violations:
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
        wrong = f"image exceeds {limits.max_image_bytes} bytes: {len(raw)} bytes"
        yield RequestViolation(path, wrong, kind=REQUEST_TOO_LARGE)
    elif not raw.startswith(_IMAGE_SIGNATURES[str(media_type)]):
        wrong = f"the image was specified as {media_type} but appears to be another"
        yield RequestViolation(path, wrong)


def check_data_url(path: str, url: object, limits: ServerLimits) -> Violations:
    if not isinstance(url, str):
        yield RequestViolation(path, "image url must be a string")
    elif url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        yield from check_image(path, head.removesuffix(";base64"), data, limits)
    elif not url.startswith(("https://", "http://")):
        yield RequestViolation(path, "image url must be a data or http url")


def check_image_count(count: int, limits: ServerLimits) -> Violations:
    if count > limits.max_images:
        wrong = f"too many images: {count} > {limits.max_images}"
        yield RequestViolation("messages", wrong, kind=REQUEST_TOO_LARGE)


def check_schema(path: str, name: object, schema: object, max_length: int) -> Violations:
    pattern = rf"[a-zA-Z0-9_-]{{1,{max_length}}}"
    if not isinstance(name, str) or not re.fullmatch(pattern, name):
        yield RequestViolation(f"{path}.name", f"string should match pattern '^{pattern}$'")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield RequestViolation(path, "the tool's schema must be an object schema (type: object)")


def check_unique(path: str, values: Iterable[object], label: str) -> Violations:
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
