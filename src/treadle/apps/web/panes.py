"""The panes of the work page, which take the place of the conversation: the review of changes,
settings, permissions, context, MCP servers, memory.

A tab asks for one by its name; what it shows is made by the modules of render/.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from treadle.apps.assembly.system_prompt import load_memory
from treadle.apps.conversation.commands.change_review import (
    LAST_TURN,
    SCOPES,
    ChangeReview,
    ReviewFile,
    build_review,
    drop_hunk,
    find_review,
    make_hunk_key,
)
from treadle.apps.conversation.commands.information import measure_session
from treadle.apps.conversation.diff_rows import DiffRow
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.pages.code import render_hunk
from treadle.apps.pages.elements import escape_html, mark_current, render_icon
from treadle.apps.settings.folder_rules import make_read_check
from treadle.apps.settings.rule_changes import list_scope_files
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import DropHunk, PaneName, ShowPane
from treadle.apps.web.render import settings_panes
from treadle.apps.web.render.pane import render_pane
from treadle.core.errors import ConfigError
from treadle.lib.text.sanitize import escape_invisible

RULE_USE_SECONDS = 1.5  # for reading past calls


async def show_pane(session: LiveSession, name: PaneName, part: str, note: str = "") -> ShowPane:
    opened = session.opened
    match name:
        case "review":
            return await _show_review(opened, part, note)
        case "settings":
            html = await asyncio.to_thread(_render_settings, opened)
        case "permissions":
            html = await asyncio.to_thread(_render_permissions, opened)
        case "context":
            html = settings_panes.render_context(measure_session(opened))
        case "servers":
            tokens = dict(measure_session(opened).parts)
            html = settings_panes.render_servers(opened.servers.list_servers(), tokens)
        case _:
            html = await asyncio.to_thread(_render_memory, opened)
    return ShowPane(name, part, html, note)


async def _show_review(session: HostedSession, part: str, note: str) -> ShowPane:
    scope_name, _, turn = part.partition("-")
    scope = next((one for one in SCOPES if one == scope_name), None)
    try:
        if scope is None:
            review = await find_review(session)
        else:
            number = int(turn) if turn.isdecimal() else LAST_TURN
            review = await build_review(session, scope, number)
    except ConfigError as error:  # there is no repository
        review, note = ChangeReview(scope or "session"), note or str(error)
    return ShowPane("review", part or review.scope, render_review(review), note)


async def drop_review_hunk(session: LiveSession, request: DropHunk) -> ShowPane:
    scope = request.scope
    review = await build_review(session.opened, scope, request.turn)
    file, number = review.find_hunk(request.key, request.number)
    note = await drop_hunk(session.opened, file, number)
    session.refresh_changed_files()
    part = f"{scope}-{request.turn}" if request.turn != LAST_TURN else scope
    return await show_pane(session, "review", part, note)


# What reads files is made in a thread: other tabs continue.


def _render_settings(session: HostedSession) -> str:
    settings = session.settings
    return settings_panes.render_settings(settings.list_settings(), settings.list_written())


def _render_permissions(session: HostedSession) -> str:
    from treadle.apps.console.permission_history import find_rule_uses

    folder, loaded = session.folder, session.permissions.load_rules()
    rules = loaded.get_rules()
    uses = find_rule_uses(rules, folder, RULE_USE_SECONDS)
    own = {str(file) for file in list_scope_files(folder).values()}
    notes = [*loaded.notes, *loaded.warnings]
    mode = session.permissions.mode
    return settings_panes.render_permissions(mode, rules, uses, own, notes, time.time())


def _render_memory(session: HostedSession) -> str:
    folder, loaded = session.folder, session.permissions.load_rules()
    memory = load_memory(
        folder,
        make_read_check(folder, loaded.get_rules),
        trusted=session.trust.is_given,
        more=session.load_settings().cursor_gemini_files,
    )
    return settings_panes.render_memory(memory)


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
