"""The frame of all pages, and the work page, whose regions are filled over the socket."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from treadle.apps.pages.elements import escape_html, render_icon

STATIC = Path(__file__).parent / "static"
_TABS = (("work", "Work"), ("inspect", "Inspect"), ("cost", "Cost"), ("fleet", "Fleet"))


@cache
def read_icons() -> str:
    return (STATIC / "icons.svg").read_text(encoding="utf-8")


def render_page(
    title: str, page: str, session: str, body: str, style: str = "", script: str = ""
) -> str:
    """A page with the head and the top bar that all of them have. `page` is the tab that it
    belongs to; its script has the same name by default."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape_html(title)} · Treadle</title>"
        '<link rel="icon" href="/static/mark.svg">'
        '<link rel="stylesheet" href="/static/tokens.css">'
        '<link rel="stylesheet" href="/static/treadle.css">'
        '<link rel="stylesheet" href="/static/panes.css">'
        '<script type="module" src="/static/theme.js"></script>'
        f'<script type="module" src="/static/{script or page}.js"></script></head>'
        f'<body class="{style or page}" data-session="{escape_html(session)}">'
        f"{read_icons()}{_render_top(page, session)}{body}</body></html>"
    )


def _render_top(page: str, session: str) -> str:
    links = []
    for name, label in _TABS:
        address = {"work": f"/session/{session}" if session else "/"}
        address |= {"inspect": f"/inspect/{session}", "cost": "/cost", "fleet": "/fleet"}
        current = ' aria-current="page"' if name == page else ""
        count = '<span id="waiting"></span>' if name == "work" else ""
        links.append(f'<a href="{address[name]}"{current}>{label}{count}</a>')
    menu = render_icon("menu")
    return (
        '<a class="skip" href="#main">Skip to the content</a><header class="top">'
        f'<a class="icon only-small" href="#sessions" aria-label="Folders and sessions">{menu}</a>'
        '<a class="brand not-small" href="/"><svg viewBox="0 0 20 20" aria-hidden="true">'
        '<use href="#icon-mark"/></svg><span>Treadle</span></a>'
        f'<nav class="tabs" aria-label="Pages">{"".join(links)}</nav><div class="top-end">'
        '<span class="live" id="live" role="status">Connecting</span>'
        f"{_icon_button('inbox', 'wait', 'What waits for you', '') if page == 'work' else ''}"
        f"{_SETTINGS if page == 'work' else ''}"
        f"{_icon_button('keys', 'keys', 'Keyboard help')}"
        f"{_icon_button('theme', 'sun', 'Theme: as the system', '')}</div></header>"
    )


_SETTINGS = (
    '<a class="icon not-small" href="#settings" aria-label="Settings, permissions, memory">'
    f"{render_icon('gear')}</a>"
)


def _icon_button(name: str, icon: str, label: str, style: str = "not-small") -> str:
    classes = f"icon {style}".rstrip()
    return (
        f'<button class="{classes}" type="button" id="{name}-button" aria-label="{label}">'
        f"{render_icon(icon)}</button>"
    )


def render_work_page(session: str, problem: str = "") -> str:
    if problem:
        note = f'<p class="empty error">{escape_html(problem)}</p>'
        note = f'<main class="centre" id="main">{note}</main>'
        return render_page("Work", "work", session, _RAIL + note)
    return render_page("Work", "work", session, _RAIL + _CENTRE + _SIDE + _DIALOG)


_CLOSE = f'<a class="icon close" href="#" aria-label="Close">{render_icon("x")}</a>'
_RAIL = (
    '<nav class="rail" id="sessions" aria-label="Folders and sessions"><div class="rail-head">'
    f'<div class="row"><button class="btn" type="button" id="new-button">{render_icon("plus")}'
    f'New session <kbd class="not-small">N</kbd></button>'
    f'<a class="btn only-small" href="#settings">Settings</a>{_CLOSE}</div>'
    f'<label class="field">{render_icon("search")}'
    '<span class="hidden">Search in all sessions</span>'
    '<input type="search" id="search" placeholder="Search all sessions">'
    '<kbd class="not-small">/</kbd></label>'
    '<div class="filters" role="group" aria-label="Show">'
    '<button type="button" aria-pressed="true" data-filter="">All <span></span></button>'
    '<button type="button" aria-pressed="false" data-filter="waiting">Waiting <span></span>'
    "</button>"
    '<button type="button" aria-pressed="false" data-filter="running">Running <span></span>'
    "</button></div></div>"
    '<div class="rail-list" tabindex="0" role="region" aria-label="Sessions"><div id="list"></div>'
    '<p class="found" id="no-match" hidden></p><button class="more" type="button" '
    'id="search-button" hidden>Search inside messages and calls, too <kbd>Enter</kbd></button>'
    '<div id="found" aria-live="polite"></div></div></nav>'
    '<a class="veil" href="#" aria-hidden="true" tabindex="-1"></a>'
)


def _act(name: str, icon: str, label: str) -> str:
    return (
        f'<button class="btn bare" type="button" data-ask="{name}" aria-label="{label}">'
        f'{render_icon(icon)}<span class="not-small">{label}</span></button>'
    )


_ACTS = (
    '<a class="btn bare" href="#review" aria-label="Review the changes">'
    + f'{render_icon("diffs")}<span class="not-small">Review</span></a>'
    + _act("undo", "undo", "Undo")
    + _act("rewind", "rewind", "Rewind")
    + '<button class="btn bare" type="button" data-do="fork" aria-label="Fork">'
    + f'{render_icon("fork")}<span class="not-small">Fork</span></button>'
    + '<a class="icon" id="inspect-link" href="#" aria-label="Look into this session">'
    + f"{render_icon('look')}</a>"
    + '<a class="icon" href="#side" aria-label="Todos, tasks and agents">'
    + f"{render_icon('panel')}</a>"
)
_TOOLS = (
    '<div class="tools">'
    + '<button class="icon" type="button" id="attach-button" aria-label="Attach a file">'
    + f'{render_icon("clip")}</button><input type="file" id="file" multiple hidden>'
    + '<button class="pick" type="button" data-ask="mode" aria-label="Permission mode">'
    + f'{render_icon("shield")}<span id="mode"></span>{render_icon("down", style="sm")}</button>'
    + '<button class="pick" type="button" data-ask="model" aria-label="Model">'
    + f'{render_icon("chip", style="not-small")}<span id="model"></span>'
    + f"{render_icon('down', style='sm')}</button>"
    + '<span class="end"><button class="pick" type="button" id="meters" data-ask="budget" '
    + 'aria-label="Budget and context"></button>'
    + '<button class="icon" type="button" id="stop-button" aria-label="Stop the turn" hidden>'
    + f"{render_icon('stop')}</button>"
    + f'<button class="send" type="submit" aria-label="Send">{render_icon("up")}</button>'
    + "</span></div>"
)
_EXAMPLES = (
    '<ul class="examples" aria-label="Examples">'
    + "".join(
        f'<li><button class="btn" type="button" data-example>{text}</button></li>'
        for text in (
            "Explain how this project is laid out",
            "Run the tests and fix what fails",
            "Review the changes since the last commit",
        )
    )
    + "</ul>"
)
_CENTRE = (
    '<main class="centre" id="main" tabindex="-1"><header class="head"><div id="head"></div>'
    f'<div class="acts">{_ACTS}</div></header>'
    '<div class="scroll" id="scroll" tabindex="0" role="log" aria-label="Conversation">'
    '<div class="talk"><p class="earlier" id="earlier" hidden><button type="button" '
    'id="earlier-button">Show earlier</button></p><article class="turn" id="blocks"></article>'
    '<div id="questions"></div></div></div>'
    '<section class="pane" id="pane" aria-labelledby="pane-title" tabindex="-1" hidden></section>'
    '<div class="foot"><button class="btn" type="button" id="end-button" hidden>Go to the end'
    '</button><div class="toast" id="toast" role="alert" hidden></div>'
    '<div id="banner"></div><span id="access" hidden></span>'
    '<form class="foot-in" id="form">'
    '<div class="now" id="now" aria-live="polite"></div>'
    '<a class="pocket" href="#side" id="pocket" hidden></a>'
    '<ul class="queue" id="queue" aria-label="Messages that wait"></ul>'
    '<div class="comments" id="comments" hidden></div>'
    '<ul class="queue" id="outbox" aria-label="Messages that are not sent"></ul>'
    '<ul class="completions" id="completions" role="listbox" aria-label="Completions" hidden></ul>'
    '<div class="box"><ul class="attach" id="attach" aria-label="Attachments" hidden></ul>'
    '<textarea rows="1" id="prompt" aria-label="Message" role="combobox" aria-expanded="false" '
    'aria-autocomplete="list" aria-controls="completions" '
    'placeholder="Say what to do (@ file, / command, ! shell)"></textarea>'
    f"{_TOOLS}</div></form>{_EXAMPLES}</div></main>"
)
_SIDE = (
    '<aside class="side" id="side" aria-label="Todos, tasks and agents">'
    f'<div class="grip"><span>Todos, tasks and agents</span>{_CLOSE}</div>'
    '<div id="panels"></div></aside><a class="veil" href="#" aria-hidden="true" tabindex="-1"></a>'
)
_DIALOG = '<dialog id="dialog" aria-labelledby="dialog-title"></dialog>'
