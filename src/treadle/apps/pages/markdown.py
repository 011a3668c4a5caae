"""Markdown of a model as safe HTML: raw HTML and images off, only http(s) links.

markdown-it-py is imported at the first use; where it is not installed, the text is shown as it is.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING

from treadle.apps.pages.elements import escape_html
from treadle.lib.text.sanitize import strip_escapes

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

LINK_SCHEMES = ("https://", "http://")
ALLOWED_ATTRIBUTES = ("href", "start")
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
    parser.validateLink = _is_safe_link  # type: ignore[method-assign]  # its documented override
    return parser


def _mark_tasks(state: StateCore) -> None:
    """`- [x] text` as a box that is ticked."""
    for before, token in itertools.pairwise(state.tokens):
        first = token.children[0] if token.children else None
        if token.type != "inline" or before.type != "paragraph_open" or first is None:
            continue
        box = _BOXES.get(first.content[:4].lower())
        if first.type == "text" and box and token.level >= 3:  # in an item of a list
            first.content = f"{box} {first.content[4:]}"


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
