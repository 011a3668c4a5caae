"""The colours: a style for each role, per theme.

A theme keeps the terminal's own background. `none` uses bold, dim and italic only: colour is never
the only sign of anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
from rich.style import Style

from treadle.apps.tui.options import THEME_NAMES


class Palette(msgspec.Struct, frozen=True):
    """A style for each role; one palette per theme."""

    name: str
    accent: Style
    faint: Style
    good: Style
    warning: Style
    error: Style
    user_message: Style
    code: Style
    keyword: Style
    string: Style
    comment: Style
    number: Style
    function: Style
    added: Style
    removed: Style
    search_match: Style
    bold: Style = Style(bold=True)
    plain: Style = Style.null()

    def get_style(self, role: str) -> Style:
        style: Style = getattr(self, role)
        return style


# For each role its style in the themes of THEME_NAMES.
_STYLES: Mapping[str, tuple[str, str, str]] = {
    "accent": ("#7fb0ff", "#0a56c2", "bold"),
    "faint": ("#808792", "#6b7280", "dim"),
    "good": ("#86c98a", "#1a7f37", "not dim"),
    "warning": ("#dcae62", "#8a5300", "italic"),
    "error": ("#ee7d7d", "#c6242c", "bold"),
    "user_message": ("bold #dfe6f0", "bold #1f2430", "bold"),
    "code": ("#d9b98a", "#86480f", "italic"),
    "keyword": ("#b9a1e8", "#6f42c1", "not dim"),
    "string": ("#9cc99a", "#1a7f37", "not dim"),
    "comment": ("italic #808792", "italic #6b7280", "dim"),
    "number": ("#e0a37e", "#9a4a10", "not dim"),
    "function": ("#7fb0ff", "#0a56c2", "not dim"),
    "added": ("#a6dba8 on #14291a", "#0f5a25 on #dcf7e1", "bold"),
    "removed": ("#f0a9a9 on #321a1c", "#8f1a20 on #fde5e4", "dim"),
    "search_match": ("black on #dcae62", "black on #ffd866", "reverse"),
}


def _make_palette(name: str) -> Palette:
    column = THEME_NAMES.index(name)
    return Palette(name, **{role: Style.parse(row[column]) for role, row in _STYLES.items()})


DARK, LIGHT, NONE = map(_make_palette, THEME_NAMES)
THEMES: Mapping[str, Palette] = {palette.name: palette for palette in (DARK, LIGHT, NONE)}


def is_colourless(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the user or the terminal asks for no colours."""
    return bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"


def select_palette(name: str, environ: Mapping[str, str] = os.environ) -> Palette:
    """The theme of this name, or a guess from the terminal's background. NO_COLOR wins."""
    if is_colourless(environ):
        return NONE
    if name in THEMES:
        return THEMES[name]
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if background in ("7", "15") else DARK
