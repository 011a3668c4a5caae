"""The small parts that all pages share: escaped text, icons, the signs of a state."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping

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


def render_sign(state: str) -> str:
    """The sign of a call at the left of its line."""
    icon, colour, label = CALL_SIGNS.get(state, CALL_SIGNS["writing"])
    return f'<span class="sign {colour}">{render_icon(icon, label=label)}</span>'
