"""HTML split into text and tags, in one pass without backtracking: no page can make it slow.

Broken pages are read as browsers read them: an unclosed tag, comment or script swallows the rest.
It knows of tags only which ones hold raw text. Used by `html_to_markdown.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import NamedTuple

MAX_TEXT_TOKEN_CHARS = 1 << 15
KEPT_ATTRIBUTES = frozenset({"href", "alt", "class"})
RAW_TEXT_TAGS = frozenset({
    "script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp"
})  # fmt: skip
"""The content of these is text up to their end tag, whatever it looks like."""

_TAG_OPEN = re.compile(r"<(?=[A-Za-z/!?])")
_TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
# Matches at least one character everywhere except before `>` and the end: each step advances.
# Possessive: what is matched is never given back.
_ATTRIBUTE = re.compile(
    r"""[\s/]*+([^\s/>=]++)?+(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?+"""
)
# Longer ones are invalid, and parsing a number of a million digits takes hours.
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_RAW_TEXT_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW_TEXT_TAGS}


class HtmlText(NamedTuple):
    """Text between tags, its references resolved."""

    text: str


class StartTag(NamedTuple):
    """A tag: its name in lower case, and those of its attributes that are used."""

    name: str
    attributes: Mapping[str, str]


class EndTag(NamedTuple):
    name: str


HtmlToken = HtmlText | StartTag | EndTag


def tokenize_html(html: str) -> Iterator[HtmlToken]:
    """The tokens of a page, in time proportional to its length."""
    at = 0
    while (found := _TAG_OPEN.search(html, at)) is not None:
        start = found.start()
        if start > at:
            yield from _split_text(unescape_references(html[at:start]))
        named = _TAG_NAME.match(html, start)
        if named is None:
            at = _skip_comment(html, start)
            continue
        name = named[1].lower()
        attributes, at = _parse_attributes(html, named.end())
        if html[start + 1] == "/":
            yield EndTag(name)
            continue
        if html[at - 1] != ">":  # the page ends inside this tag
            return
        yield StartTag(name, attributes)
        if name in RAW_TEXT_TAGS:
            end = _RAW_TEXT_ENDS[name].search(html, at)
            if end is None:
                return
            inner = html[at : end.start()]
            yield from _split_text(unescape_references(inner) if name == "title" else inner)
            at = end.start()
    if at < len(html):
        yield from _split_text(unescape_references(html[at:]))


def _split_text(text: str) -> Iterator[HtmlText]:
    """Split long text, so that a cancelled conversion stops soon."""
    size = MAX_TEXT_TOKEN_CHARS
    return (HtmlText(text[at : at + size]) for at in range(0, len(text), size))


def unescape_references(text: str) -> str:
    """Character references such as `&amp;` replaced by their characters."""
    return _REFERENCE.sub(lambda match: unescape(match[0]), text) if "&" in text else text


def _skip_comment(html: str, start: int) -> int:
    """The position after a comment, a declaration, or what browsers treat as one."""
    is_comment = html.startswith("<!--", start)
    end = html.find("-->", start + 2) if is_comment else html.find(">", start)
    return len(html) if end < 0 else end + (3 if is_comment else 1)


def _parse_attributes(html: str, at: int) -> tuple[Mapping[str, str], int]:
    """The attributes of a tag (the first of each name), and the position after the tag."""
    attributes: dict[str, str] = {}
    while at < len(html) and html[at] != ">":
        match = _ATTRIBUTE.match(html, at)
        assert match is not None
        at = match.end()
        name = (match[1] or "").lower()
        if name in KEPT_ATTRIBUTES:
            attributes.setdefault(name, unescape_references(match[2] or match[3] or match[4] or ""))
    return attributes, min(at + 1, len(html))
