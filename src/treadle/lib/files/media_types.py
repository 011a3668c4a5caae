"""Which kind of image or document some bytes are, by how they begin."""

from __future__ import annotations

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
IMAGE_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_IMAGE_BYTES = 3_900_000  # as base64 just below the 5 MB that providers take


def detect_media_type(data: bytes) -> str:
    """`image/png`, `image/jpeg`, `image/gif`, `image/webp`, `application/pdf`, or ""."""
    for signature, media_type in _SIGNATURES:
        if data.startswith(signature):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""
