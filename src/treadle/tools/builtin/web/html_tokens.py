"""HTML cut into text and tags, in one pass that never looks back: a page cannot make it slow.

Reads on as browsers do where a page is broken: a tag, a comment or a script that is never closed
takes the rest with it. Of what tags mean it knows only which hold nothing but text. `html_to_markdown.py`
stands above.
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
"""What stands in these is text up to their own end, whatever it looks like."""

_TAG_OPEN = re.compile(r"<(?=[A-Za-z/!?])")
_TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
# Matches something at every place but before `>` and the end: each step goes on.
_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=]+)?(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]*)))?""")
# Longer ones mean nothing, and reading a number of a million digits takes hours.
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_RAW_TEXT_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW_TEXT_TAGS}


class HtmlText(NamedTuple):
    """Text between tags, its references resolved."""

    text: str


class StartTag(NamedTuple):
    """A tag, by its name in lower case, with the attributes that anybody wants."""

    name: str
    attributes: Mapping[str, str]


class EndTag(NamedTuple):
    name: str


HtmlToken = HtmlText | StartTag | EndTag


def tokenize_html(html: str) -> Iterator[HtmlToken]:
    """The page in order. It takes time in proportion to its length, whatever it holds."""
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
        if html[at - 1] != ">":  # the page ends in the middle of it
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
    """In blocks that are soon dealt with."""
    return (
        HtmlText(text[at : at + MAX_TEXT_TOKEN_CHARS])
        for at in range(0, len(text), MAX_TEXT_TOKEN_CHARS)
    )


def unescape_references(text: str) -> str:
    """`&amp;` and the like as what they stand for."""
    return _REFERENCE.sub(lambda match: unescape(match[0]), text) if "&" in text else text


def _skip_comment(html: str, start: int) -> int:
    """Behind a comment, a declaration, or what browsers take for one."""
    is_comment = html.startswith("<!--", start)
    end = html.find("-->", start + 2) if is_comment else html.find(">", start)
    return len(html) if end < 0 else end + (3 if is_comment else 1)


def _parse_attributes(html: str, at: int) -> tuple[Mapping[str, str], int]:
    """Those of a tag, the first of each name, and the place behind it."""
    found: dict[str, str] = {}
    while at < len(html) and html[at] != ">":
        match = _ATTRIBUTE.match(html, at)
        assert match is not None
        at = match.end()
        name = (match[1] or "").lower()
        if name in KEPT_ATTRIBUTES:
            found.setdefault(name, unescape_references(match[2] or match[3] or match[4] or ""))
    return found, min(at + 1, len(html))
