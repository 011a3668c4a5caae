"""Web addresses in texts: terminals make them clickable (OSC 8), also where a line wraps.

The addresses come from a model or a tool: only web and mail addresses become links, and nothing is
opened before the user asks for it.
"""

from __future__ import annotations

import re

from rich.style import Style
from rich.text import Text

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\{}|^]+")
_SCHEMES = ("https://", "http://", "mailto:")
MAX_CHARS = 2_000


def find_links(text: str) -> list[str]:
    """The web addresses of a text, each once."""
    return list(dict.fromkeys(_trim(match[0]) for match in _ADDRESS.finditer(text)))


def is_safe_link(address: str) -> bool:
    is_known = address.lower().startswith(_SCHEMES)
    return is_known and len(address) <= MAX_CHARS and address.isascii() and address.isprintable()


def mark_links(text: Text) -> Text:
    """The same text, whose addresses are links."""
    if "://" in text.plain:
        for match in _ADDRESS.finditer(text.plain):
            address = _trim(match[0])
            if is_safe_link(address):
                start = match.start()
                text.stylize(Style(link=address), start, start + len(address))
    return text


def _trim(address: str) -> str:
    """Without the punctuation of the sentence, and a bracket that was not opened in it."""
    address = address.rstrip(".,;:!?*_")
    while address.endswith((")", "]")):
        opening = "(" if address[-1] == ")" else "["
        if address.count(opening) >= address.count(address[-1]):
            break
        address = address[:-1].rstrip(".,;:!?*_")
    return address
