"""Every slash command once: name, what it does, arguments, when it is available, how it runs.

Hosts call `run_command` and show the answer (answers.py). A command that a host does not have is in
EXCEPTIONS with its reason. Commands of the user are expansion.py, prompts of servers
mcp_prompts.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from treadle.apps.conversation.block_text import describe_tasks, format_table
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands import (
    agents,
    changes,
    detach,
    dry_run,
    information,
    restore,
    review,
    sessions,
    trust,
)
from treadle.apps.conversation.commands.answers import (
    CommandAnswer,
    Question,
    ScreenChange,
    catch_errors,
)
from treadle.apps.conversation.commands.expansion import describe_unknown_command, expand_custom
from treadle.apps.conversation.session.callbacks import HostKind
from treadle.apps.conversation.session.hosted_session import HostedSession


class SlashCommand(msgspec.Struct, frozen=True):
    """`arguments` names what may follow. `while_busy`: allowed while a turn runs."""

    name: str
    summary: str
    run: Callable[[HostedSession, str], Awaitable[CommandAnswer]]
    arguments: str = ""
    while_busy: bool = True


async def run_command(session: HostedSession, line: str) -> CommandAnswer:
    """Run `/name arguments`. Errors are answers."""
    name, _, arguments = line.removeprefix("/").partition(" ")
    running = _run(session, ALIASES.get(name, name), arguments.strip(), name)
    return await catch_errors(running, f"/{name}")


async def _run(session: HostedSession, name: str, arguments: str, typed: str) -> CommandAnswer:
    command = COMMANDS_BY_NAME.get(name)
    if command is None:
        message = await expand_custom(session, typed, arguments)
        message = message or await session.servers.expand_prompt(typed, arguments)
        if message is not None:
            return CommandAnswer(message=message)
        names = [one for one, _, _ in list_commands(session)]
        return CommandAnswer(describe_unknown_command(typed, names), "warning")
    reason = EXCEPTIONS.get(session.callbacks.kind, {}).get(name)
    if reason is not None:
        return CommandAnswer(f"/{name} is not available here: {reason}", "warning")
    if arguments and not command.arguments:
        return CommandAnswer(f"/{typed} takes no arguments: {command.summary}", "warning")
    if not command.while_busy:
        session.require_idle(f"/{typed}")
    return await command.run(session, arguments)


def list_commands(session: HostedSession) -> list[tuple[str, str, str]]:
    """Name, summary and arguments of every command of this host, with those of the user and the
    prompts of the servers."""
    missing = EXCEPTIONS.get(session.callbacks.kind, {})
    own = [(one.name, one.summary, one.arguments) for one in COMMANDS if one.name not in missing]
    custom = [(one.name, one.summary, "arguments") for one in session.custom_commands]
    return [*own, *custom, *session.servers.list_prompts()]


def list_summaries(session: HostedSession) -> list[tuple[str, str]]:
    return [(name, summary) for name, summary, _ in list_commands(session)]


async def _run_help(session: HostedSession, arguments: str) -> CommandAnswer:
    rows = [(f"/{name}", summary) for name, summary in list_summaries(session)]
    return CommandAnswer(format_table(rows), is_table=True, screen=ScreenChange("help", rows=rows))


async def _run_quit(session: HostedSession, arguments: str) -> CommandAnswer:
    async def answer(value: str) -> CommandAnswer:
        return CommandAnswer(screen=ScreenChange("quit") if value == "quit" else None)

    tasks = session.require_conversation().view.tasks
    if not tasks:
        return await answer("quit")
    options = [ChoiceOption("quit", "Quit", key="q"), ChoiceOption("stay", "Stay", key="s")]
    title = f"Quit, and end {describe_tasks(tasks)}?"
    return CommandAnswer(question=Question(title, options, answer, current="stay"))


async def _run_tour(session: HostedSession, arguments: str) -> CommandAnswer:
    note = "run `treadle tour` in a terminal: it needs the full screen"
    return CommandAnswer(note, screen=ScreenChange("tour"))


async def _run_vim(session: HostedSession, arguments: str) -> CommandAnswer:
    return CommandAnswer(screen=ScreenChange("vim"))


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "list commands and keys", _run_help),
    SlashCommand("model", "show or change the model", changes.run_model, "model", False),
    SlashCommand("mode", "show or change the permission mode", changes.run_mode, "mode"),
    SlashCommand(
        "permissions",
        "list the permission rules; add or remove one",
        changes.run_permissions,
        "add RULE or remove RULE",
    ),
    SlashCommand("trust", "trust this folder and its programs", trust.run_trust, while_busy=False),
    SlashCommand(
        "compact", "shorten the history for the model", sessions.run_compact, "what to keep", False
    ),
    SlashCommand("uncompact", "undo all compactions", sessions.run_uncompact, while_busy=False),
    SlashCommand("cost", "show tokens and cost of this session", information.run_cost),
    SlashCommand(
        "forecast", "what a message would cost, and take", information.run_forecast, "message"
    ),
    SlashCommand("context", "show what fills the context window", information.run_context),
    SlashCommand("sessions", "list sessions and resume one", sessions.run_resume, "words", False),
    SlashCommand("resume", "resume another session", sessions.run_resume, "id or words", False),
    SlashCommand("rename", "give this session a name", sessions.run_rename, "name"),
    SlashCommand("fork", "continue in a copy of this session", sessions.run_fork, "session", False),
    SlashCommand("rewind", "rewind to before a message", restore.run_rewind, while_busy=False),
    SlashCommand(
        "undo",
        "undo the file changes of the last turn; PATH: also this file, which you changed",
        restore.run_undo,
        "also this file, which you changed",
        False,
    ),
    SlashCommand(
        "redo",
        "redo what /undo undid; PATH: also this file, which you changed",
        restore.run_redo,
        "also this file, which you changed",
        False,
    ),
    SlashCommand(
        "effects",
        "what the last turn did beyond files; undo: take it back",
        restore.run_effects,
        "undo",
        False,
    ),
    SlashCommand(
        "dry-run",
        "record what the agent would change, instead of doing it",
        dry_run.run_dry_run,
        "on or off",
        False,
    ),
    SlashCommand(
        "apply",
        "carry out what a dry run recorded: all, some, or edited",
        dry_run.run_apply,
        "all, 1,3 or edit 1 JSON",
        False,
    ),
    SlashCommand("diff", "show the changes: turn, session or git", information.run_diff, "which"),
    SlashCommand("todo", "show the todo list", information.run_todo),
    SlashCommand("plan", "show the plan that you accepted", information.run_plan),
    SlashCommand(
        "tasks", "list background tasks; /tasks ID stops one", information.run_tasks, "task to stop"
    ),
    SlashCommand("queue", "edit, move or remove messages that wait", sessions.run_queue),
    SlashCommand(
        "goal",
        "continue every turn until a command succeeds",
        changes.run_goal,
        "command, or off",
        False,
    ),
    SlashCommand(
        "budget",
        "show or change the limits of cost, tokens and time",
        changes.run_budget,
        "USD, tokens N or time 5m",
    ),
    SlashCommand("remember", "add a line to AGENTS.md or CLAUDE.md", changes.run_remember, "text"),
    SlashCommand(
        "memory",
        "list what the agent keeps and proposes; accept, edit, forget a line",
        changes.run_memory,
        "accept N, edit N TEXT, forget N, add TEXT",
    ),
    SlashCommand(
        "init", "let the agent write AGENTS.md", review.run_init, "what it should know", False
    ),
    SlashCommand(
        "btw",
        "ask a side question that leaves no trace in the session",
        information.run_btw,
        "question",
    ),
    SlashCommand(
        "review",
        "let an agent review the uncommitted changes, or commits: RANGE",
        review.run_review,
        "commits, or what to review",
    ),
    SlashCommand(
        "agents",
        "watch, steer or stop agents at work; list all",
        agents.run_agents,
        "show, say or stop, and a number",
    ),
    SlashCommand("skills", "list the skills that the agent can load", information.run_skills),
    SlashCommand(
        "mcp",
        "show the MCP servers; /mcp NAME shows the log of one",
        information.run_mcp,
        "server",
    ),
    SlashCommand(
        "export", "write the session to a file: .md, .html, .json", sessions.run_export, "file"
    ),
    SlashCommand(
        "config",
        "list all settings and their origins; NAME VALUE changes one",
        changes.run_config,
        "setting and value",
    ),
    SlashCommand("doctor", "check the installation", information.run_doctor),
    SlashCommand(
        "theme",
        "change the colours: dark, light, with high contrast, or none",
        changes.run_theme,
        "theme",
    ),
    SlashCommand(
        "output-style",
        "choose how the agent speaks, by a file of yours",
        changes.run_output_style,
        "style",
        False,
    ),
    SlashCommand(
        "statusline",
        "let a command write the status line; off: not any more",
        changes.change_status_line,
        "command, or off",
    ),
    SlashCommand("tour", "learn the terminal in two minutes", _run_tour, while_busy=False),
    SlashCommand("vim", "turn the vim keys of the prompt on or off", _run_vim),
    SlashCommand("clear", "start a new session", sessions.run_clear, "folder", False),
    SlashCommand("detach", "let the session work in the background, and quit", detach.run_detach),
    SlashCommand("quit", "quit", _run_quit),
)
COMMANDS_BY_NAME = {command.name: command for command in COMMANDS}

# Names of other programs, which the help does not list.
ALIASES = {
    "exit": "quit",
    "new": "clear",
    "settings": "config",
    "usage": "cost",
    "todos": "todo",
    "bashes": "tasks",
    "ps": "tasks",
    "approvals": "mode",
    "side": "btw",
}

_NO_STATUS_LINE = "only the terminal has a status line"
# What a host does not have, and why.
EXCEPTIONS: Mapping[HostKind, Mapping[str, str]] = {
    "plain": {"statusline": _NO_STATUS_LINE, "vim": "plain mode reads whole lines"},
    "page": {
        "statusline": _NO_STATUS_LINE,
        "theme": "the page has a button for it",
        "tour": "it teaches the keys of the terminal",
        "detach": "the server works on when the tab is closed",
        "vim": "the prompt is a field of the browser",
        "quit": "close the tab; the server ends with ctrl+c",
    },
    "editor": {
        "sessions": "the editor has the list of sessions",
        "resume": "the editor opens sessions",
        "fork": "the editor opens sessions",
        "clear": "the editor opens sessions",
        "rewind": "the editor shows the messages and cannot take them back",
        "queue": "the editor sends one prompt at a time",
        "statusline": _NO_STATUS_LINE,
        "theme": "the colours are those of the editor",
        "tour": "it teaches the keys of the terminal",
        "detach": "the editor ends the agent",
        "vim": "the prompt is the editor's",
        "quit": "the editor ends the agent",
    },
}
