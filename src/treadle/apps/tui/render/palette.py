"""The colours: a style for each role, per theme.

A theme keeps the terminal's own background. The `-contrast` themes have a contrast of 7:1 or more
on black and on white. `none` uses bold, dim and italic only: colour is never the only sign of
anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
from rich.style import Style
from textual.theme import Theme

from treadle.apps.settings.settings import SETTINGS_BY_NAME


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


THEME_NAMES = SETTINGS_BY_NAME["theme"].choices

# For each role its style in the themes of THEME_NAMES.
_STYLES: Mapping[str, tuple[str, ...]] = {
    "accent": ("#7fb0ff", "#0a56c2", "bold #9cd2ff", "bold #003a9e", "bold"),
    "faint": ("#808792", "#6b7280", "#c8ccd4", "#3d434c", "dim"),
    "good": ("#86c98a", "#1a7f37", "#7dff8a", "#00490f", "not dim"),
    "warning": ("#dcae62", "#8a5300", "bold #ffd24d", "bold #5c3300", "italic"),
    "error": ("#ee7d7d", "#c6242c", "bold #ff9c9c", "bold #8a0008", "bold"),
    "user_message": ("bold #dfe6f0", "bold #1f2430", "bold #ffffff", "bold #000000", "bold"),
    "code": ("#d9b98a", "#86480f", "#ffd9a0", "#5a2a00", "italic"),
    "keyword": ("#b9a1e8", "#6f42c1", "#d8c2ff", "#46218f", "not dim"),
    "string": ("#9cc99a", "#1a7f37", "#a8ffae", "#00490f", "not dim"),
    "comment": ("italic #808792", "italic #6b7280", "italic #c8ccd4", "italic #3d434c", "dim"),
    "number": ("#e0a37e", "#9a4a10", "#ffc9a6", "#612a00", "not dim"),
    "function": ("#7fb0ff", "#0a56c2", "#9cd2ff", "#003a9e", "not dim"),
    "added": (
        "#a6dba8 on #14291a",
        "#0f5a25 on #dcf7e1",
        "bold #b8ffbf on #003311",
        "bold #003d12 on #d6ffdd",
        "bold",
    ),
    "removed": (
        "#f0a9a9 on #321a1c",
        "#8f1a20 on #fde5e4",
        "bold #ffc2c2 on #4a0000",
        "bold #6e0006 on #ffe3e3",
        "dim",
    ),
    "search_match": (
        "black on #dcae62",
        "black on #ffd866",
        "bold black on #ffd24d",
        "bold black on #ffd866",
        "reverse",
    ),
}


def _make_palette(name: str) -> Palette:
    column = THEME_NAMES.index(name)
    return Palette(name, **{role: Style.parse(row[column]) for role, row in _STYLES.items()})


THEMES: Mapping[str, Palette] = {name: _make_palette(name) for name in THEME_NAMES}
DARK, LIGHT, NONE = THEMES["dark"], THEMES["light"], THEMES["none"]


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


_THEME_VARIABLES = {
    "ansi-background": "ansi_default",
    "ansi-foreground": "ansi_default",
    "border-blurred": "ansi_default",
    "block-cursor-foreground": "ansi_default",
    "block-cursor-background": "ansi_default",
    "input-cursor-background": "ansi_default",
    "input-cursor-foreground": "ansi_default",
    "input-cursor-text-style": "reverse",
    "input-selection-background": "ansi_bright_black",
    "input-selection-foreground": "ansi_default",
    "screen-selection-background": "ansi_bright_black",
    "screen-selection-foreground": "ansi_default",
}


def build_themes() -> list[Theme]:
    """One for each palette, named `treadle-NAME`."""
    return [
        Theme(
            name=f"treadle-{name}",
            ansi=True,
            dark=not name.startswith("light"),
            primary="ansi_blue",
            secondary="ansi_cyan",
            warning="ansi_yellow",
            error="ansi_red",
            success="ansi_green",
            accent="ansi_blue",
            foreground="ansi_default",
            background="ansi_default",
            surface="ansi_default",
            panel="ansi_default",
            boost="ansi_default",
            variables=_THEME_VARIABLES,
        )
        for name in THEMES
    ]
