"""Textual themes: what Textual draws itself has the terminal's own background and text colour."""

from __future__ import annotations

from textual.theme import Theme

from treadle.apps.tui.render.palette import THEMES

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
