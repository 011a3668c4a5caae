"""The panes of the work page, which take the place of the conversation: the review of changes,
settings, permissions, context, MCP servers, memory.

A tab asks for one by its name; what it shows is made by the modules of render/.
"""

from __future__ import annotations

import asyncio
import time

from treadle.apps.assembly.system_prompt import load_memory
from treadle.apps.conversation.commands.change_review import (
    LAST_TURN,
    SCOPES,
    ChangeReview,
    build_review,
    drop_hunk,
    find_review,
)
from treadle.apps.conversation.commands.information import measure_session
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings.folder_rules import load_rules, make_read_check
from treadle.apps.settings.rule_changes import list_scope_files
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import DropHunk, PaneName, ShowPane
from treadle.apps.web.render import settings_panes
from treadle.apps.web.render.review import render_review
from treadle.core.errors import ConfigError

RULE_USE_SECONDS = 1.5  # for reading past calls


async def show_pane(session: LiveSession, name: PaneName, part: str, note: str = "") -> ShowPane:
    opened = session.opened
    match name:
        case "review":
            return await _show_review(opened, part, note)
        case "settings":
            html = settings_panes.render_settings(
                opened.settings.list_settings(), opened.settings.list_written()
            )
        case "permissions":
            html = await _render_permissions(opened)
        case "context":
            html = settings_panes.render_context(measure_session(opened))
        case "servers":
            tokens = dict(measure_session(opened).parts)
            html = settings_panes.render_servers(opened.servers.list_servers(), tokens)
        case _:
            html = await _render_memory(opened)
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


async def _render_permissions(session: HostedSession) -> str:
    from treadle.apps.console.permission_history import find_rule_uses

    options = session.options
    loaded = await asyncio.to_thread(load_rules, session.folder, options.allow, options.deny)
    rules = loaded.get_rules()
    uses = await asyncio.to_thread(find_rule_uses, rules, session.folder, RULE_USE_SECONDS)
    own = {str(file) for file in list_scope_files(session.folder).values()}
    notes = [*loaded.notes, *loaded.warnings]
    mode = session.permissions.mode
    return settings_panes.render_permissions(mode, rules, uses, own, notes, time.time())


async def _render_memory(session: HostedSession) -> str:
    options, more = session.options, session.load_settings().cursor_gemini_files
    loaded = await asyncio.to_thread(load_rules, session.folder, options.allow, options.deny)
    check_read = make_read_check(session.folder, loaded.get_rules)
    memory = await asyncio.to_thread(
        load_memory, session.folder, check_read, trusted=session.trust.is_given, more=more
    )
    return settings_panes.render_memory(memory)
