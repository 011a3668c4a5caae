"""The colours: a style for each role, per theme.

A theme keeps the terminal's own background. `none` uses bold, dim and italic only: colour is never
the only sign of anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
from rich.style import Style


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

    def tone_style(self, name: str) -> Style:
        tones = {
            "faint": self.faint,
            "good": self.good,
            "warning": self.warning,
            "error": self.error,
        }
        return tones.get(name, self.plain)


def _make_palette(name: str, **roles: str) -> Palette:
    return Palette(name, **{role: Style.parse(text) for role, text in roles.items()})


DARK = _make_palette(
    "dark",
    accent="#7fb0ff",
    faint="#808792",
    good="#86c98a",
    warning="#dcae62",
    error="#ee7d7d",
    user_message="bold #dfe6f0",
    code="#d9b98a",
    keyword="#b9a1e8",
    string="#9cc99a",
    comment="italic #808792",
    number="#e0a37e",
    function="#7fb0ff",
    added="#a6dba8 on #14291a",
    removed="#f0a9a9 on #321a1c",
    search_match="black on #dcae62",
)
LIGHT = _make_palette(
    "light",
    accent="#0a56c2",
    faint="#6b7280",
    good="#1a7f37",
    warning="#8a5300",
    error="#c6242c",
    user_message="bold #1f2430",
    code="#86480f",
    keyword="#6f42c1",
    string="#1a7f37",
    comment="italic #6b7280",
    number="#9a4a10",
    function="#0a56c2",
    added="#0f5a25 on #dcf7e1",
    removed="#8f1a20 on #fde5e4",
    search_match="black on #ffd866",
)
NONE = _make_palette(
    "none",
    accent="bold",
    faint="dim",
    good="not dim",
    warning="italic",
    error="bold",
    user_message="bold",
    code="italic",
    keyword="not dim",
    string="not dim",
    comment="dim",
    number="not dim",
    function="not dim",
    added="bold",
    removed="dim",
    search_match="reverse",
)
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
