"""A page as one file: styles and icons inside, no script, nothing from elsewhere.

Its policy allows the one style sheet by its hash, and pictures that are part of the page.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from treadle.apps.pages.elements import escape_html
from treadle.apps.pages.frame import STATIC, read_icons


def render_static_page(title: str, body: str) -> str:
    styles = _read_styles()
    digest = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="referrer" content="no-referrer"><meta name="color-scheme" '
        f'content="light dark"><title>{escape_html(title)}</title><style>{styles}</style></head>'
        f'<body class="page static">{read_icons()}{body}</body></html>\n'
    )


@cache
def _read_styles() -> str:
    names = ("tokens.css", "treadle.css")
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)
