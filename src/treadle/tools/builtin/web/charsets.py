"""The text of a page, by the charset that it names: only charsets that browsers know.

Python knows more codecs; some are not for text, and some take hours on a hostile page. For other
names the charset is guessed as for a file. Used by `web_fetch`.
"""

from __future__ import annotations

import codecs
import re

from treadle.tools.builtin.file_text import decode_text

BLOCK_BYTES = 1 << 15
_CHARSET = re.compile(r"charset=[\"']?([\w:-]{1,40})", re.IGNORECASE)
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# Python's name, then the names that pages use, in lower case and with hyphens only.
_ENCODING_TABLE = """
utf-8       utf-8 utf8 unicode-1-1-utf-8
utf-16-le   utf-16 utf-16le
utf-16-be   utf-16be
cp1252      windows-1252 cp1252 iso-8859-1 iso8859-1 latin-1 latin1 ascii us-ascii
cp874       windows-874 iso-8859-11 tis-620
iso8859-8   iso-8859-8 iso-8859-8-i
cp866       ibm866 cp866
koi8-r      koi8-r
koi8-u      koi8-u
mac-roman   macintosh x-mac-roman
mac-cyrillic  x-mac-cyrillic
gb18030     gb18030 gbk gb2312 x-gbk
big5hkscs   big5 big5-hkscs x-x-big5
euc_jp      euc-jp x-euc-jp
cp932       shift-jis sjis x-sjis windows-31j
iso2022_jp  iso-2022-jp
cp949       euc-kr ks-c-5601-1987 windows-949
"""
_ROWS = [row.split() for row in _ENCODING_TABLE.splitlines()]
PYTHON_ENCODINGS = {name: row[0] for row in _ROWS for name in row[1:]}
for _n in (2, 3, 4, 5, 6, 7, 9, 10, 13, 14, 15, 16):
    PYTHON_ENCODINGS[f"iso-8859-{_n}"] = f"iso8859-{_n}"
for _n in range(9):
    PYTHON_ENCODINGS[f"windows-125{_n}"] = PYTHON_ENCODINGS[f"cp125{_n}"] = f"cp125{_n}"


def decode_page(body: bytes, content_type: str, *, is_truncated: bool = False) -> str:
    """The body as text, never an error. The charset comes from the byte-order mark, else from the
    Content-Type header, else from the head of the page."""
    encoding = ""
    if not body.startswith(_BOMS):
        encoding = _find_charset(content_type) or _find_meta_charset(body)
    known = None if encoding else decode_text(body, is_truncated=is_truncated)
    return known.text if known is not None else _decode_in_blocks(body, encoding or "utf-8")


def _decode_in_blocks(body: bytes, encoding: str) -> str:
    """Decode in blocks: invalid bytes are slow, and other threads must be able to run."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    blocks = range(0, len(body), BLOCK_BYTES)
    return "".join(decoder.decode(body[at : at + BLOCK_BYTES], at == blocks[-1]) for at in blocks)


def _find_charset(text: str) -> str:
    found = _CHARSET.search(text)
    return PYTHON_ENCODINGS.get(found[1].lower().replace("_", "-"), "") if found else ""


def _find_meta_charset(body: bytes) -> str:
    encoding = _find_charset(body[:2_048].decode("latin-1"))
    return "" if encoding.startswith("utf-16") else encoding  # in UTF-16 it could not be read here
