"""The small parts that all pages share: escaped text, icons, the signs of a state."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence

from treadle.core.transcript.content import Image
from treadle.lib.text.sanitize import strip_escapes

PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # an SVG can hold scripts

# state -> (icon, colour, what a screen reader says)
CALL_SIGNS: Mapping[str, tuple[str, str, str]] = {
    "writing": ("open", "dim", "is being written"),
    "waiting": ("open", "dim", "has not begun"),
    "asking": ("wait", "warn", "waits for you"),
    "running": ("run", "accent", "running"),
    "done": ("done", "ok", "done"),
    "failed": ("fail", "error", "failed"),
    "denied": ("denied", "error", "denied"),
    "background": ("back", "accent", "in the background"),
    "stopped": ("stopped", "dim", "stopped"),
    "interrupted": ("stopped", "dim", "interrupted"),
}

# status -> (icon, colour, what a screen reader says, style of the text)
TODO_ICONS: Mapping[str, tuple[str, str, str, str]] = {
    "completed": ("boxtick", "ok", "done", "done"),
    "in_progress": ("run", "accent", "in work", "now-do"),
    "pending": ("boxed", "dim", "open", ""),
}


def escape_html(text: str) -> str:
    """Text that the browser shows and never interprets."""
    return html.escape(strip_escapes(text))


def is_picture(image: Image) -> bool:
    """Whether a page shows it; else only its type is named."""
    return bool(image.data) and image.media_type in PICTURE_TYPES


def make_data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def render_icon(name: str, *, label: str = "", style: str = "") -> str:
    """An icon of static/icons.svg; without a label it is decoration."""
    role = f'role="img" aria-label="{label}"' if label else 'aria-hidden="true"'
    classes = f"i {style}".rstrip()
    return f'<svg class="{classes}" viewBox="0 0 16 16" {role}><use href="#icon-{name}"/></svg>'


def mark_current(is_current: bool) -> str:
    """The attribute of the one of several that is shown or chosen."""
    return ' aria-current="true"' if is_current else ""


def render_buttons(
    attribute: str, names: Mapping[str, str], chosen: str, label: str, style: str = "seg"
) -> str:
    """Buttons of which one is pressed: `names` are their values, as `data-{attribute}`, and what
    they show."""
    buttons = "".join(
        f'<button type="button" data-{attribute}="{value}" '
        f'aria-pressed="{str(value == chosen).lower()}">{name}</button>'
        for value, name in names.items()
    )
    return f'<span class="{style}" role="group" aria-label="{label}">{buttons}</span>'


def render_sign(state: str) -> str:
    """The sign of a call at the left of its line."""
    icon, colour, label = CALL_SIGNS.get(state, CALL_SIGNS["writing"])
    return f'<span class="sign {colour}">{render_icon(icon, label=label)}</span>'


def render_sums(rows: Sequence[tuple[str, str, str]]) -> str:
    """Figures side by side: name, value, note; the first one is large."""
    cells = [
        f"<div{' class=big' if not at else ''}><dt>{escape_html(name)}</dt>"
        f"<dd>{escape_html(value)}<small>{escape_html(note)}</small></dd></div>"
        for at, (name, value, note) in enumerate(rows)
    ]
    return f'<dl class="sums">{"".join(cells)}</dl>'


def render_section(name: str, title: str, content: str, caption: str = "") -> str:
    """A part of a page with a heading; `name` is its id, unique in the page."""
    caption = f"<p>{caption}</p>" if caption else ""
    return (
        f'<section class="plot" aria-labelledby="{name}"><header><h2 id="{name}">{title}</h2>'
        f"{caption}</header>{content}</section>"
    )


def render_table(
    label: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    texts: Sequence[int] = (0,),
    style: str = "table-wrap",
) -> str:
    """A table that scrolls by itself. Cells are HTML; the columns `texts` are no numbers."""
    styles = ["t" if column in texts else "n" for column in range(len(heads))]
    head = "".join(
        f'<th scope="col" class="{style}">{name}</th>'
        for style, name in zip(styles, heads, strict=True)
    )
    lines = (
        "".join(f'<td class="{style}">{cell}</td>' for style, cell in zip(styles, row, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="{style}" tabindex="0" role="region" aria-label="{escape_html(label)}">'
        f'<table class="grid-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )
