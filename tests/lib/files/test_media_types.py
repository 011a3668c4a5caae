from __future__ import annotations

import pytest

from treadle.lib.files.media_types import IMAGE_MEDIA_TYPES, detect_media_type


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\nrest", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", ""),
        (b"%PDF-1.7", "application/pdf"),
        (b"", ""),
    ],
)
def test_the_first_bytes_say_what_it_is(data, media_type):
    assert detect_media_type(data) == media_type
    assert media_type in {*IMAGE_MEDIA_TYPES, "application/pdf", ""}
