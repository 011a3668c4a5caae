"""`treadle ps`, `attach`, `logs`, `stop`: the sessions in the background. And `treadle supervisor`.

What they show is read from the logs and the locks of the sessions, so it is there after a reboot.
Uses sessions/detached/background.py; apps/cli/background_sessions/runs.py has the runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from treadle.apps.console.console import (
    UsageError,
    command,
    get_width,
    print_error,
    print_line,
)
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, shorten_home

if TYPE_CHECKING:
    from treadle.sessions.library import Library
    from treadle.sessions.summaries import SessionSummary

PS = """\
usage: treadle ps

List the sessions in the background: those of `treadle --bg "…"` and of /detach. One that waits for
you, or was interrupted (also by a reboot), continues with `treadle attach ID`."""
ATTACH = """\
usage: treadle attach ID [OPTIONS]

Continue a session here, at this terminal. One at work comes when the round that runs is over: no
command is cut off. /detach gives it back. ID: also its beginning or end, or words of the title."""
LOGS = """\
usage: treadle logs [-f] ID

Print what a session has done: "> " is before what you said, "· " before what the engine told the
model. -f prints on until it is done, or waits for you."""
STOP = """\
usage: treadle stop ID

Interrupt a session that works in the background. One that does not work leaves `treadle ps`; it
stays in `treadle sessions`."""
SUPERVISOR = """\
usage: treadle supervisor

Start the runs of background sessions. It is started when it is needed, once for each user, and ends
when it has nothing to do."""
NO_TERMINAL = "`treadle logs -f {id}` follows it, `treadle resume {id} --approve` answers it"
ONE_SESSION = "name one session; words of its title need quotes"
POLL_SECONDS = 0.2


@command("treadle ps", PS)
def run_ps(arguments: list[str]) -> int:
    if arguments:
        raise UsageError("it takes no arguments")
    from treadle.sessions.detached.background import read_choices
    from treadle.sessions.library import Library

    library = Library()
    rows = [
        (one.id, format_age(time.time() - one.updated), describe_work(library, one), one)
        for one in library.list_summaries()
        if read_choices(library.root / one.key) is not None
    ]
    columns = get_width(sys.stdout)
    width = min(max((len(state) for _, _, state, _ in rows), default=0), 60, columns // 3)
    ages = max((len(age) for _, age, _, _ in rows), default=0)
    for name, age, state, one in rows:
        title, folder = library.get_title(one), shorten_home(one.folder)
        line = _show(f"{name}  {age:>{ages}}  {state:{width}}  {title}")
        whole = f"{line}  ({_show(folder)})"
        print_line(whole if len(whole) <= columns else line[:columns].rstrip())
    if not rows:
        print('no sessions in the background; treadle --bg "…" starts one')
    return SUCCESS


def _show(text: str) -> str:
    return escape_invisible(strip_escapes(text))


def describe_work(library: Library, summary: SessionSummary) -> str:
    """What a session in the background does now."""
    from treadle.sessions.detached.background import find_run, is_starting
    from treadle.sessions.summaries import STATE_LABELS

    is_new = is_starting(library.root / summary.key)  # before: it becomes a run meanwhile
    if find_run(library.root / summary.key) is not None:
        return "running"
    if is_new:
        return "starting"
    wait = summary.suspended
    if wait is not None and wait.wake.on == "time":
        if wait.wake.at <= time.time():
            return "interrupted"  # nobody continued it: the machine restarted
        return time.strftime("waits until %Y-%m-%d %H:%M", time.localtime(wait.wake.at))
    if wait is not None and wait.reason != "other":
        return f"waits for you: {wait.detail}"
    if summary.state in ("open", "empty"):
        return "interrupted"
    return STATE_LABELS.get(summary.state, summary.state)


@command("treadle attach", ATTACH)
def run_attach(arguments: list[str]) -> int:
    from treadle.sessions.library import Library

    library = Library()
    session_dir = _find(library, arguments[:1], ATTACH)
    folder = Path(library.get_summary(session_dir).folder)
    if not folder.is_dir():
        raise UsageError(f"the folder of this session is gone: {escape_invisible(str(folder))}")
    from treadle.apps.cli import start
    from treadle.apps.cli.options import parse_command_line

    import_module(start.TUI_MODULE).check_screen(
        "--plain" in arguments, NO_TERMINAL.format(id=session_dir.name)
    )
    if parse_command_line(arguments[1:]).prompt is not None:  # it would go to the model
        raise UsageError(f"{ONE_SESSION}\n{ATTACH.splitlines()[0]}")
    os.chdir(folder)
    return start.run(["--resume", session_dir.name, *arguments[1:]])


@command("treadle logs", LOGS)
def run_logs(arguments: list[str]) -> int:
    from treadle.sessions.detached.background import find_run, is_starting
    from treadle.sessions.export import list_blocks, read_blocks, redact_entries
    from treadle.sessions.library import Library
    from treadle.sessions.log.state_loader import JournalFollower

    is_followed = "-f" in arguments
    library = Library()
    session_dir = _find(library, [one for one in arguments if one != "-f"], LOGS)
    log = JournalFollower(session_dir)
    while True:
        # In this order: one that starts becomes a run meanwhile.
        goes_on = is_starting(session_dir) or find_run(session_dir) is not None
        is_last = not (is_followed and goes_on)
        entries = log.read_new()
        if entries is None:  # a fork, which has its beginning from another session
            log.load()
        blocks = (
            read_blocks(session_dir) if entries is None else list_blocks(redact_entries(entries))
        )
        for block in blocks:
            text = "\n".join(filter(None, (block.title, block.text.strip())))
            start = {"user": "> ", "assistant": "", "engine": "· "}.get(block.role, "    ")
            print_line(indent(text, start), end="\n\n")
        sys.stdout.flush()
        if is_last:
            break
        time.sleep(POLL_SECONDS)
    state = describe_work(library, library.get_summary(session_dir))
    print_error(f"treadle: {session_dir.name}: {escape_invisible(state)}")
    return SUCCESS


@command("treadle stop", STOP)
def run_stop(arguments: list[str]) -> int:
    from treadle.sessions.detached import background
    from treadle.sessions.library import Library

    session_dir = _find(Library(), arguments, STOP)
    if background.signal_run(session_dir, signal.SIGINT):
        while background.find_run(session_dir) is not None:
            time.sleep(POLL_SECONDS)
        print_line(f"{session_dir.name} is interrupted; `treadle attach` continues it")
    elif background.read_choices(session_dir) is not None:
        background.forget_choices(session_dir)
        print_line(f"{session_dir.name} is not in the background any more")
    else:
        print_error(f"treadle stop: {session_dir.name} is not in the background")
        return ERROR
    return SUCCESS


def _find(library: Library, arguments: list[str], usage: str) -> Path:
    if len(arguments) > 1:
        raise UsageError(f"{ONE_SESSION}\n{usage.splitlines()[0]}")
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"a session ID is needed\n{usage.splitlines()[0]}")
    return library.find(arguments[0], by_words=True)


@command("treadle supervisor", SUPERVISOR)
def run_supervisor(arguments: list[str]) -> int:
    match arguments:
        case []:
            from treadle.apps.console.supervisor import serve

            with suppress(KeyboardInterrupt):
                return serve()
            return SUCCESS
        case ["run", session_id]:
            from treadle.apps.cli.background_sessions.runs import run_session

            return run_session(session_id)
    raise UsageError(f"unknown argument {arguments[0]!r}")
