"""The list of folders and sessions at the left of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from treadle.apps.pages.elements import escape_html, mark_current, render_icon
from treadle.lib.text.text import format_age, format_dollars, plural, shorten_home
from treadle.sessions.search import SearchHit
from treadle.sessions.summaries import STATE_LABELS

SHOWN_PER_FOLDER = 5
MAX_PLACES = 3  # that are shown of a session in which a text was found
# state -> (icon, colour); any other one is why the last turn ended
_STATES = {
    "waiting": ("wait", "warn"),
    "running": ("run", "accent"),
    "open": ("open", "dim"),
    "done": ("done", "ok"),
    "end_turn": ("done", "ok"),
    "empty": ("stopped", "dim"),
    "interrupted": ("stopped", "dim"),
    "aborted": ("stopped", "dim"),
}
_LABELS = {**STATE_LABELS, "waiting": "waits for you"}
_FAILED = ("fail", "error")
_CHEVRON = render_icon("chev", style="chev sm")


class SessionRow(msgspec.Struct, frozen=True):
    """A session in the list. `parent` is the id of the session that it is a fork of."""

    id: str
    title: str
    folder: str
    updated: float
    cost: float
    state: str
    parent: str = ""

    def with_state(self, state: str, cost: float) -> SessionRow:
        return msgspec.structs.replace(self, state=state, cost=max(cost, self.cost))


def render_session_list(rows: Sequence[SessionRow], current: str, now: float) -> str:
    """The folders, last used first, each with its sessions."""
    folders: dict[str, list[SessionRow]] = {}
    for row in rows:
        folders.setdefault(row.folder, []).append(row)
    return "".join(_render_folder(path, rows, current, now) for path, rows in folders.items())


def render_search_result(text: str, hits: Sequence[SearchHit], titles: Mapping[str, str]) -> str:
    """The sessions that have the text, each with the places."""
    if not hits:
        return f'<p class="found">No session has the text “{escape_html(text)}”.</p>'
    sessions: dict[str, list[str]] = {}
    for hit in hits:
        sessions.setdefault(hit.session, []).append(hit.text)
    found = {hit.session: hit.child or hit.session for hit in reversed(hits)}
    query = quote(text, safe="")
    rows = [
        f'<li><a class="session" href="/session/{escape_html(found[name])}?find={query}">'
        f"{render_icon('search', style='dim')}"
        f'<span class="t">{escape_html(titles.get(name, name))}</span>'
        f'<span class="m">{plural(len(places), "hit")}</span>'
        + "".join(f'<span class="m quote">{escape_html(one)}</span>' for one in places[:MAX_PLACES])
        + "</a></li>"
        for name, places in sessions.items()
    ]
    count = plural(len(sessions), "session")
    return f'<p class="found">{count} with “{escape_html(text)}”</p><ul>{"".join(rows)}</ul>'


def _render_folder(path: str, rows: Sequence[SessionRow], current: str, now: float) -> str:
    rows = _put_forks_below(rows)
    shown = [row for row in rows if row.id == current or row.state in ("waiting", "running")]
    shown = [row for row in rows if row in shown or rows.index(row) < SHOWN_PER_FOLDER]
    items = _render_rows(shown, current, now)
    hidden = [row for row in rows if row not in shown]
    if hidden:
        rest = _render_rows(hidden, current, now)
        items += f'<li><details class="rest"><summary class="more">{len(hidden)} more</summary>'
        items += f"<ul>{rest}</ul></details></li>"
    folder = Path(path)
    where = escape_html(shorten_home(folder.parent))
    key = escape_html(path)
    return (
        f'<details class="folder" open data-panel="{key}"><summary>{_CHEVRON}'
        f'<span>{escape_html(folder.name or path)}</span><span class="where">{where}</span>'
        f'<span class="n">{len(rows)}</span></summary><ul>{items}</ul></details>'
    )


def _put_forks_below(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Each fork below the session that it is a fork of, if that is in the list. A session stands
    where the newest of it and its forks does."""
    known = {row.id: row for row in rows}
    forks: dict[str, list[SessionRow]] = {}
    for row in rows:
        forks.setdefault(row.parent, []).append(row)
    ordered: dict[str, SessionRow] = {}
    for row in rows:
        origin, seen = row, {row.id}  # a damaged header may name a circle
        while origin.parent in known and origin.parent not in seen:
            origin = known[origin.parent]
            seen.add(origin.id)
        waiting = [origin]
        while waiting:
            one = waiting.pop()
            if one.id not in ordered:
                ordered[one.id] = one
                waiting += forks.get(one.id, [])[::-1]
    return list(ordered.values())


def _render_rows(rows: Sequence[SessionRow], current: str, now: float) -> str:
    ids = {row.id for row in rows}
    return "".join(_render_row(row, current, now, is_fork=row.parent in ids) for row in rows)


def _render_row(row: SessionRow, current: str, now: float, *, is_fork: bool) -> str:
    icon, colour = _STATES.get(row.state, _FAILED)
    label = _LABELS.get(row.state, row.state)
    mark = mark_current(row.id == current)
    detail = "" if colour == "ok" else f"<span>{escape_html(label)}</span>"
    cost = f'<span class="c">{format_dollars(row.cost)}</span>' if row.cost else ""
    style = "session fork" if is_fork else "session"
    age = format_age(max(0.0, now - row.updated))
    return (
        f'<li data-state="{escape_html(row.state)}"><a class="{style}" href="/session/{row.id}"'
        f"{mark}>{render_icon(icon, label=escape_html(label), style=colour)}"
        f'<span class="t">{escape_html(row.title)}</span>'
        f'<span class="m"><span>{age}</span>{detail}{cost}</span></a></li>'
    )
