"""The slash commands: a table, and what each does.

A command works for any Face, the full screen and the plain mode alike. One that needs an ability
the host does not have is not listed. Commands of the user's own are custom.py's business.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from treadle.apps.tui import context, tray, trusting
from treadle.apps.tui.blocks import Tone
from treadle.apps.tui.choice import Option
from treadle.apps.tui.conversation import Conversation
from treadle.apps.tui.custom import CustomCommand
from treadle.apps.tui.host import Ability, Doors, Host
from treadle.apps.tui.palette import THEMES
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.items import user

INIT = """\
Look around in this project and write a file AGENTS.md at its root for coding agents that will \
work here: how to build, test (all, and a single one) and lint it; how it is laid out; the \
conventions that its code follows and that are not obvious. Read what is there before you write: \
the README, build files, a few sources, and an AGENTS.md or CLAUDE.md if there is one already, \
which you improve instead. Only what is true and useful, in at most 60 lines."""


class Face(Protocol):
    """Who shows the session to the person."""

    @property
    def host(self) -> Host: ...

    @property
    def conversation(self) -> Conversation: ...

    @property
    def doors(self) -> Doors: ...

    @property
    def custom(self) -> Sequence[CustomCommand]: ...

    def tell(self, text: str, tone: Tone = "plain") -> None:
        """Some lines for the person, not part of the session."""

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        *,
        filters: bool = False,
        words: str = "",
        now: str = "",
    ) -> str | None:
        """The value of a choice, or None if the person leaves; `words` stand above them, `now` is
        the value that is in force."""

    async def move(self, opening: Callable[[], Awaitable[Driver]]) -> None:
        """Leave the session; `opening` opens the next one."""

    async def rewind(self) -> None: ...

    def put(self, text: str) -> None:
        """Fill the prompt."""

    def change_theme(self, name: str) -> None: ...

    def changed_mode(self) -> None: ...

    def quit(self) -> None: ...


Run = Callable[[Face, str], Awaitable[None]]


class Command(msgspec.Struct, frozen=True):
    """`while_busy`: also while a turn runs."""

    name: str
    summary: str
    run: Run
    needs: Ability | None = None
    while_busy: bool = True


def available(host: Host) -> list[Command]:
    return [one for one in COMMANDS if one.needs is None or one.needs in host.can]


async def perform(face: Face, line: str) -> None:
    """Carry out `/name arguments`. Problems are told, not raised."""
    name, _, arguments = line[1:].partition(" ")
    arguments = arguments.strip()
    known = {command.name: command for command in available(face.host)}
    command = known.get(name)
    if command is None:
        _perform_custom(face, name, arguments, known)
    elif face.conversation.view.is_busy and not command.while_busy:
        face.tell(f"/{name} waits until the turn is over; esc stops it", "warning")
    else:
        try:
            await command.run(face, arguments)
        except (TreadleError, OSError, ValueError) as error:
            face.tell(str(error), "error")
        except Exception as error:  # noqa: BLE001 - a fault in a command does not end the session
            face.tell(f"/{name} failed: {type(error).__name__}: {error}", "error")


def _perform_custom(face: Face, name: str, arguments: str, known: dict[str, Command]) -> None:
    for custom in face.custom:
        if custom.name == name:
            face.conversation.say(user(custom.text(arguments)))
            return
    from difflib import get_close_matches

    names = [*known, *(custom.name for custom in face.custom)]
    close = get_close_matches(name, names, n=1)
    face.tell(f"there is no /{name}" + (f"; /{close[0]}?" if close else "; /help lists"), "warning")


# ------------------------------------------------------------------ session


async def _help(face: Face, arguments: str) -> None:
    rows = [(f"/{one.name}", one.summary) for one in available(face.host)]
    rows += [(f"/{one.name}", one.summary) for one in face.custom]
    face.tell(f"{_table(rows)}\n\n{_table(KEYS)}")


async def _clear(face: Face, arguments: str) -> None:
    await face.move(lambda: face.host.open(face.doors))


async def _resume(face: Face, arguments: str) -> None:
    now = time.time()
    chosen: str | None = arguments
    if not arguments:
        rows = [
            Option(
                one.id,
                one.title or "(nothing said)",
                f"{tray.ago(now - one.updated)} · {one.turns} turn{'s' * (one.turns != 1)} · "
                f"{one.state} · {one.id}",
            )
            for one in face.host.sessions()
            if one.id != face.host.driver.session_id
        ]
        if not rows:
            face.tell("there is no other session of this folder")
            return
        chosen = await face.choose("Go on with a session", rows, filters=True)
    if chosen:
        session = chosen
        await face.move(lambda: face.host.open(face.doors, resume=session))


async def _fork(face: Face, arguments: str) -> None:
    session = arguments or face.host.driver.session_id
    if not arguments and not len(face.host.driver.history):
        face.tell("nothing was said yet: there is nothing to fork", "warning")
        return
    await face.move(lambda: face.host.open(face.doors, resume=session, fork=True))
    face.tell(f"this is a fork of {session}; the other stays as it is")


async def _rewind(face: Face, arguments: str) -> None:
    await face.rewind()


async def _undo(face: Face, arguments: str) -> None:
    face.tell(await face.host.undo())


async def _redo(face: Face, arguments: str) -> None:
    face.tell(await face.host.redo())


async def _compact(face: Face, arguments: str) -> None:
    done = await face.host.driver.compact(arguments)
    face.tell("the model now sees a shorter history" if done else "nothing could be made shorter")


async def _uncompact(face: Face, arguments: str) -> None:
    done = face.host.driver.uncompact()
    face.tell("the whole history is in view again" if done else "all of it is in view already")


async def _export(face: Face, arguments: str) -> None:
    face.tell(f"written: {await face.host.export(arguments)}")


async def _quit(face: Face, arguments: str) -> None:
    face.quit()


# ------------------------------------------------------------------ what is in force


async def _model(face: Face, arguments: str) -> None:
    name: str | None = arguments
    if not arguments:
        options = [Option(name, name, about) for name, about in face.host.models()]
        now = face.host.model.name
        name = await face.choose(f"The model is {now}", options, filters=True, now=now)
    if name:
        chosen = name
        await face.move(lambda: face.host.change_model(chosen))


async def _mode(face: Face, arguments: str) -> None:
    mode: str | None = arguments
    if not arguments:
        options = [Option(mode, mode, MODES.get(mode, "")) for mode in face.host.modes]
        mode = await face.choose(f"The mode is {face.host.mode}", options, now=face.host.mode)
    if mode:
        face.host.change_mode(mode)
        face.changed_mode()


async def _permissions(face: Face, arguments: str) -> None:
    rules = face.host.permissions()
    head = f"mode {face.host.mode}: {MODES.get(face.host.mode, '')}"
    face.tell(f"{head}\n{_table(rules) if rules else 'there are no rules'}")


async def _trust(face: Face, arguments: str) -> None:
    was_trusted = face.host.is_trusted
    if await trusting.again(face.host, face.choose):
        await face.move(face.host.reopen)
        face.tell("they run from now on" if was_trusted else "this folder's own files count now")
    elif was_trusted:
        left = face.host.waiting()
        face.tell("\n".join(["this folder is trusted", *(["waits:", *left] if left else [])]))


async def _goal(face: Face, arguments: str) -> None:
    await face.move(lambda: face.host.change_goal(arguments))
    if arguments:
        face.tell(f"from now on a turn goes on until this succeeds: {arguments}")
    else:
        face.tell("no goal; /goal COMMAND sets one")


async def _config(face: Face, arguments: str) -> None:
    rows = [(f"{name} = {value}", origin) for name, value, origin in face.host.settings()]
    face.tell(_table(rows))


async def _doctor(face: Face, arguments: str) -> None:
    # Its checks belong to the command line, and hosts do not know each other: it is run as one.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "treadle", "doctor"),
        cwd=face.host.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    lines = printed.decode(errors="replace").rstrip().splitlines()
    # The terminal it sees is a pipe, and this one shows by itself that it works.
    face.tell("\n".join(line for line in lines if line.split()[1:2] != ["terminal"]))


async def _theme(face: Face, arguments: str) -> None:
    name: str | None = arguments
    if not arguments:
        name = await face.choose("Theme", [Option(name, name) for name in THEMES])
    if name and name not in THEMES:
        face.tell(f"there is no theme {name!r}; there are {', '.join(THEMES)}", "warning")
    elif name:
        face.change_theme(name)
        face.tell(f"theme {name}: {face.host.keep_theme(name)}", "faint")


# ------------------------------------------------------------------ looking


async def _cost(face: Face, arguments: str) -> None:
    usage = face.host.driver.usage
    rows = [
        ("input", f"{usage.input:,}"),
        ("read from cache", f"{usage.cache_read:,}"),
        ("written to cache", f"{usage.cache_write:,}"),
        ("output", f"{usage.output:,}"),
        ("requests", f"{usage.requests:,}"),
        ("cost", "not known" if usage.cost is None else tray.money(usage.cost)),
    ]
    face.tell(_table(rows))


async def _context(face: Face, arguments: str) -> None:
    view, card = face.conversation.view, face.host.model
    face.tell(context.picture(face.host.driver.transcript, view.context, card.window))


async def _diff(face: Face, arguments: str) -> None:
    parts: list[str] = []
    done = await face.host.shell("git --no-pager diff --no-color HEAD", parts.append)
    if done.exit_code != 0:
        face.tell(done.output.strip() or "git could not say", "warning")
    else:
        face.tell(done.output.strip() or "nothing differs from the last commit")


async def _todo(face: Face, arguments: str) -> None:
    marks = {"open": "☐", "active": "▸", "done": "☑"}
    todos = face.conversation.view.todos
    face.tell("\n".join(f"{marks[one.state]} {one.text}" for one in todos) or "there is no list")


async def _tasks(face: Face, arguments: str) -> None:
    tasks = face.host.driver.tasks
    if arguments:
        stopped = await tasks.cancel(arguments)
        face.tell(f"{arguments} is stopped" if stopped else f"no task {arguments!r} runs")
        return
    rows = [(f"{one.id} {one.state}", one.summary.strip("[]")) for one in tasks.list()]
    face.tell(f"{_table(rows)}\n/tasks ID stops one" if rows else "nothing runs in the background")


async def _agents(face: Face, arguments: str) -> None:
    rows = face.host.agents()
    face.tell(_table(rows) if rows else "no agents are defined in .treadle/agents")


async def _skills(face: Face, arguments: str) -> None:
    rows = face.host.skills()
    face.tell(_table(rows) if rows else "there are no skills in .treadle/skills")


async def _remember(face: Face, arguments: str) -> None:
    if not arguments:
        face.tell("what? /remember TEXT", "warning")
        return
    face.tell(f"written into {await face.host.remember(arguments)}")


async def _init(face: Face, arguments: str) -> None:
    face.conversation.say(user(f"{INIT}\n{arguments}".strip()))


MODES = {
    "plan": "looks and plans, changes nothing",
    "ask": "asks before anything that is not allowed by a rule",
    "accept-edits": "files of this folder may change without a question",
    "auto": "as accept-edits, and commands inside the sandbox run",
    "bypass": "everything but what is denied",
}

KEYS: tuple[tuple[str, str], ...] = (
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

COMMANDS: tuple[Command, ...] = (
    Command("help", "commands and keys", _help),
    Command("model", "show or change the model", _model, "models", while_busy=False),
    Command("mode", "what may happen without a question", _mode),
    Command("permissions", "the rules in force", _permissions),
    Command("trust", "whether this folder's own files count", _trust, while_busy=False),
    Command("compact", "make the history shorter for the model", _compact, "compact", False),
    Command("uncompact", "bring the whole history back", _uncompact, "compact", False),
    Command("cost", "tokens and money of this session", _cost),
    Command("context", "what fills the window", _context),
    Command("sessions", "go on with another session", _resume, "sessions", False),
    Command("resume", "go on with another session", _resume, "sessions", False),
    Command("fork", "go on in a copy of this session", _fork, "sessions", False),
    Command("rewind", "go back to before a turn", _rewind, "rewind", False),
    Command("undo", "take back what the last turn did to files", _undo, "files", False),
    Command("redo", "bring it back", _redo, "files", False),
    Command("diff", "what differs from the last commit", _diff),
    Command("todo", "the list", _todo),
    Command("tasks", "what runs in the background; /tasks ID stops one", _tasks),
    Command("goal", "work until a command succeeds", _goal, "goal", False),
    Command("remember", "write a line into AGENTS.md", _remember, "remember"),
    Command("init", "let the agent write AGENTS.md", _init, while_busy=False),
    Command("agents", "the agents that are defined", _agents, "agents"),
    Command("skills", "what the agent can look up when it needs it", _skills),
    Command("export", "write the session to a file: .md, .html, .json", _export, "sessions"),
    Command("config", "every setting and where it comes from", _config),
    Command("doctor", "check what is needed here, and say what to do", _doctor),
    Command("theme", "dark, light or no colour", _theme),
    Command("clear", "begin a new session", _clear, while_busy=False),
    Command("quit", "leave", _quit),
)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    width = min(max(len(name) for name, _ in rows), 40)
    return "\n".join(f"{name:{width}}  {about}".rstrip() for name, about in rows)
