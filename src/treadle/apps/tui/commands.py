"""The slash commands: a table, and what each does.

A command works for any Face, the full screen and the plain mode alike. One that needs an ability
the host does not have is not listed. Commands of the user's own are custom_commands.py's business.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from treadle.apps.tui import trust_dialog
from treadle.apps.tui.conversation import Conversation
from treadle.apps.tui.custom_commands import CustomCommand
from treadle.apps.tui.host import Ability, Host, HostCallbacks
from treadle.apps.tui.render import context_usage, status_area
from treadle.apps.tui.render.palette import THEMES
from treadle.apps.tui.state.blocks import Tone
from treadle.apps.tui.state.choice_option import ChoiceOption
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.items import to_user_item

INIT_PROMPT = """\
Look around in this project and write a file AGENTS.md at its root for coding agents that will \
work here: how to build, test (all, and a single one) and lint it; how it is laid out; the \
conventions that its code follows and that are not obvious. Read what is there before you write: \
the README, build files, a few sources, and an AGENTS.md or CLAUDE.md if there is one already, \
which you improve instead. Only what is true and useful, in at most 60 lines."""


class Frontend(Protocol):
    """Who shows the session to the person."""

    @property
    def host(self) -> Host: ...

    @property
    def conversation(self) -> Conversation: ...

    @property
    def callbacks(self) -> HostCallbacks: ...

    @property
    def custom_commands(self) -> Sequence[CustomCommand]: ...

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        """Some lines for the person, not part of the session."""

    async def choose(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        message: str = "",
        current: str = "",
    ) -> str | None:
        """The value of a choice, or None if the person leaves; `words` stand above them, `now` is
        the value that is in force."""

    async def switch_session(self, open_driver: Callable[[], Awaitable[Driver]]) -> None:
        """Leave the session; `opening` opens the next one."""

    async def rewind(self) -> None: ...

    def set_prompt_text(self, text: str) -> None:
        """Fill the prompt."""

    def change_theme(self, name: str) -> None: ...

    def show_mode(self) -> None: ...

    def quit(self) -> None: ...


CommandFunction = Callable[[Frontend, str], Awaitable[None]]


class SlashCommand(msgspec.Struct, frozen=True):
    """`while_busy`: also while a turn runs."""

    name: str
    summary: str
    run: CommandFunction
    needs: Ability | None = None
    while_busy: bool = True


def list_commands(host: Host) -> list[SlashCommand]:
    return [one for one in COMMANDS if one.needs is None or one.needs in host.abilities]


async def run_command(frontend: Frontend, line: str) -> None:
    """Carry out `/name arguments`. Problems are told, not raised."""
    name, _, arguments = line[1:].partition(" ")
    arguments = arguments.strip()
    known = {command.name: command for command in list_commands(frontend.host)}
    command = known.get(name)
    if command is None:
        _run_custom_command(frontend, name, arguments, known)
    elif frontend.conversation.view.is_busy and not command.while_busy:
        frontend.show_message(f"/{name} waits until the turn is over; esc stops it", "warning")
    else:
        try:
            await command.run(frontend, arguments)
        except (TreadleError, OSError, ValueError) as error:
            frontend.show_message(str(error), "error")
        except Exception as error:  # noqa: BLE001 - a fault in a command does not end the session
            frontend.show_message(f"/{name} failed: {type(error).__name__}: {error}", "error")


def _run_custom_command(
    frontend: Frontend, name: str, arguments: str, known: dict[str, SlashCommand]
) -> None:
    for custom in frontend.custom_commands:
        if custom.name == name:
            frontend.conversation.submit(to_user_item(custom.expand(arguments)))
            return
    from difflib import get_close_matches

    names = [*known, *(custom.name for custom in frontend.custom_commands)]
    close = get_close_matches(name, names, n=1)
    frontend.show_message(
        f"there is no /{name}" + (f"; /{close[0]}?" if close else "; /help lists"), "warning"
    )


# ------------------------------------------------------------------ session


async def _help(frontend: Frontend, arguments: str) -> None:
    rows = [(f"/{one.name}", one.summary) for one in list_commands(frontend.host)]
    rows += [(f"/{one.name}", one.summary) for one in frontend.custom_commands]
    frontend.show_message(f"{_format_table(rows)}\n\n{_format_table(KEY_DESCRIPTIONS)}")


async def _clear(frontend: Frontend, arguments: str) -> None:
    await frontend.switch_session(lambda: frontend.host.open(frontend.callbacks))


async def _resume(frontend: Frontend, arguments: str) -> None:
    now = time.time()
    chosen: str | None = arguments
    if not arguments:
        rows = [
            ChoiceOption(
                one.id,
                one.title or "(nothing said)",
                f"{status_area.format_age(now - one.updated)} · {one.turns} turn{'s' * (one.turns != 1)} · "
                f"{one.state} · {one.id}",
            )
            for one in frontend.host.list_sessions()
            if one.id != frontend.host.driver.session_id
        ]
        if not rows:
            frontend.show_message("there is no other session of this folder")
            return
        chosen = await frontend.choose("Go on with a session", rows, filterable=True)
    if chosen:
        session = chosen
        await frontend.switch_session(
            lambda: frontend.host.open(frontend.callbacks, resume=session)
        )


async def _fork(frontend: Frontend, arguments: str) -> None:
    session = arguments or frontend.host.driver.session_id
    if not arguments and not len(frontend.host.driver.history):
        frontend.show_message("nothing was said yet: there is nothing to fork", "warning")
        return
    await frontend.switch_session(
        lambda: frontend.host.open(frontend.callbacks, resume=session, fork=True)
    )
    frontend.show_message(f"this is a fork of {session}; the other stays as it is")


async def _rewind(frontend: Frontend, arguments: str) -> None:
    await frontend.rewind()


async def _undo(frontend: Frontend, arguments: str) -> None:
    frontend.show_message(await frontend.host.undo())


async def _redo(frontend: Frontend, arguments: str) -> None:
    frontend.show_message(await frontend.host.redo())


async def _compact(frontend: Frontend, arguments: str) -> None:
    done = await frontend.host.driver.compact(arguments)
    frontend.show_message(
        "the model now sees a shorter history" if done else "nothing could be made shorter"
    )


async def _uncompact(frontend: Frontend, arguments: str) -> None:
    done = frontend.host.driver.uncompact()
    frontend.show_message(
        "the whole history is in view again" if done else "all of it is in view already"
    )


async def _export(frontend: Frontend, arguments: str) -> None:
    frontend.show_message(f"written: {await frontend.host.export(arguments)}")


async def _quit(frontend: Frontend, arguments: str) -> None:
    frontend.quit()


# ------------------------------------------------------------------ what is in force


async def _model(frontend: Frontend, arguments: str) -> None:
    name: str | None = arguments
    if not arguments:
        options = [ChoiceOption(name, name, about) for name, about in frontend.host.list_models()]
        now = frontend.host.model.name
        name = await frontend.choose(f"The model is {now}", options, filterable=True, current=now)
    if name:
        chosen = name
        await frontend.switch_session(lambda: frontend.host.change_model(chosen))


async def _mode(frontend: Frontend, arguments: str) -> None:
    mode: str | None = arguments
    if not arguments:
        options = [
            ChoiceOption(mode, mode, MODE_DESCRIPTIONS.get(mode, ""))
            for mode in frontend.host.modes
        ]
        mode = await frontend.choose(
            f"The mode is {frontend.host.mode}", options, current=frontend.host.mode
        )
    if mode:
        frontend.host.change_mode(mode)
        frontend.show_mode()


async def _permissions(frontend: Frontend, arguments: str) -> None:
    rules = frontend.host.list_permissions()
    head = f"mode {frontend.host.mode}: {MODE_DESCRIPTIONS.get(frontend.host.mode, '')}"
    frontend.show_message(f"{head}\n{_format_table(rules) if rules else 'there are no rules'}")


async def _trust(frontend: Frontend, arguments: str) -> None:
    was_trusted = frontend.host.is_trusted
    if await trust_dialog.ask_again(frontend.host, frontend.choose):
        await frontend.switch_session(frontend.host.reopen)
        frontend.show_message(
            "they run from now on" if was_trusted else "this folder's own files count now"
        )
    elif was_trusted:
        left = frontend.host.list_unapproved_programs()
        frontend.show_message(
            "\n".join(["this folder is trusted", *(["waits:", *left] if left else [])])
        )


async def _goal(frontend: Frontend, arguments: str) -> None:
    await frontend.switch_session(lambda: frontend.host.change_goal(arguments))
    if arguments:
        frontend.show_message(f"from now on a turn goes on until this succeeds: {arguments}")
    else:
        frontend.show_message("no goal; /goal COMMAND sets one")


async def _config(frontend: Frontend, arguments: str) -> None:
    rows = [(f"{name} = {value}", origin) for name, value, origin in frontend.host.list_settings()]
    frontend.show_message(_format_table(rows))


async def _doctor(frontend: Frontend, arguments: str) -> None:
    # Its checks belong to the command line, and hosts do not know each other: it is run as one.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "treadle", "doctor"),
        cwd=frontend.host.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    lines = printed.decode(errors="replace").rstrip().splitlines()
    # The terminal it sees is a pipe, and this one shows by itself that it works.
    frontend.show_message("\n".join(line for line in lines if line.split()[1:2] != ["terminal"]))


async def _theme(frontend: Frontend, arguments: str) -> None:
    name: str | None = arguments
    if not arguments:
        name = await frontend.choose("Theme", [ChoiceOption(name, name) for name in THEMES])
    if name and name not in THEMES:
        frontend.show_message(
            f"there is no theme {name!r}; there are {', '.join(THEMES)}", "warning"
        )
    elif name:
        frontend.change_theme(name)
        frontend.show_message(f"theme {name}: {frontend.host.save_theme(name)}", "faint")


# ------------------------------------------------------------------ looking


async def _cost(frontend: Frontend, arguments: str) -> None:
    usage = frontend.host.driver.usage
    rows = [
        ("input", f"{usage.input:,}"),
        ("read from cache", f"{usage.cache_read:,}"),
        ("written to cache", f"{usage.cache_write:,}"),
        ("output", f"{usage.output:,}"),
        ("requests", f"{usage.requests:,}"),
        ("cost", "not known" if usage.cost is None else status_area.format_cost(usage.cost)),
    ]
    frontend.show_message(_format_table(rows))


async def _context(frontend: Frontend, arguments: str) -> None:
    view, card = frontend.conversation.view, frontend.host.model
    frontend.show_message(
        context_usage.format_context_usage(
            frontend.host.driver.transcript, view.context_tokens, card.window
        )
    )


async def _diff(frontend: Frontend, arguments: str) -> None:
    parts: list[str] = []
    done = await frontend.host.run_shell_command(
        "git --no-pager diff --no-color HEAD", parts.append
    )
    if done.exit_code != 0:
        frontend.show_message(done.output.strip() or "git could not say", "warning")
    else:
        frontend.show_message(done.output.strip() or "nothing differs from the last commit")


async def _todo(frontend: Frontend, arguments: str) -> None:
    marks = {"open": "☐", "active": "▸", "done": "☑"}
    todos = frontend.conversation.view.todos
    frontend.show_message(
        "\n".join(f"{marks[one.state]} {one.text}" for one in todos) or "there is no list"
    )


async def _tasks(frontend: Frontend, arguments: str) -> None:
    tasks = frontend.host.driver.tasks
    if arguments:
        stopped = await tasks.cancel(arguments)
        frontend.show_message(
            f"{arguments} is stopped" if stopped else f"no task {arguments!r} runs"
        )
        return
    rows = [(f"{one.id} {one.state}", one.summary.strip("[]")) for one in tasks.list()]
    frontend.show_message(
        f"{_format_table(rows)}\n/tasks ID stops one" if rows else "nothing runs in the background"
    )


async def _agents(frontend: Frontend, arguments: str) -> None:
    rows = frontend.host.list_agents()
    frontend.show_message(
        _format_table(rows) if rows else "no agents are defined in .treadle/agents"
    )


async def _skills(frontend: Frontend, arguments: str) -> None:
    rows = frontend.host.list_skills()
    frontend.show_message(_format_table(rows) if rows else "there are no skills in .treadle/skills")


async def _remember(frontend: Frontend, arguments: str) -> None:
    if not arguments:
        frontend.show_message("what? /remember TEXT", "warning")
        return
    frontend.show_message(f"written into {await frontend.host.remember(arguments)}")


async def _init(frontend: Frontend, arguments: str) -> None:
    frontend.conversation.submit(to_user_item(f"{INIT_PROMPT}\n{arguments}".strip()))


MODE_DESCRIPTIONS = {
    "plan": "looks and plans, changes nothing",
    "ask": "asks before anything that is not allowed by a rule",
    "accept-edits": "files of this folder may change without a question",
    "auto": "as accept-edits, and commands inside the sandbox run",
    "bypass": "everything but what is denied",
}

KEY_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    ("enter", "sends; shift+enter, or \\ at the end, begins a new line"),
    ("@ ! /", "name a file, run a command, give an order"),
    ("ctrl+v", "pastes, also a picture from the clipboard"),
    ("shift+tab", "changes the mode"),
    ("esc", "stops; on text it clears; twice on nothing it goes back"),
    ("ctrl+c", "stops or clears; twice leaves"),
    ("ctrl+o", "opens the last call"),
    ("tab", "goes into the text above: arrows, enter opens, c copies, / searches"),
    ("pgup pgdn", "scroll; ctrl+end follows again"),
    ("ctrl+f", "searches; then n and N"),
    ("ctrl+y", "copies the last reply"),
    ("ctrl+t", "lists the todos"),
    ("ctrl+z", "suspends"),
)

COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "commands and keys", _help),
    SlashCommand("model", "show or change the model", _model, "models", while_busy=False),
    SlashCommand("mode", "what may happen without a question", _mode),
    SlashCommand("permissions", "the rules in force", _permissions),
    SlashCommand("trust", "whether this folder's own files count", _trust, while_busy=False),
    SlashCommand("compact", "make the history shorter for the model", _compact, "compact", False),
    SlashCommand("uncompact", "bring the whole history back", _uncompact, "compact", False),
    SlashCommand("cost", "tokens and money of this session", _cost),
    SlashCommand("context", "what fills the window", _context),
    SlashCommand("sessions", "go on with another session", _resume, "sessions", False),
    SlashCommand("resume", "go on with another session", _resume, "sessions", False),
    SlashCommand("fork", "go on in a copy of this session", _fork, "sessions", False),
    SlashCommand("rewind", "go back to before a turn", _rewind, "rewind", False),
    SlashCommand("undo", "take back what the last turn did to files", _undo, "files", False),
    SlashCommand("redo", "bring it back", _redo, "files", False),
    SlashCommand("diff", "what differs from the last commit", _diff),
    SlashCommand("todo", "the list", _todo),
    SlashCommand("tasks", "what runs in the background; /tasks ID stops one", _tasks),
    SlashCommand("goal", "work until a command succeeds", _goal, "goal", False),
    SlashCommand("remember", "write a line into AGENTS.md", _remember, "remember"),
    SlashCommand("init", "let the agent write AGENTS.md", _init, while_busy=False),
    SlashCommand("agents", "the agents that are defined", _agents, "agents"),
    SlashCommand("skills", "what the agent can look up when it needs it", _skills),
    SlashCommand("export", "write the session to a file: .md, .html, .json", _export, "sessions"),
    SlashCommand("config", "every setting and where it comes from", _config),
    SlashCommand("doctor", "check what is needed here, and say what to do", _doctor),
    SlashCommand("theme", "dark, light or no colour", _theme),
    SlashCommand("clear", "begin a new session", _clear, while_busy=False),
    SlashCommand("quit", "leave", _quit),
)


def _format_table(rows: Sequence[tuple[str, str]]) -> str:
    width = min(max(len(name) for name, _ in rows), 40)
    return "\n".join(f"{name:{width}}  {about}".rstrip() for name, about in rows)
