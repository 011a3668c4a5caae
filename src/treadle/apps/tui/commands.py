"""The slash commands: a table, and a function for each.

A command works with any Frontend. One that needs an ability the host does not have is not listed.
Commands of the user are in custom_commands.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import msgspec

from treadle.apps.conversation import context_usage, limits, trust_dialog
from treadle.apps.conversation.block_text import TODO_SIGNS
from treadle.apps.conversation.block_text import format_table as _format_table
from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.custom_commands import (
    describe_unknown_command,
    expand_custom_command,
)
from treadle.apps.conversation.host import Ability, Host
from treadle.apps.conversation.modes import MODE_DESCRIPTIONS
from treadle.apps.conversation.plans import find_accepted_plan
from treadle.apps.conversation.state.blocks import strip_brackets
from treadle.apps.tui import session_commands
from treadle.apps.tui.agent_commands import run_agents
from treadle.apps.tui.frontend import Frontend
from treadle.apps.tui.options import THEME_NAMES
from treadle.apps.tui.session_picker import list_session_options, pick_session
from treadle.core.errors import SessionNotFound, TreadleError
from treadle.lib.text.text import format_cost

GOAL_OFF = "off"
_NO_GOAL = """\
no goal is set. A goal is a command that must succeed before a turn ends:
/goal pytest -q   sets one: the agent works until the tests pass
/goal off         removes it"""

CommandFunction = Callable[[Frontend, str], Awaitable[None]]


class SlashCommand(msgspec.Struct, frozen=True):
    """`while_busy`: allowed while a turn runs."""

    name: str
    summary: str
    run: CommandFunction
    needs: Ability | None = None
    while_busy: bool = True


def list_commands(host: Host) -> list[SlashCommand]:
    return [one for one in COMMANDS if one.needs is None or one.needs in host.abilities]


def list_summaries(ui: Frontend) -> list[tuple[str, str]]:
    """Name and summary of every command, with the custom ones."""
    builtin = [(command.name, command.summary) for command in list_commands(ui.host)]
    custom = [(command.name, command.summary) for command in ui.custom_commands]
    return [*builtin, *custom, *ui.host.list_prompts()]


async def run_command(ui: Frontend, line: str) -> None:
    """Run `/name arguments`. Errors are shown, not raised."""
    name, _, arguments = line[1:].partition(" ")
    arguments = arguments.strip()
    known = {command.name: command for command in list_commands(ui.host)}
    command = known.get(ALIASES.get(name, name))
    if command is None:
        await _run_custom_command(ui, name, arguments)
    elif ui.conversation.view.is_busy and not command.while_busy:
        busy = f"/{name} is not available while a turn runs; interrupt the turn first"
        ui.show_message(busy, "warning")
    else:
        try:
            async with ui.dialog_lock.sequence():
                await command.run(ui, arguments)
        except (TreadleError, OSError, ValueError) as error:
            ui.show_message(str(error), "error")
        except Exception as error:  # noqa: BLE001 - a fault in a command does not end the session
            ui.show_message(f"/{name} failed: {type(error).__name__}: {error}", "error")


async def _run_custom_command(ui: Frontend, name: str, arguments: str) -> None:
    """A command of a file, or a prompt of an MCP server."""
    try:
        message = await expand_custom_command(ui.host, ui.custom_commands, name, arguments)
        message = message or await ui.host.expand_prompt(name, arguments)
    except TreadleError as error:
        ui.show_message(str(error), "error")
        return
    if message is not None:
        ui.conversation.submit(message)
    else:
        names = [one for one, _ in list_summaries(ui)]
        ui.show_message(describe_unknown_command(name, names), "warning")


# ------------------------------------------------------------------ session


async def _help(ui: Frontend, arguments: str) -> None:
    rows = [(f"/{name}", summary) for name, summary in list_summaries(ui)]
    ui.show_message(f"{_format_table(rows)}\n\n{_format_table(ui.key_descriptions)}")


async def _clear(ui: Frontend, arguments: str) -> None:
    await ui.switch_session(lambda: ui.host.open(ui.callbacks))


async def _resume(ui: Frontend, arguments: str) -> None:
    session_id = arguments
    if not session_id:
        options = list_session_options(ui.host, without=ui.host.driver.session_id)
        if not options:
            ui.show_message("there is no other session in this folder")
            return
        session_id = await pick_session(ui, options, "Resume a session") or ""
    if session_id:
        await ui.switch_session(lambda: ui.host.open(ui.callbacks, resume=session_id))


async def _fork(ui: Frontend, arguments: str) -> None:
    session = arguments or ui.host.driver.session_id
    if not arguments and not len(ui.host.driver.history):
        ui.show_message("this session is empty: there is nothing to fork", "warning")
    elif await ui.switch_session(lambda: ui.host.open(ui.callbacks, resume=session, fork=True)):
        ui.show_message(f"this session is a fork of {session}, which stays unchanged")


async def _rewind(ui: Frontend, arguments: str) -> None:
    await _unless_new(ui, "rewind", ui.rewind())


async def _undo(ui: Frontend, arguments: str) -> None:
    await _unless_new(ui, "undo", ui.undo(arguments.strip()))


async def _redo(ui: Frontend, arguments: str) -> None:
    await _unless_new(ui, "redo", ui.redo(arguments.strip()))


async def _unless_new(ui: Frontend, action: str, work: Awaitable[None]) -> None:
    try:
        await work
    except SessionNotFound:  # it is on disk from its first message on
        ui.show_message(f"nothing to {action} yet: this session is new")


async def _compact(ui: Frontend, arguments: str) -> None:
    if not await ui.conversation.compact(arguments):  # the compaction itself tells what it did
        ui.show_message("nothing was compacted: the history is short already")


async def _uncompact(ui: Frontend, arguments: str) -> None:
    when = "again" if ui.conversation.uncompact() else "already"
    ui.show_message(f"the model sees the whole history {when}")


async def _export(ui: Frontend, arguments: str) -> None:
    from treadle.apps.pages.session_files import write_session

    session_dir = await ui.host.flush()
    ui.show_message(f"exported to {write_session(session_dir, ui.host.folder, arguments)}")


async def _queue(ui: Frontend, arguments: str) -> None:
    await ui.edit_queue()


async def _vim(ui: Frontend, arguments: str) -> None:
    ui.show_message(ui.toggle_vim_keys(), "faint")


async def _quit(ui: Frontend, arguments: str) -> None:
    ui.quit()


# ------------------------------------------------------------------ settings


async def _model(ui: Frontend, arguments: str) -> None:
    name = arguments
    if not name:
        current = ui.host.model.name
        options = [ChoiceOption(name, name, card) for name, card in ui.host.list_models()]
        title = f"Model (now {current})"
        name = await ui.choose(title, options, filterable=True, current=current) or ""
    if name:
        await ui.reopen_session(lambda: ui.host.change_model(name))


async def _mode(ui: Frontend, arguments: str) -> None:
    mode = arguments
    if not mode:
        current = ui.host.mode
        texts = {mode: MODE_DESCRIPTIONS.get(mode, "") for mode in ui.host.modes}
        options = [ChoiceOption(mode, mode, text) for mode, text in texts.items()]
        title = f"Permission mode (now {current})"
        mode = await ui.choose(title, options, current=current) or ""
    if mode:
        ui.host.change_mode(mode)
        ui.show_mode()


async def _trust(ui: Frontend, arguments: str) -> None:
    was_trusted = ui.host.is_trusted
    if await trust_dialog.ask_again(ui.host, ui.choose):
        if await ui.reopen_session(ui.host.reopen):
            approved = "the programs are approved and run now"
            trusted = "this folder is trusted: its own files take effect now"
            ui.show_message(approved if was_trusted else trusted)
    elif was_trusted:
        programs = ui.host.list_unapproved_programs()
        unapproved = ["not approved:", *programs] if programs else []
        ui.show_message("\n".join(["this folder is trusted", *unapproved]))


async def _goal(ui: Frontend, arguments: str) -> None:
    goal = ui.host.goal
    if not arguments:
        usage = f"/goal COMMAND changes it, /goal {GOAL_OFF} removes it"
        current = f"goal: every turn continues until this succeeds: {goal}\n{usage}"
        ui.show_message(current if goal else _NO_GOAL)
        return
    goal = "" if arguments in (GOAL_OFF, "clear", "none") else arguments
    if await ui.reopen_session(lambda: ui.host.change_goal(goal), has_notes=False):
        done = f"goal set: every turn continues until this succeeds: {goal}"
        ui.show_message(done if goal else "there is no goal any more")


async def _budget(ui: Frontend, arguments: str) -> None:
    if not arguments:
        _show_limits(ui)
        return
    setting, value = limits.parse_budget(arguments)
    if await ui.reopen_session(lambda: ui.host.change_limit(setting, value), has_notes=False):
        _show_limits(ui)


def _show_limits(ui: Frontend) -> None:
    ui.show_message(limits.format_limits(ui.host.list_limits()))


async def _doctor(ui: Frontend, arguments: str) -> None:
    # The checks are part of apps/cli, which apps/tui must not import; so it runs as a program.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "treadle", "doctor"),
        cwd=ui.host.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    lines = output.decode(errors="replace").rstrip().splitlines()
    # Its finding about the terminal is about our pipe.
    ui.show_message("\n".join(line for line in lines if line.split()[1:2] != ["terminal"]))


async def _theme(ui: Frontend, arguments: str) -> None:
    name = arguments
    if not name:
        name = await ui.choose("Theme", [ChoiceOption(name, name) for name in THEME_NAMES]) or ""
    if name and name not in THEME_NAMES:
        ui.show_message(
            f"unknown theme {name!r}; the themes are {', '.join(THEME_NAMES)}", "warning"
        )
    elif name:
        ui.change_theme(name)
        ui.show_message(f"theme {name}: {ui.host.save_theme(name)}", "faint")


# ------------------------------------------------------------------ information


async def _cost(ui: Frontend, arguments: str) -> None:
    from treadle.apps.conversation.costs import describe_thinking, list_purposes
    from treadle.models.catalog import compute_thinking_cost

    usage = ui.host.driver.total_usage
    thinking = describe_thinking(usage, compute_thinking_cost(ui.host.model.name, usage))
    rows = [
        ("input tokens", f"{usage.input:,}"),
        ("read from cache", f"{usage.cache_read:,}"),
        ("written to cache", f"{usage.cache_write:,}"),
        ("output tokens", f"{usage.output:,}{thinking}"),
        ("requests", f"{usage.requests:,}"),
        ("cost", format_cost(usage.cost, usage.known_cost)),
        *[(f"  {purpose}", cost) for purpose, cost in list_purposes(ui.host.driver.session_id)],
    ]
    ui.show_message(_format_table(rows))


async def _context(ui: Frontend, arguments: str) -> None:
    view, card = ui.conversation.view, ui.host.model
    items, tokens = ui.host.driver.transcript, view.context_tokens
    ui.show_message(context_usage.format_context_usage(items, tokens, card.window))


async def _diff(ui: Frontend, arguments: str) -> None:
    # Programs that the folder names for diffs are not run: it may not be trusted.
    result = await ui.host.run_git("diff --no-color --no-ext-diff --no-textconv HEAD")
    output = result.output.strip()
    if result.exit_code != 0:
        ui.show_message(output or f"git diff failed: exit code {result.exit_code}", "warning")
    else:
        ui.show_message(output or "no changes since the last commit")


async def _plan(ui: Frontend, arguments: str) -> None:
    plan = find_accepted_plan(ui.conversation.driver.history)
    ui.show_message(plan or "no plan was accepted in this session; /mode plan begins one")


async def _todo(ui: Frontend, arguments: str) -> None:
    lines = [f"{TODO_SIGNS[todo.status]} {todo.content}" for todo in ui.conversation.view.todos]
    ui.show_message("\n".join(lines) or "there is no todo list")


async def _tasks(ui: Frontend, arguments: str) -> None:
    tasks = ui.host.driver.tasks
    if arguments:
        is_stopped = await tasks.cancel(arguments)
        unknown = f"no task {arguments!r} is running"
        ui.show_message(f"task {arguments} stopped" if is_stopped else unknown)
        return
    rows = [(f"{task.id} {task.state}", strip_brackets(task.summary)) for task in tasks.list()]
    table = f"{_format_table(rows)}\n/tasks ID stops a task" if rows else ""
    ui.show_message(table or "there are no background tasks")


async def _skills(ui: Frontend, arguments: str) -> None:
    rows = ui.host.list_skills()
    ui.show_message(_format_table(rows) if rows else "there are no skills in .treadle/skills")


async def _mcp(ui: Frontend, arguments: str) -> None:
    if arguments:
        ui.show_message("\n".join(ui.host.list_server_logs(arguments)))
        return
    servers = ui.host.list_servers()
    ui.show_message("\n".join(servers) if servers else "no MCP server is configured")


async def _remember(ui: Frontend, arguments: str) -> None:
    if not arguments:
        ui.show_message("usage: /remember TEXT", "warning")
        return
    ui.show_message(f"added to {await ui.host.remember(arguments)}")


KEY_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    ("enter", "send; shift+enter, or \\ at the end of the line, starts a new line"),
    ("@ ! /", "mention a file, run a shell command, run a slash command"),
    ("ctrl+v", "paste text or an image from the clipboard"),
    ("shift+tab", "next permission mode"),
    ("esc", "interrupt; clear the prompt; twice on an empty prompt: rewind"),
    ("up", "earlier messages; with a queued message: edit it"),
    ("ctrl+r", "search in earlier messages; again: an older one, enter takes it"),
    ("ctrl+g", "write the message in your editor (VISUAL or EDITOR); also ctrl+x ctrl+e"),
    ("?", "on an empty prompt: show these keys"),
    ("ctrl+c", "interrupt or clear the prompt; twice: quit"),
    ("ctrl+o", "expand or fold the last call"),
    ("tab", "select blocks above: enter expands, c copies (code first), o opens a link"),
    ("pgup pgdn", "scroll; ctrl+end returns to the end"),
    ("ctrl+f", "search; then n and N for more matches"),
    ("ctrl+y", "copy the last reply"),
    ("ctrl+t", "show the todo list"),
    ("ctrl+b", "show the agents at work: watch one, send it a message, stop it"),
    ("ctrl+z", "suspend"),
)

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
COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "list commands and keys", _help),
    SlashCommand("model", "show or change the model", _model, "models", while_busy=False),
    SlashCommand("mode", "show or change the permission mode", _mode),
    SlashCommand(
        "permissions",
        "list the permission rules; add or remove one",
        session_commands.run_permissions,
    ),
    SlashCommand("trust", "trust this folder and its programs", _trust, while_busy=False),
    SlashCommand("compact", "shorten the history for the model", _compact, "compact", False),
    SlashCommand("uncompact", "undo all compactions", _uncompact, "compact", False),
    SlashCommand("cost", "show tokens and cost of this session", _cost),
    SlashCommand("context", "show what fills the context window", _context),
    SlashCommand("sessions", "list sessions and resume one", _resume, "sessions", False),
    SlashCommand("resume", "resume another session", _resume, "sessions", False),
    SlashCommand("fork", "continue in a copy of this session", _fork, "sessions", False),
    SlashCommand("rewind", "rewind to before a message", _rewind, "rewind", False),
    SlashCommand(
        "undo",
        "undo the file changes of the last turn; PATH: also this file, which you changed",
        _undo,
        "files",
        False,
    ),
    SlashCommand(
        "redo",
        "redo what /undo undid; PATH: also this file, which you changed",
        _redo,
        "files",
        False,
    ),
    SlashCommand("diff", "show the changes since the last commit", _diff),
    SlashCommand("todo", "show the todo list", _todo),
    SlashCommand("plan", "show the plan that you accepted", _plan),
    SlashCommand("tasks", "list background tasks; /tasks ID stops one", _tasks),
    SlashCommand("queue", "edit, move or remove messages that wait", _queue),
    SlashCommand("goal", "continue every turn until a command succeeds", _goal, "goal", False),
    SlashCommand(
        "budget", "show or change the limits of cost, tokens and time", _budget, "budget", False
    ),
    SlashCommand("remember", "add a line to AGENTS.md or CLAUDE.md", _remember, "remember"),
    SlashCommand(
        "init", "let the agent write AGENTS.md", session_commands.run_init, while_busy=False
    ),
    SlashCommand(
        "btw", "ask a side question that leaves no trace in the session", session_commands.run_btw
    ),
    SlashCommand(
        "review",
        "let an agent review the uncommitted changes, or commits: RANGE",
        session_commands.run_review,
        "agents",
    ),
    SlashCommand("agents", "watch, steer or stop agents at work; list all", run_agents, "agents"),
    SlashCommand("skills", "list the skills that the agent can load", _skills),
    SlashCommand("mcp", "show the MCP servers; /mcp NAME shows the log of one", _mcp),
    SlashCommand("export", "write the session to a file: .md, .html, .json", _export, "sessions"),
    SlashCommand(
        "config",
        "list all settings and their origins; NAME VALUE changes one",
        session_commands.run_config,
    ),
    SlashCommand("doctor", "check the installation", _doctor),
    SlashCommand("theme", "change the colours: dark, light, with high contrast, or none", _theme),
    SlashCommand(
        "tour", "learn the terminal in two minutes", session_commands.run_tour, None, False
    ),
    SlashCommand("vim", "turn the vim keys of the prompt on or off", _vim),
    SlashCommand("clear", "start a new session", _clear, while_busy=False),
    SlashCommand("quit", "quit", _quit),
)
