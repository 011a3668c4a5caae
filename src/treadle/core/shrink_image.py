"""Makes a picture as small as providers take it: its longest side in pixels, and its bytes.

Uses Pillow (the extra `images`) if it is installed. Without it, a picture that fits is left as it
is, and one that does not raises MissingExtra. Used by the tools and the attachments of hosts.
"""

from __future__ import annotations

import io

import msgspec

from treadle.core.extras import is_installed, require_extra
from treadle.lib.files.media_size import image_size
from treadle.lib.files.media_types import MAX_IMAGE_BYTES

MAX_SIDE = 2_000  # of many pictures in one request; a larger one tells a model no more
HARD_MAX_SIDE = 8_000  # no provider takes more
MAX_PIXELS = 300_000_000  # more would not fit in memory
_QUALITIES = (90, 75, 60, 45, 22)


class UnreadableImage(ValueError):
    """The bytes are not a picture that can be made smaller."""


class SmallImage(msgspec.Struct, frozen=True):
    """A picture that fits. `note` says what was done with it; "" if nothing was."""

    media_type: str
    data: bytes
    note: str = ""


def shrink_image(media_type: str, data: bytes) -> SmallImage:
    """The picture, smaller if it has to be. Takes a while for a large one: call it in a thread.

    MissingExtra if it does not fit and Pillow is not installed; UnreadableImage if it is damaged.
    """
    side = max(image_size(data))
    if side <= MAX_SIDE and len(data) <= MAX_IMAGE_BYTES:
        return SmallImage(media_type, data)
    if not is_installed("images") and side <= HARD_MAX_SIDE and len(data) <= MAX_IMAGE_BYTES:
        return SmallImage(media_type, data)
    limits = f"more than {HARD_MAX_SIDE:,} pixels or {MAX_IMAGE_BYTES:,} bytes"
    require_extra("images", f"a picture with {limits} is not sent without it")
    return _shrink(media_type, data)


def _shrink(media_type: str, data: bytes) -> SmallImage:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the limit is checked here
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise UnreadableImage(f"it has {width:,} x {height:,} pixels, too many to read")
            picture.draft("RGB", (MAX_SIDE, MAX_SIDE))  # JPEG: decode it smaller at once
            small = picture.convert("RGBA" if _has_alpha(picture) else "RGB")
    except (OSError, SyntaxError, ValueError, MemoryError) as error:
        raise UnreadableImage(str(error)) from error
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    kind, smaller = _encode(small, media_type)
    size = f"{small.width} x {small.height} pixels, {len(smaller):,} bytes"
    return SmallImage(kind, smaller, f"made smaller from {width} x {height} pixels to {size}")


def _has_alpha(picture: object) -> bool:
    mode = getattr(picture, "mode", "")
    return mode in ("RGBA", "LA", "PA") or "transparency" in getattr(picture, "info", {})


def _encode(picture: object, media_type: str) -> tuple[str, bytes]:
    """As PNG if it was one and fits; else as JPEG, with the best quality that fits."""
    from PIL import Image

    assert isinstance(picture, Image.Image), "made by Pillow"
    data = _save(picture, "PNG", optimize=True) if media_type == "image/png" else b""
    if data and len(data) <= MAX_IMAGE_BYTES:
        return "image/png", data
    plain = picture.convert("RGB")
    for quality in _QUALITIES:
        data = _save(plain, "JPEG", quality=quality)
        if len(data) <= MAX_IMAGE_BYTES:
            break
    return "image/jpeg", data


def _save(picture: object, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)  # type: ignore[attr-defined]  # a Pillow image
    return out.getvalue()
