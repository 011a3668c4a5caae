"""The slash commands of the page: a table, and a function for each.

The terminal has its own table (apps/tui/commands.py); what both do is in apps/conversation.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import msgspec

from treadle.apps.conversation import limits
from treadle.apps.conversation.block_text import format_table
from treadle.apps.conversation.change_commands import change_rules, change_setting
from treadle.apps.conversation.context_usage import format_context_usage
from treadle.apps.conversation.custom_commands import (
    describe_unknown_command,
    expand_custom_command,
)
from treadle.apps.conversation.init_prompt import build_init
from treadle.apps.conversation.review import build_review
from treadle.apps.conversation.side_question import ask_aside
from treadle.apps.pages.session_files import write_session
from treadle.apps.web import dialogs
from treadle.apps.web.hub import Hub
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import Download, GoTo, ShowDialog, ShowMessage, TabReply
from treadle.apps.web.render.dialogs import render_help_dialog

PageCommandFunction = Callable[[Hub, LiveSession, str], Awaitable[TabReply | None]]


class PageCommand(msgspec.Struct, frozen=True):
    """`while_busy`: allowed while a turn runs."""

    name: str
    summary: str
    run: PageCommandFunction
    while_busy: bool = True


def list_summaries(session: LiveSession) -> list[tuple[str, str]]:
    """Name and summary of every command, with the custom ones."""
    own = [(command.name, command.summary) for command in COMMANDS]
    return own + [(custom.name, custom.summary) for custom in session.custom_commands]


async def run_command(hub: Hub, session: LiveSession, line: str) -> TabReply | None:
    """Run `/name arguments`."""
    name, _, arguments = line[1:].partition(" ")
    arguments = arguments.strip()
    command = next((one for one in COMMANDS if one.name == name), None)
    if command is not None:
        if not command.while_busy:
            session.require_idle()
        return await command.run(hub, session, arguments)
    message = await expand_custom_command(session.host, session.custom_commands, name, arguments)
    if message is None:
        names = [known for known, _ in list_summaries(session)]
        return ShowMessage(describe_unknown_command(name, names))
    session.conversation.submit(message)
    return None


async def _help(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    rows = [(f"/{name}", summary) for name, summary in list_summaries(session)]
    return ShowDialog(render_help_dialog(rows))


async def _compact(hub: Hub, session: LiveSession, arguments: str) -> TabReply | None:
    if await session.conversation.compact(arguments):
        return None  # the compaction itself tells what it did
    return ShowMessage("nothing was compacted: the history is short already")


async def _uncompact(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    when = "again" if session.conversation.uncompact() else "already"
    return ShowMessage(f"the model sees the whole history {when}")


async def _undo(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    return await dialogs.open_dialog("undo", session, include=_list_named(arguments))


async def _redo(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    return await dialogs.open_dialog("redo", session, include=_list_named(arguments))


def _list_named(path: str) -> list[str]:
    return [os.path.normpath(path)] if path else []  # `./a` is `a`


async def _rewind(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    return await dialogs.open_dialog("rewind", session)


async def _fork(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    return GoTo((await hub.fork(session.session_id)).session_id)


async def _new(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    folder = arguments or str(session.host.folder)
    return GoTo((await hub.create(folder)).session_id)


async def _model(hub: Hub, session: LiveSession, arguments: str) -> TabReply | None:
    if not arguments:
        return await dialogs.open_dialog("model", session)
    await session.reopen_idle(lambda: session.host.change_model(arguments))
    return None


async def _mode(hub: Hub, session: LiveSession, arguments: str) -> TabReply | None:
    if not arguments:
        return await dialogs.open_dialog("mode", session)
    session.host.change_mode(arguments)
    session.refresh_facts()
    return None


async def _budget(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    if not arguments:
        return await dialogs.open_dialog("budget", session)
    setting, value = limits.parse_budget(arguments)
    await session.reopen_idle(lambda: session.host.change_limit(setting, value))
    return ShowMessage(limits.format_limits(session.host.list_limits()))


async def _context(hub: Hub, session: LiveSession, arguments: str) -> None:
    view, host = session.conversation.view, session.host
    items, window = host.driver.transcript, host.model.window
    session.show_note(format_context_usage(items, view.context_tokens, window))


async def _goal(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    host = session.host
    if arguments:
        goal = "" if arguments == "off" else arguments
        await session.reopen_idle(lambda: host.change_goal(goal))
    if host.goal:
        return ShowMessage(f"every turn continues until this succeeds: {host.goal}")
    return ShowMessage("there is no goal; /goal COMMAND sets one, /goal off removes it")


async def _remember(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    if not arguments:
        return ShowMessage("usage: /remember TEXT")
    return ShowMessage(f"added to {await session.host.remember(arguments)}")


async def _export(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    session_dir = await session.host.flush()
    if not arguments:
        return Download(f"/export/{session.session_id}")
    return ShowMessage(f"exported to {write_session(session_dir, session.host.folder, arguments)}")


async def _config(hub: Hub, session: LiveSession, arguments: str) -> TabReply | None:
    if not arguments:
        rows = [
            (f"{name} = {value}", origin) for name, value, origin in session.host.list_settings()
        ]
        session.show_note(format_table(rows))
        return None
    if len(arguments.split()) == 1:
        return ShowMessage(session.host.describe_setting(arguments))
    return ShowMessage(await change_setting(session.host, arguments, session.reopen_idle))


async def _permissions(hub: Hub, session: LiveSession, arguments: str) -> TabReply | None:
    if arguments:
        session.require_idle()
        return ShowMessage(await change_rules(session.host, arguments, session.reopen_idle))
    rules = session.host.list_permissions()
    session.show_note(format_table(rules) if rules else "there are no rules")
    return None


async def _btw(hub: Hub, session: LiveSession, arguments: str) -> TabReply:
    answer = await ask_aside(session.conversation, arguments)
    return ShowMessage(f"{answer.text}\n\n{answer.note}")


async def _review(hub: Hub, session: LiveSession, arguments: str) -> None:
    session.conversation.submit(await build_review(session.host, arguments))


async def _init(hub: Hub, session: LiveSession, arguments: str) -> None:
    session.conversation.submit(build_init(arguments))


COMMANDS: tuple[PageCommand, ...] = (
    PageCommand("help", "list commands and keys", _help),
    PageCommand("new", "start a new session; FOLDER: there", _new),
    PageCommand("fork", "continue in a copy of this session", _fork),
    PageCommand("compact", "shorten the history for the model", _compact, while_busy=False),
    PageCommand("uncompact", "undo all compactions", _uncompact, while_busy=False),
    PageCommand(
        "undo",
        "undo the file changes of the last turn; PATH: also this file, which you changed",
        _undo,
        while_busy=False,
    ),
    PageCommand(
        "redo",
        "redo what /undo undid; PATH: also this file, which you changed",
        _redo,
        while_busy=False,
    ),
    PageCommand("rewind", "rewind to before a message", _rewind, while_busy=False),
    PageCommand("model", "show or change the model", _model, while_busy=False),
    PageCommand("mode", "show or change the permission mode", _mode),
    PageCommand("budget", "show or change the limits of cost, tokens and time", _budget),
    PageCommand("context", "show what fills the context window", _context),
    PageCommand("goal", "continue every turn until a command succeeds", _goal, while_busy=False),
    PageCommand("config", "list all settings; NAME VALUE changes one", _config),
    PageCommand("permissions", "list the permission rules; add or remove one", _permissions),
    PageCommand("btw", "ask a side question that leaves no trace in the session", _btw),
    PageCommand(
        "review",
        "let an agent review the uncommitted changes, or commits: RANGE",
        _review,
        while_busy=False,
    ),
    PageCommand("init", "let the agent write AGENTS.md", _init, while_busy=False),
    PageCommand("remember", "add a line to AGENTS.md or CLAUDE.md", _remember),
    PageCommand("export", "download the session; NAME.md, .html, .json: write it there", _export),
)
