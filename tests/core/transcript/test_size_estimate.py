"""What pictures and documents weigh in an estimate, and that finding out is cheap and bounded."""

from __future__ import annotations

import struct
import zlib

import msgspec
import pytest

from treadle.context.token_estimator import count_item_chars
from treadle.core.transcript import Document, Image, RedactedThinking, Text, to_user_item
from treadle.core.transcript.items import AssistantItem, ResultNote, ToolResultItem
from treadle.core.transcript.size_estimate import (
    CHARS_PER_MEDIA_TOKEN,
    MAX_GUESSED_PAGES,
    MAX_IMAGE_TOKENS,
    TOKENS_PER_PAGE,
    estimate_media_chars,
)
from treadle.core.transcript.size_estimate import estimate_item_chars as item_chars
from treadle.lib.files import media_size
from treadle.lib.files.media_size import count_pdf_pages, image_size


def tokens(part: Image | Document) -> int:
    return estimate_media_chars(part) // CHARS_PER_MEDIA_TOKEN


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


def jpeg(width: int, height: int) -> bytes:
    comment = b"\xff\xfe\x00\x05abc"
    return b"\xff\xd8" + comment + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body.ljust(20, b"\0")


PICTURES = {
    "png": png(640, 480),
    "jpeg": jpeg(640, 480),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480),
    "webp extended": webp(b"VP8X", b"\0\0\0\0" + b"\x7f\x02\0" + b"\xdf\x01\0"),
    "webp lossless": webp(b"VP8L", b"\x2f" + (639 | 479 << 14).to_bytes(4, "little")),
    "webp lossy": webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480)),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_weighs_by_its_pixels(kind: str):
    assert image_size(PICTURES[kind]) == (640, 480)
    assert tokens(Image("image/x", PICTURES[kind])) == 640 * 480 // 750 + 1


@pytest.mark.parametrize(
    "image",
    [
        Image("image/png", png(9_000, 9_000)),
        Image("image/png", b"not what it says"),
        Image("image/jpeg", b"\xff\xd8\xff\xe0"),
        Image("image/png", url="https://example.com/a.png"),
    ],
)
def test_a_picture_that_is_huge_or_unknown_weighs_what_the_largest_weighs(image: Image):
    assert tokens(image) == MAX_IMAGE_TOKENS


def pdf(pages: int, *, packed: bool = False) -> bytes:
    page = b"%d 0 obj << /Type /Page /Parent 1 0 R >> endobj\n"
    listed = b"".join(page % (n + 2) for n in range(pages))
    root = b"1 0 obj << /Type /Pages /Count %d >> endobj\n" % pages
    if packed:
        head = b"9 0 obj << /Type /ObjStm /Filter /FlateDecode >>\nstream\r\n"
        root, listed = b"", head + zlib.compress(root + listed) + b"\nendstream endobj\n"
    return b"%PDF-1.7\n" + root + listed + b"%%EOF"


@pytest.mark.parametrize("packed", [False, True])
def test_a_pdf_weighs_by_its_pages_wherever_they_are_listed(packed: bool):
    data = pdf(40, packed=packed)
    assert count_pdf_pages(data) == 40
    assert tokens(Document("application/pdf", data)) == 40 * TOKENS_PER_PAGE


def test_a_document_whose_pages_cannot_be_counted_weighs_by_its_bytes():
    secret = b"%PDF-1.7\n" + b"/Type /ObjStm >> stream\nencrypted" + b"\x07" * 480_000
    assert tokens(Document("application/pdf", secret)) == 10 * TOKENS_PER_PAGE
    scan = Document("application/pdf", b"\x07" * 20_000_000)
    assert tokens(scan) == MAX_GUESSED_PAGES * TOKENS_PER_PAGE
    assert (
        tokens(Document("application/pdf", url="https://example.com/a.pdf")) > 10 * TOKENS_PER_PAGE
    )


def test_a_document_of_text_weighs_what_its_text_weighs():
    assert tokens(Document("text/plain", b"word " * 6_000)) == 10_001


def test_a_document_made_to_keep_us_busy_does_not(monkeypatch: pytest.MonkeyPatch):
    inflated: list[int] = []
    inflate = media_size._inflate

    def count(data: bytes) -> bytes:
        plain = inflate(data)
        inflated.append(len(plain))
        return plain

    monkeypatch.setattr(media_size, "_inflate", count)
    bomb = b"/Type /ObjStm >> stream\n" + zlib.compress(b"\0" * 4_000_000)
    count_pdf_pages(bomb * 1_000)
    largest = media_size.MAX_OBJECT_STREAM_BYTES
    assert max(inflated) == largest
    assert sum(inflated) <= media_size.MAX_INFLATED_BYTES + largest
    inflated.clear()
    count_pdf_pages(b"/Type /ObjStm stream\njunk" * 400_000)
    assert len(inflated) == media_size.MAX_OBJECT_STREAMS


def test_weighing_leaves_the_value_as_it_was():
    image, same = Image("image/png", png(10, 10)), Image("image/png", png(10, 10))
    before = msgspec.json.encode(image)
    assert estimate_media_chars(image) == estimate_media_chars(image)
    assert (image, hash(image)) == (same, hash(same))
    assert msgspec.json.encode(image) == before


def test_an_item_holds_the_weight_of_everything_in_it():
    image = Image("image/png", png(750, 100))
    assert item_chars(to_user_item((Text("four"), image))) == 4 + 101 * CHARS_PER_MEDIA_TOKEN
    assert item_chars(AssistantItem((RedactedThinking("x" * 9_000),))) == 9_000


def test_the_notes_of_a_result_are_counted():
    result = ToolResultItem("c", "f", (Text("abc"),), notes=(ResultNote("corrected", "x" * 40),))
    assert item_chars(result) >= len(result.model_text)
    assert count_item_chars(result) > count_item_chars(msgspec.structs.replace(result, notes=()))
