"""Estimates how many tokens a provider counts for a text, an image or a document.

Texts count by their UTF-8 bytes: letters of other scripts need more tokens, about as they need more
bytes, and no token is shorter than a byte.

Images count by pixels, PDFs by pages (providers read each page as text and as an image), other
documents by bytes. Providers differ by a factor of two or three; the estimate is on the high side.
"""

from __future__ import annotations

from treadle.core.transcript.content import (
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
)
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.files.media_size import count_pdf_pages, image_size

CHARS_PER_MEDIA_TOKEN = 4  # converts tokens to characters: text is counted in characters
PIXELS_PER_TOKEN = 750
MAX_IMAGE_TOKENS = 3_000  # providers scale larger images down
TOKENS_PER_PAGE = 2_500
BYTES_PER_TOKEN = 3  # of text
BYTES_PER_PAGE = 50_000  # if the pages cannot be counted
MAX_GUESSED_PAGES = 100
# A text whose words are longer on average is data: a token of it has half as many characters.
MIN_DENSE_CHARS, MAX_WORD_CHARS = 200, 20
PAGES_OF_URL_DOCUMENT = 20  # a guess: only the URL is known


def estimate_chars(transcript: Transcript) -> int:
    """The size of a transcript; only what was appended since the last time is looked at."""
    length = len(transcript)
    known, total = transcript.cache.get(estimate_chars, (0, 0))
    if known > length:  # a longer transcript on the same list
        return sum(map(estimate_item_chars, transcript))
    if known < length:
        for item in transcript[known:]:
            total += estimate_item_chars(item)
        transcript.cache[estimate_chars] = (length, total)
    return total  # type: ignore[no-any-return]


def estimate_item_chars(item: Item) -> int:
    """The size of an item in characters; may be too large, hardly ever too small.

    A long text without spaces (base64, hex) counts twice. Images and documents count as their
    estimated tokens.
    """
    if isinstance(item, (NoticeItem, SummaryItem)):
        return _estimate_dense_text(item.text)
    total = 0
    for part in item.content:
        if isinstance(part, (Text, Thinking)):
            total += _estimate_dense_text(part.text)
        elif isinstance(part, ToolCall):
            total += _estimate_dense_text(part.raw)
        elif isinstance(part, Opaque):
            total += estimate_text_chars(part.json)
        elif isinstance(part, RedactedThinking):
            total += len(part.data)
        else:
            total += estimate_media_chars(part)
    if type(item) is ToolResultItem and item.notes:
        total += sum([estimate_text_chars(note.text) + 1 for note in item.notes])
    return total


def estimate_text_chars(text: str) -> int:
    """The size of a text as that of a Latin text with about as many tokens."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _estimate_dense_text(text: str) -> int:
    size = len(text) if text.isascii() else estimate_text_chars(text)
    if len(text) < MIN_DENSE_CHARS or size > 1.5 * len(text):
        return size  # short, or of a script without spaces
    spaces = text.count(" ") + text.count("\n")
    return size if len(text) <= MAX_WORD_CHARS * (spaces + 1) else 2 * size


def estimate_media_chars(part: Image | Document) -> int:
    """The size as characters of text; computed once."""
    kept: int | None = part.__dict__.get("chars")
    if kept is None:
        weight = _image_tokens(part) if isinstance(part, Image) else _document_tokens(part)
        kept = part.__dict__["chars"] = weight * CHARS_PER_MEDIA_TOKEN
    return kept


def _image_tokens(image: Image) -> int:
    width, height = image_size(image.data)
    if not width * height:
        return MAX_IMAGE_TOKENS
    return min(width * height // PIXELS_PER_TOKEN + 1, MAX_IMAGE_TOKENS)


def _document_tokens(document: Document) -> int:
    data = document.data
    if not data:
        return PAGES_OF_URL_DOCUMENT * TOKENS_PER_PAGE
    if document.media_type.startswith("text/"):
        return len(data) // BYTES_PER_TOKEN + 1
    pages = count_pdf_pages(data) or min(len(data) // BYTES_PER_PAGE + 1, MAX_GUESSED_PAGES)
    return pages * TOKENS_PER_PAGE
