"""Markdown of a model as safe HTML: raw HTML and images off, only http(s) links.

markdown-it-py is imported at the first use; where it is not installed, the text is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from treadle.apps.pages.elements import escape_html
from treadle.lib.text.sanitize import strip_escapes

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

LINK_SCHEMES = ("https://", "http://")
ALLOWED_ATTRIBUTES = ("class", "href", "start")
_ADDRESS = re.compile(r"\b(https?://[^\s<>\"`]+)")
_AFTER_ADDRESS = ".,;:!?*_~'()[]{}"
_BOXES = {"[ ] ": "\u2610", "[x] ": "\u2611"}


def markdown_to_html(text: str) -> str:
    """Markdown as safe HTML."""
    parser = _markdown_parser()
    if parser is None:
        return f'<p class="said">{escape_html(text)}</p>'
    tokens = parser.parse(strip_escapes(text))
    for token in tokens:
        _restrict(token)
    html_text: str = parser.renderer.render(tokens, parser.options, {})
    return html_text


@cache
def _markdown_parser() -> MarkdownIt | None:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return None
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable("image").core.ruler.push("tasks", _mark_tasks)
    parser.core.ruler.push("addresses", _link_addresses)
    parser.validateLink = _is_safe_link  # type: ignore[method-assign]  # its documented override
    return parser


def _mark_tasks(state: StateCore) -> None:
    """`- [x] text` as a box that is ticked."""
    if "[" not in state.src:
        return
    for item, before, token in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        first = token.children[0] if token.children else None
        if token.type != "inline" or before.type != "paragraph_open" or first is None:
            continue
        box = _BOXES.get(first.content[:4].lower())
        if first.type == "text" and box and item.type == "list_item_open":
            first.content = f"{box} {first.content[4:]}"
            item.attrs["class"] = "task-item"


def _link_addresses(state: StateCore) -> None:
    """Whole addresses are links. (linkify-it-py takes minutes for some texts of 200 KB.)"""
    if "://" not in state.src:
        return
    for token in state.tokens:
        children: list[Token] = []
        depth = 0
        for child in token.children or ():
            depth += child.nesting if child.type.startswith("link_") else 0
            children += [child] if depth or child.type != "text" else _split_addresses(child)
        if token.children:
            token.children = children


def _split_addresses(text: Token) -> Iterator[Token]:
    from markdown_it.token import Token

    parts = _ADDRESS.split(text.content)  # every second one is an address
    for number, part in enumerate(parts):
        address = part.rstrip(_AFTER_ADDRESS) if number % 2 else ""
        if address:
            yield Token("link_open", "a", 1, attrs={"href": address})
            yield Token("text", "", 0, content=address)
            yield Token("link_close", "a", -1)
        yield Token("text", "", 0, content=part[len(address) :])


def _is_safe_link(url: str) -> bool:
    return url.lower().startswith(LINK_SCHEMES)


def _restrict(token: Token) -> None:
    """Headings below those of the page, no attributes but the allowed ones."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = "h3"
    token.info = ""
    token.attrs = {name: token.attrs[name] for name in ALLOWED_ATTRIBUTES if name in token.attrs}
    if token.type == "link_open":
        if not _is_safe_link(str(token.attrs.get("href", ""))):  # the parser allows an empty one
            token.attrs.clear()
        token.attrs["rel"] = "noreferrer nofollow"
    for child in token.children or ():
        _restrict(child)
