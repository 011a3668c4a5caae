"""The review pane: the changed files, their hunks with what can be done about each.

The script of the page (static/review.js) shows hunks side by side, keeps the comments on lines and
which hunks are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.conversation.commands.change_review import (
    SCOPES,
    ChangeReview,
    ReviewFile,
    make_hunk_key,
)
from treadle.apps.conversation.diff_rows import DiffRow
from treadle.apps.pages.code import render_hunk
from treadle.apps.pages.elements import escape_html, mark_current, render_icon
from treadle.apps.web.render.pane import render_pane
from treadle.lib.text.sanitize import escape_invisible

MAX_ROWS = 6_000  # of all hunks; the files after that are named only
_SCOPE_NAMES = {"turn": "By turn", "session": "Session", "git": "Against git"}
_KINDS = {"added": "new", "removed": "deleted", "changed": "changed", "renamed": "renamed"}
_VIEWS = (
    '<div class="seg not-small" role="group" aria-label="Layout">'
    '<button type="button" data-layout="unified" aria-pressed="false">Unified</button>'
    '<button type="button" data-layout="split" aria-pressed="true">Side by side</button></div>'
)


def render_review(review: ChangeReview) -> str:
    scopes = "".join(
        f'<a href="#review-{one}"{mark_current(one == review.scope)}>{_SCOPE_NAMES[one]}</a>'
        for one in SCOPES
    )
    head = f'<nav class="seg" aria-label="Which changes">{scopes}</nav>'
    if not review.files:
        body = '<p class="empty">There are no changes.</p>'
        return render_pane("Review", head, body)
    counts = f'<p class="soft">{escape_html(review.counts)}</p>'
    rows = "".join(_render_name(at, file) for at, file in enumerate(review.files))
    names = (
        f'<div class="review-files">{_render_turns(review)}{counts}'
        f'<nav aria-label="Changed files"><ul>{rows}</ul></nav></div>'
    )
    left, sections = MAX_ROWS, list[str]()
    for at, file in enumerate(review.files):
        hunks = file.list_hunks()
        size = sum(map(len, hunks))
        sections.append(_render_file(at, file, hunks if size <= left else None))
        left -= min(size, left)
    turn = f' data-turn="{review.turn}"' if review.scope == "turn" else ""
    body = (
        f'<div class="review" data-scope="{review.scope}"{turn}>{names}'
        '<div class="hunks" data-scrolls tabindex="0" role="region" aria-label="Hunks">'
        f"{''.join(sections)}</div></div>"
    )
    return render_pane("Review", head + _VIEWS, body)


def _render_turns(review: ChangeReview) -> str:
    """The turns that changed files, to choose one of them."""
    if review.scope != "turn" or len(review.turns) < 2:
        return ""
    options = "".join(
        f'<option value="turn-{one.seq}"{" selected" * (one.seq == review.turn)}>'
        f"Turn {one.number}: {escape_html(one.text[:60])}</option>"
        for one in reversed(review.turns)
    )
    return f'<select data-turns aria-label="Turn">{options}</select>'


def _render_name(at: int, file: ReviewFile) -> str:
    folder, slash, name = escape_invisible(file.path).rpartition("/")
    return (
        f'<li><button type="button" data-file="{at}">{_render_kind(file)}'
        f'<span class="path">{escape_html(folder + slash)}<b>{escape_html(name)}</b></span>'
        f'<span class="num">{_render_counts(file)}</span>'
        f'<span class="soft">{_KINDS[file.kind]}<span class="kept" data-kept-of="{at}"></span>'
        "</span></button></li>"
    )


def _render_kind(file: ReviewFile) -> str:
    return f'<span class="kind is-{file.kind}" aria-hidden="true">{file.sign}</span>'


def _render_counts(file: ReviewFile) -> str:
    added, _, removed = file.counts.partition(" ")
    if not file.diff:
        return f'<span class="dim">{file.counts}</span>'
    return f'<span class="ok">{added}</span> <span class="error">{removed}</span>'


def _render_file(at: int, file: ReviewFile, hunks: Sequence[Sequence[DiffRow]] | None) -> str:
    path = escape_html(escape_invisible(file.path))
    title = escape_html(escape_invisible(file.title))
    head = (
        f"<header>{_render_kind(file)}<h3><code>{title}</code></h3>"
        f'<span class="num">{_render_counts(file)}</span>'
        f'<span class="soft">{_KINDS[file.kind]}</span></header>'
    )
    if hunks is None:
        body = '<p class="empty">The diff is too long for this page.</p>'
    elif not hunks:
        body = '<p class="empty">No text has changed.</p>'
    else:
        body = "".join(
            _render_hunk(number, len(hunks), rows, file) for number, rows in enumerate(hunks)
        )
    return (
        f'<section class="file" id="file-{at}" data-path="{path}" tabindex="-1">'
        f"{head}{body}</section>"
    )


def _render_hunk(number: int, count: int, rows: Sequence[DiffRow], file: ReviewFile) -> str:
    lines = [row.new or row.old for row in rows]
    changed = [line for line, row in zip(lines, rows, strict=True) if row.kind != "same"] or lines
    place = f"Line {changed[0]}"
    if changed[-1] > changed[0]:
        place = f"Lines {changed[0]} to {changed[-1]}"
    label = f"{file.path}, hunk {number + 1} of {count}"
    name = f'<span class="hidden">: {escape_html(label)}</span>'
    return (
        f'<section class="hunk-card" data-hunk="{make_hunk_key(file.path, rows)}" '
        f'data-number="{number}"><header><button type="button" data-fold aria-expanded="true">'
        f"{render_icon('chev', style='chev sm')}<span>{place}</span>{name}</button>"
        '<span class="tag ok" data-kept-tag hidden>kept</span><div class="acts">'
        f'<button class="btn" type="button" data-keep>{render_icon("tick", style="sm")}Keep{name}'
        f'</button><button class="btn no" type="button" data-drop>{render_icon("undo", style="sm")}'
        f"Revert{name}</button></div></header>{render_hunk(rows, file.path, label)}</section>"
    )
