"""Sessions in the background: how one gets there (`--bg`), and the run that works on it.

    move_to_background   the message is stored in the session, and the supervisor starts a run
    run_session          that run: a `treadle -p --resume ID --suspend`, which leaves the session
                         when another program wants to continue it

Used by start.py and commands.py; what is stored is sessions/detached/background.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Sequence
from pathlib import Path

from treadle.agents.agent_settings import ApproverAnswer
from treadle.apps.assembly import AgentSession, SessionOptions, build_agent
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.assembly.sessions import get_session_dir
from treadle.apps.assembly.suspend import SuspendOnRequest, TurnSuspended
from treadle.apps.cli.background_wait import list_running
from treadle.apps.cli.headless import HeadlessRun
from treadle.apps.cli.options import CommandLine, add_background_choices
from treadle.apps.console.console import UsageError, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.console.supervisor import start_run
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import Settings
from treadle.core.events import TurnResult
from treadle.core.loop.config import TurnSettings
from treadle.core.loop.driver import Driver
from treadle.core.steps import Denial, PendingApproval
from treadle.core.transcript import UserContent
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.state import SessionState
from treadle.lib.files.locks import set_program_name
from treadle.lib.tasks import forget_result
from treadle.sessions.detached import background
from treadle.sessions.library import Library
from treadle.sessions.log.lock import BACKGROUND_PROGRAM

POLL_SECONDS = 0.2
NOT_WITH_BG = (
    *("print", "output_format", "output_schema", "plain", "inline"),
    "dry_run",  # the run would not be one
)
STARTED = "it works in the background: `treadle ps` lists it, `treadle attach {}` brings it here"


async def move_to_background(
    line: CommandLine, settings: Settings, folder: Path, prompt: Sequence[UserContent]
) -> int:
    """Store the message in a new session, or a resumed one, and let a run answer it."""
    for name in NOT_WITH_BG:
        if line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} does not work with --bg")
    choices = background.BackgroundChoices(
        line.settings(), line.texts("allow"), line.texts("deny"), line.text("until")
    )
    resume = "" if line.has("continue") else line.text("resume") or None
    options = SessionOptions(
        origin="", resume=resume, allow=choices.allow, deny=choices.deny, suspend=True
    )
    session = await build_agent(settings, folder, options)
    if (line.prompt or "").startswith("/"):
        prompt = await _expand(session, settings, tuple(prompt))
    async with session.open_driver(tuple(prompt) or None) as driver:
        if not driver.can_continue:
            again = f'treadle --bg --resume {driver.session_id} "…"'
            raise UsageError(f"the last turn is finished; write a message: {again}")
        await driver.log.flush()
        session_dir = get_session_dir(session.store)
    for warning in session.session_warnings:
        print_error(f"treadle: {redact_for_display(warning)}")
    await asyncio.to_thread(start_run, session_dir, folder, os.environ, choices)
    print_line(session_dir.name)
    if not line.has("quiet"):
        print_error(f"treadle: {STARTED.format(session_dir.name)}")
    return SUCCESS


async def _expand(
    session: AgentSession, settings: Settings, prompt: tuple[UserContent, ...]
) -> tuple[UserContent, ...]:
    from treadle.apps.cli.custom_command import expand_server_prompt

    try:
        return await expand_server_prompt(session, settings, prompt)
    except BaseException:
        await session.abandon()
        raise


class BackgroundRun(HeadlessRun):
    """One run. What it cannot decide suspends the turn, also the calls of child agents."""

    _is_asked_to_leave = False
    _child_approvals: tuple[PendingApproval, ...] = ()

    async def run(self) -> int:
        self._child_asks = asyncio.Event()
        return await super().run()

    def set_leaving(self, is_leaving: bool) -> None:
        self._is_asked_to_leave = is_leaving

    async def _prepare_resume(self, view: SessionState, driver: Driver) -> None:
        background.end_start()
        await super()._prepare_resume(view, driver)
        # Not while a task runs in the background: it would be lost.
        gate = SuspendOnRequest(
            driver.session_id, lambda: self._is_asked_to_leave and not list_running(driver)
        )
        driver.configure_turns(TurnSettings(gates=(gate,)))

    def _decide(self, approval: PendingApproval) -> bool | Denial | Awaitable[ApproverAnswer]:
        if approval.session_id in ("", self._session_id):
            return super()._decide(approval)
        self._child_approvals = (*self._child_approvals, approval)
        self._child_asks.set()
        return asyncio.get_running_loop().create_future()  # it is asked again by another program

    async def _run_one_turn(
        self, session: AgentSession, driver: Driver
    ) -> tuple[TurnResult, object]:
        """The turn is suspended as soon as nothing of it runs but child agents that ask."""
        turn = asyncio.create_task(super()._run_one_turn(session, driver))
        turn.add_done_callback(forget_result)
        asked = asyncio.create_task(self._child_asks.wait())
        await asyncio.wait((turn, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        while not turn.done():
            state, asking = driver.state, self._child_approvals
            if len(state.intents.keys() - state.early_results.keys()) <= len(asking):
                detail = f"{asking[0].summary} needs approval"
                raise TurnSuspended("approval", WakeCondition("answer"), detail)
            await asyncio.wait([turn], timeout=POLL_SECONDS)
        return await turn


def run_session(session_id: str) -> int:
    """Work on a session in the background until its turn is over, or waits."""
    set_program_name(BACKGROUND_PROGRAM)
    library = Library()
    session_dir = library.find(session_id)
    if background.read_choices(session_dir) is None:
        raise UsageError(f"session {session_id} is not in the background")
    folder = Path(library.get_summary(session_dir).folder)
    options = {"resume": session_dir.name, "suspend": True, "quiet": True}
    line = add_background_choices(CommandLine(None, options), folder)
    settings = load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))
    run = BackgroundRun(line, settings, folder, (), None, has_output=True)
    signal.signal(background.LEAVE_SIGNAL, lambda *_: run.set_leaving(True))
    signal.signal(background.STAY_SIGNAL, lambda *_: run.set_leaving(False))
    return asyncio.run(run.run())
