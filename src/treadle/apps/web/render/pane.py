"""What all panes of the work page share: a head with the way back to the conversation."""

from __future__ import annotations

from treadle.apps.pages.elements import escape_html, render_icon


def render_pane(title: str, head: str, body: str) -> str:
    """`head` and `body` are HTML."""
    back = (
        '<a class="icon" href="#" data-back aria-label="Back to the conversation">'
        f"{render_icon('prev')}</a>"
    )
    return (
        f'<header class="pane-head">{back}<h2 id="pane-title">{escape_html(title)}</h2>{head}'
        f"</header>{body}"
    )
