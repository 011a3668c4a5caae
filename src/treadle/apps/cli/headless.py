"""`treadle -p`: one prompt, one answer, one exit code. For scripts, pipes and servers.

Reads the command line, has the agent wired, drives its loop to the end of a turn and prints what
came of it; prompting.py reads what was asked, output.py prints, signals.py listens to the world.
Nobody is asked anything: what needs a person is denied with a reason, and the exit code says so;
with --park the turn is put off instead, and goes on from there when it is resumed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli import exits
from treadle.apps.cli.options import CommandLine, UsageError, read
from treadle.apps.cli.output import (
    VERSION,
    Began,
    Progress,
    Report,
    Stdout,
    detail_of,
    discreet,
    used,
)
from treadle.apps.cli.printing import warn
from treadle.apps.cli.prompting import is_piped, read_prompt
from treadle.apps.cli.signals import Signals, guard_streams, harden
from treadle.apps.settings import Settings, load
from treadle.apps.wiring import Opening, Wired, wire
from treadle.apps.wiring.discretion import shown
from treadle.apps.wiring.doubts import Doubts
from treadle.apps.wiring.parking import A_QUESTION, Postponed
from treadle.apps.wiring.rules import NOBODY_CAN_BE_ASKED, is_trusted
from treadle.core.contracts.observer import Observer
from treadle.core.errors import LoopError, TreadleError
from treadle.core.events import ChildEvent, Event, TurnResult, UsageUpdated
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import PendingApproval
from treadle.core.transcript.content import Text, UserContent
from treadle.core.transcript.entries import View, Wake
from treadle.core.transcript.items import Item
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.usage import Usage

if TYPE_CHECKING:
    from treadle.apps.cli.lines import Lines
    from treadle.apps.cli.parked import Word

NOBODY = (
    NOBODY_CAN_BE_ASKED + " ({reason}). "
    "Do it in another way, or say in your answer what was left undone."
)
OUT_OF_TIME = "max_time"


def run(arguments: list[str], word: Word | None = None, *, reads_input: bool = True) -> int:
    """`word` is a person's, on what a parked session waits for."""
    has_output = guard_streams()
    try:
        line = read(arguments)
        at_terminal = line.prompt is not None or not is_piped() or line.has("plain")
        if at_terminal and not line.has("print"):
            from treadle.apps.cli.interactive import start

            return start(line)
        folder = _folder()
        settings = load(folder, line.settings(), trusted=lambda: is_trusted(folder))
        goes_on = line.has("continue") or line.has("resume")
        said: tuple[UserContent, ...] = ()
        if reads_input:
            added = [Path(folder, one).expanduser() for one in settings.add_dir]
            said = read_prompt(
                line.prompt, line.texts("file"), folder, added=added, optional=goes_on
            )
        if not said and not goes_on:
            raise UsageError("there is no prompt: write it after -p, or into standard input")
        schema = None
        if line.text("output_schema"):
            from treadle.apps.cli.answering import read_schema

            schema = read_schema(line.text("output_schema"))
        headless = Headless(line, settings, folder, said, schema, has_output, word)
        return asyncio.run(headless.work())
    except UsageError as error:
        warn(f"treadle: {error}")
        return exits.USAGE
    except TreadleError as error:
        warn(f"treadle: {shown(str(error))}")
        return exits.code_for(error)
    except KeyboardInterrupt:
        return exits.ABORTED


def _folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder does not exist any more; go to one that does"
        ) from error


class Spending:
    """An observer that adds up what a run and its child agents used, however it ends."""

    def __init__(self) -> None:
        self.usage = Usage()

    def on_event(self, event: Event) -> None:
        while isinstance(event, ChildEvent):
            event = event.child
        if isinstance(event, UsageUpdated):
            self.usage = self.usage + event.last

    def on_item(self, position: int, item: Item) -> None:
        return None


class Headless:
    """One run, from the wiring to the last line."""

    def __init__(
        self,
        line: CommandLine,
        settings: Settings,
        folder: Path,
        said: tuple[UserContent, ...],
        schema: dict[str, object] | None,
        has_output: bool,
        word: Word | None = None,
    ) -> None:
        self._line = line
        self._settings = settings
        self._folder = folder
        self._said = said
        self._schema = schema
        self._has_output = has_output
        self._format = line.text("output_format") or "text"
        self._word = word
        self._ruled: frozenset[str] = frozenset()  # calls that the person's ruling is about
        self._wait: Postponed | None = None
        self._spent = Spending()
        self._denied: list[str] = []
        self._driver: Driver | None = None
        self._task: asyncio.Task[object] | None = None
        self._is_out_of_time = False
        self._began = time.monotonic()
        loud = line.has("verbose") or (sys.stderr.isatty() and not line.has("quiet"))
        self._progress = Progress(verbose=line.has("verbose")) if loud else None

    async def work(self) -> int:
        """Do it; the exit code."""
        self._task = asyncio.current_task()
        self._out = Stdout(self._lose_reader)
        self._signals = Signals(self._stop)
        self._signals.listen()
        harden()
        try:
            report = discreet(await self._report())
            if self._format != "text":
                from treadle.observe.jsonlines import line_of

                self._out.write_json(line_of(report).decode())
            elif report.text:
                self._out.write_text(report.text)
            await self._out.drain()
        except asyncio.CancelledError:
            if self._signals.code is None:
                raise
            return self._signals.code
        if self._out.gone is None or self._signals.code is not None:
            self._say_why(report)
        return self._delivered(report.exit_code)

    async def _report(self) -> Report:
        lines = self._lines()
        try:
            wired = await self._wired(lines)
        except TreadleError as error:
            return self._failed(error, "", "")
        name, session = wired.model.name, wired.store.session_id
        try:
            driver = wired.start(self._said or None)
            try:
                if lines is not None:
                    await self._begin_lines(lines, wired)
                self._driver = driver
                if wired.view is not None:
                    self._take_up(wired.view, driver)
                turn, output = await self._drive(wired, driver)
            except Postponed as wait:
                self._wait = wait
                await self._park(wait, wired, driver)
                return self._parked(wait, name, session)
            finally:
                await driver.aclose()
        except TreadleError as error:
            return self._failed(error, name, session)
        finally:
            self._driver = None
            await wired.aclose()
        return self._finished(turn, output, name, session)

    def _lines(self) -> Lines | None:
        if self._format != "stream-json":
            return None
        from treadle.apps.cli.lines import Lines

        return Lines(self._out)

    async def _begin_lines(self, lines: Lines, wired: Wired) -> None:
        from treadle.observe.jsonlines import line_of

        lines.session_id = wired.store.session_id
        await wired.agent.equipment.source.open()
        self._out.write_json(shown(line_of(self._first_line(wired)).decode()))

    async def _wired(self, lines: Lines | None) -> Wired:
        line, observers = self._line, list[Observer]([self._spent])
        if lines is not None:
            observers.append(lines)
        if self._progress is not None:
            observers.append(self._progress)
        resume = line.text("resume") if line.has("resume") else None
        opening = Opening(
            resume="" if line.has("continue") else resume,
            allow=line.texts("allow"),
            deny=line.texts("deny"),
            until=line.text("until"),
            schema=self._schema,
            chars=sum(len(part.text) for part in self._said if isinstance(part, Text)),
            park=line.has("park"),
        )
        wired = await wire(
            self._settings,
            self._folder,
            opening,
            approve=self._decide,
            observers=observers,
            tell=self._note,
        )
        for note in wired.notes:
            self._note(note)
        if self._word is None or not self._word.answers:
            return wired
        from treadle.apps.cli.parked import answer

        try:
            return await answer(wired, self._word.answers)
        except BaseException:
            await wired.store.aclose()
            await wired.aclose()
            raise

    def _take_up(self, view: View, driver: Driver) -> None:
        """Go on where another process stopped."""
        move = pending(view.transcript)
        if isinstance(move, RunTools):
            self._ruled = frozenset(call.id for call in move.calls)
        if view.intents and not self._line.has("quiet"):
            driver.watch(Doubts(view, lambda text: warn(f"treadle: {shown(text)}")))

    async def _drive(self, wired: Wired, driver: Driver) -> tuple[TurnResult, object]:
        """One turn, or with a schema as many as it takes to an answer that fits."""
        limit = self._settings.max_time
        timer = None
        if limit is not None:
            timer = asyncio.get_running_loop().call_later(limit, self._run_out_of_time)
        try:
            if self._schema is None:
                return await wired.agent.finish(driver), None
            from treadle.apps.cli.answering import answer

            return await answer(wired, driver, self._schema)
        finally:
            if timer is not None:
                timer.cancel()

    # --- what happens meanwhile ------------------------------------------------------------

    def _decide(self, approval: PendingApproval) -> bool | str:
        ruling = self._word.ruling if approval.call.id in self._ruled and self._word else None
        is_question = approval.reason == A_QUESTION
        if ruling is not None and not (is_question and ruling is True):
            return ruling
        waiting = self._driver.approvals if self._driver is not None else ()
        if self._line.has("park") and approval in waiting:  # and it is not a child's
            if is_question:
                raise self._question(waiting)
            detail = f"{approval.summary} waits for somebody's approval"
            raise Postponed("approval", Wake("answer"), detail)
        self._denied.append(approval.summary)
        return NOBODY.format(reason=approval.reason)

    def _question(self, waiting: Sequence[PendingApproval]) -> Postponed:
        from treadle.apps.cli.parked import asked

        calls = tuple(one.call for one in waiting if one.reason == A_QUESTION)
        return Postponed("question", Wake("answer"), f"it asks: {asked(calls)}")

    async def _park(self, wait: Postponed, wired: Wired, driver: Driver) -> None:
        from treadle.core.transcript.entries import Parked
        from treadle.sessions.parking import park

        turn_id = driver.trace[-1].turn_id
        await park(wired.store, Parked(turn_id, wait.reason, wait.wake, wait.detail))

    def _note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.say(text)

    def _stop(self, reason: str) -> None:
        if self._driver is not None:
            self._driver.interrupt(reason)
        elif self._task is not None:
            self._task.cancel()

    def _run_out_of_time(self) -> None:
        self._is_out_of_time = True
        self._stop(OUT_OF_TIME)

    def _lose_reader(self, error: OSError) -> None:
        # In the other formats nothing is written before the work is done.
        if self._format == "stream-json" and self._driver is not None:
            self._driver.interrupt("nobody reads standard output")

    # --- what came of it -------------------------------------------------------------------

    def _finished(self, turn: TurnResult, output: object, model: str, session: str) -> Report:
        reason, detail = str(turn.reason), detail_of(turn)
        if turn.reason == "aborted" and self._is_out_of_time:
            reason = "budget_exceeded"
            detail = f"{self._settings.max_time:g} s have passed, which is the limit"
        code = exits.OF_REASON[reason]
        if turn.error is not None:
            code = exits.code_for(turn.error)
        elif reason == "end_turn" and self._denied:
            code = exits.APPROVAL_NEEDED
        elif reason == "end_turn" and not turn.text.strip() and not turn.rounds:
            code, detail = exits.ERROR, "the model said and did nothing"
        if self._signals.code is not None and reason == "aborted":
            code = self._signals.code
        error = str(turn.error) if turn.error is not None else ""
        return self._reported(
            reason, code, model, session, turn.text, output, error, detail, turn.rounds
        )

    def _parked(self, wait: Postponed, model: str, session: str) -> Report:
        return self._reported("parked", exits.PARKED, model, session, detail=wait.detail)

    def _failed(self, error: TreadleError, model: str, session: str) -> Report:
        code = exits.USAGE if isinstance(error, LoopError) else exits.code_for(error)
        return self._reported("error", code, model, session, error=str(error))

    def _reported(
        self,
        reason: str,
        code: int,
        model: str,
        session: str,
        text: str = "",
        output: object = None,
        error: str = "",
        detail: str = "",
        rounds: int = 0,
    ) -> Report:
        return Report(
            version=VERSION,
            session_id=session,
            model=model,
            reason=reason,
            exit_code=code,
            text=text,
            output=output,
            error=error,
            detail=detail,
            rounds=rounds,
            seconds=round(time.monotonic() - self._began, 3),
            usage=self._spent.usage,
            denied=tuple(self._denied),
        )

    def _first_line(self, wired: Wired) -> Began:
        tools = tuple(tool.spec.name for tool in wired.agent.equipment.source.tools())
        return Began(
            version=VERSION,
            session_id=wired.store.session_id,
            model=wired.model.name,
            folder=str(self._folder),
            permission_mode=self._settings.permission_mode,
            tools=tools,
            notes=wired.notes,
        )

    def _say_why(self, report: Report) -> None:
        """One sentence for everything but success; on success, what it took, if somebody looks."""
        if report.exit_code != exits.DONE:
            from treadle.apps.cli.reasons import sentence

            warn(f"treadle: {sentence(report, self._wait)}")
        if self._progress is not None:
            self._progress.say(
                f"{used(report.usage)}, {report.seconds:.1f} s, session {report.session_id}"
            )

    def _delivered(self, code: int) -> int:
        gone = self._out.gone
        if gone is None and self._has_output:
            return code
        if self._signals.code is not None:
            return self._signals.code
        if gone is not None and gone.errno == errno.EPIPE:
            return exits.NO_READER
        why = os.strerror(gone.errno or 0) if gone is not None else "it was closed"
        warn(f"treadle: the answer could not be written to standard output: {why}")
        return exits.DISK
