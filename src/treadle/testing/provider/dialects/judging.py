"""How requests are judged: the rules, a problem, and the checks that all dialects share.

Each dialect has its own judgement beside its rendering. None of it raises on strange input: a
request is unknown data until it is judged.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAGIC: Final = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The service's limits. Tokens are estimated at four bytes of request each."""

    context_window: int | None = None
    max_body: int = 32 * 1024 * 1024
    max_images: int = 100
    max_image_bytes: int = 5 * 1024 * 1024
    max_tools: int = 128
    alternate_roles: bool = True
    more_keys: frozenset[str] = frozenset()


class Problem(msgspec.Struct, frozen=True):
    """One reason for refusal: where in the request, and the sentence that the service gives."""

    path: str
    message: str
    status: int = 400
    kind: str = "invalid_request_error"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def words(text: str) -> frozenset[str]:
    """The field names that a service knows."""
    return frozenset(text.split())


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def unknown_keys(
    path: str, value: Mapping[str, object], known: frozenset[str], more: frozenset[str]
) -> Iterator[Problem]:
    for key in value.keys() - known - more:
        yield Problem(f"{path}.{key}" if path else key, "Extra inputs are not permitted")


def image_problems(path: str, media_type: object, data: object, rules: Rules) -> Iterator[Problem]:
    """Checks one base64 image: its size, its encoding, and that it is what it says."""
    if media_type not in _MAGIC:
        yield Problem(path, f"unsupported image media type {media_type!r}")
        return
    try:
        raw = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        yield Problem(path, "image data is not valid base64")
        return
    if len(raw) > rules.max_image_bytes:
        yield Problem(
            path, f"image exceeds {rules.max_image_bytes} bytes: {len(raw)} bytes", kind=TOO_BIG
        )
    elif not raw.startswith(_MAGIC[str(media_type)]):
        yield Problem(path, f"the image was specified as {media_type} but appears to be another")


def data_url_problems(path: str, url: object, rules: Rules) -> Iterator[Problem]:
    if not isinstance(url, str):
        yield Problem(path, "image url must be a string")
    elif url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        yield from image_problems(path, head.removesuffix(";base64"), data, rules)
    elif not url.startswith(("https://", "http://")):
        yield Problem(path, "image url must be a data or http url")


def too_many_images(count: int, rules: Rules) -> Iterator[Problem]:
    if count > rules.max_images:
        yield Problem("messages", f"too many images: {count} > {rules.max_images}", kind=TOO_BIG)


def schema_problems(path: str, name: object, schema: object, longest: int) -> Iterator[Problem]:
    if not isinstance(name, str) or not re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name):
        yield Problem(
            f"{path}.name", f"string should match pattern '^[a-zA-Z0-9_-]{{1,{longest}}}$'"
        )
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield Problem(path, "the tool's schema must be an object schema (type: object)")


def repeated(path: str, values: Iterable[object], what: str) -> Iterator[Problem]:
    seen: set[object] = set()
    for value in values:
        if value in seen:
            yield Problem(path, f"{what} must be unique: {value!r}")
        seen.add(value)


def is_json(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


TOO_BIG: Final = "request_too_large"
