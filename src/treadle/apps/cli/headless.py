"""`treadle -p`: one prompt, one answer, one exit code. For scripts, pipes and servers.

Builds the agent, runs one turn and prints the result. The user is never asked: a call that needs
approval is denied with a reason, and the exit code says so. With --suspend the turn is suspended
instead, and `treadle resume` continues it. Uses output.py, run_end.py, signals.py and the assembly;
used by start.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.agents.agent_settings import ApproverAnswer
from treadle.apps.assembly import AgentSession, SessionOptions, build_agent
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.assembly.suspend import TurnSuspended
from treadle.apps.cli.denied_calls import DeniedCalls
from treadle.apps.cli.options import CommandLine
from treadle.apps.cli.output import (
    ProgressPrinter,
    RunReport,
    Stdout,
    StreamJsonHeader,
    WarningPrinter,
    format_usage,
    redact_report,
)
from treadle.apps.cli.run_end import (
    RunEnd,
    explain_exit,
    find_unwritten_answer,
    report_error,
    report_turn,
)
from treadle.apps.cli.signals import SignalListener, harden_process
from treadle.apps.console import exit_codes
from treadle.apps.console.console import print_error
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.settings import Settings
from treadle.core.contracts.observer import Observer
from treadle.core.errors import TreadleError
from treadle.core.events import TurnResult, WarningRaised
from treadle.core.loop.driver import Driver
from treadle.core.steps import Denial, PendingApproval
from treadle.core.transcript import RunTools, Text, UserContent, UserItem, pending
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.state import SessionState
from treadle.observe.totals import Totals

if TYPE_CHECKING:
    from treadle.apps.cli.background_wait import BackgroundWait
    from treadle.apps.cli.custom_command import NamedCommand
    from treadle.apps.cli.resume_answers import ResumeInput
    from treadle.apps.cli.stream_json import StreamJsonWriter
    from treadle.apps.cli.text_stream import TextStream

DRY_RUN = "dry run: `treadle apply` shows what was recorded, and carries it out"
TIME_LIMIT_REASON = "max_time"


class HeadlessRun:
    """One run, from building the agent to the last line of output."""

    def __init__(
        self,
        command_line: CommandLine,
        settings: Settings,
        folder: Path,
        prompt: tuple[UserContent, ...],
        schema: dict[str, object] | None,
        has_output: bool,
        resume_input: ResumeInput | None = None,
        command: NamedCommand | None = None,
    ) -> None:
        self._command_line = command_line
        self._command = command
        self._settings = settings
        self._folder = folder
        self._prompt = prompt
        self._schema, self._has_output = schema, has_output
        self._format = command_line.text("output_format") or "text"
        self._resume_input = resume_input
        self._resumed: set[tuple[str, str]] = set()  # session and call that it is about
        self._suspended: TurnSuspended | None = None
        self._totals = Totals()
        self._model = self._session_id = ""
        self._denied = DeniedCalls()
        self._driver: Driver | None = None
        self._task: asyncio.Task[object] | None = None
        self._background: BackgroundWait | None = None
        self._is_time_limit_reached = False
        self._started_at = time.monotonic()
        verbose = command_line.has("verbose")
        shows_progress = verbose or (sys.stderr.isatty() and not command_line.has("quiet"))
        self._text_stream: TextStream | None = None
        self._progress = ProgressPrinter(verbose=verbose) if shows_progress else None

    async def run(self) -> int:
        """Run the turn and print the result; returns the exit code."""
        self._task = asyncio.current_task()
        self._stdout = Stdout(self._on_stdout_closed)
        self._signals = SignalListener(self._interrupt)
        self._signals.listen()
        harden_process()
        try:
            report = redact_report(self._complete_report(await self._run_session()))
            if self._format != "text":
                from treadle.observe.jsonlines import encode_line

                self._stdout.write_json(encode_line(report).decode())
            elif report.text and not self._is_text_shown(report.text):
                self._stdout.write_text(report.text, is_raw=self._command_line.has("raw"))
            await self._stdout.drain()
        except asyncio.CancelledError:
            if self._signals.exit_code is None:
                raise
            return self._signals.exit_code
        if self._stdout.error is None or self._signals.exit_code is not None:
            self._print_summary(report)
        return self._final_exit_code(report.exit_code)

    def _is_text_shown(self, text: str) -> bool:
        return self._text_stream is not None and self._text_stream.has_printed(text)

    def _make_text_stream(self) -> TextStream | None:
        """At a terminal the text appears as it is written; --quiet prints the answer alone."""
        is_text = self._format == "text" and self._schema is None
        if not is_text or not self._stdout.is_terminal or self._command_line.has("quiet"):
            return None
        from treadle.apps.cli.text_stream import TextStream

        return TextStream(self._stdout)

    async def _run_session(self) -> RunReport:
        stream_json = self._make_stream_json()
        try:
            session = await self._build_session(stream_json)
        except TreadleError as error:
            return report_error(error)
        self._model, self._session_id = session.model.name, session.store.session_id
        driver: Driver | None = None
        try:
            if self._command is not None:
                # The rest of the prompt are piped text and attached files.
                message = await self._command.expand(session, self._settings)
                self._prompt = (*message, *self._prompt[1:])
            elif (self._command_line.prompt or "").startswith("/"):
                from treadle.apps.cli.custom_command import expand_server_prompt

                self._prompt = await expand_server_prompt(session, self._settings, self._prompt)
            driver = session.start(self._prompt or None)
            try:
                if stream_json is not None:
                    await self._start_stream_json(stream_json, session)
                self._driver = driver
                if session.state is not None:
                    await self._prepare_resume(session.state, driver)
                turn, output = await self._run_turn(session, driver)
            except TurnSuspended as suspended:
                self._suspended = suspended
                await self._suspend(suspended, session, driver)
                code, detail = exit_codes.SUSPENDED, suspended.detail
                return RunReport(reason="suspended", exit_code=code, detail=detail)
            finally:
                self._report_stopped(driver)
                await driver.aclose()
        except TreadleError as error:
            answer = find_unwritten_answer(session.state, driver)
            report = report_error(error, "" if self._prompt else self._session_id)
            return msgspec.structs.replace(report, text=answer)
        finally:
            self._driver = None
            await session.aclose()
        return report_turn(turn, output, turn.text, self._make_end())

    def _make_stream_json(self) -> StreamJsonWriter | None:
        if self._format != "stream-json":
            return None
        from treadle.apps.cli.stream_json import StreamJsonWriter

        return StreamJsonWriter(self._stdout)

    async def _start_stream_json(self, writer: StreamJsonWriter, session: AgentSession) -> None:
        from treadle.observe.jsonlines import encode_line

        writer.session_id = session.store.session_id
        await session.agent.config.source.open()
        header = encode_line(self._make_header(session)).decode()
        self._stdout.write_json(redact_for_display(header))

    async def _build_session(self, stream_json: StreamJsonWriter | None) -> AgentSession:
        await self._prepare_embedded_model()
        line, observers = self._command_line, list[Observer]([self._totals])
        self._text_stream = self._make_text_stream()
        for writer in (stream_json, self._text_stream):
            if writer is not None:
                observers.append(writer)
        observers.append(self._progress or WarningPrinter(is_quiet=line.has("quiet")))
        resume = line.text("resume") if line.has("resume") else None
        options = SessionOptions(
            resume="" if line.has("continue") else resume,
            allow=line.texts("allow"),
            deny=line.texts("deny"),
            until=line.text("until"),
            output_schema=self._schema,
            prompt_chars=sum(len(part.text) for part in self._prompt if isinstance(part, Text)),
            suspend=line.has("suspend"),
            dry_run=line.has("dry_run"),
        )
        session = await build_agent(
            self._settings,
            self._folder,
            options,
            approve=self._decide,
            hooks=(self._denied,),
            observers=observers,
            notify=self._print_note,
            warn=lambda text: self._print_warning(text, stream_json),
        )
        for note in session.notes:
            if note not in session.session_warnings:
                self._print_note(note)
        for warning in session.session_warnings:
            print_error(f"treadle: {redact_for_display(warning)}")
        if self._progress is None and not self._command_line.has("quiet"):
            self._name_unused_files()
            self._name_embedded_model(session)
        if self._resume_input is None or not self._resume_input.answers:
            return session
        from treadle.apps.cli.resume_answers import record_answers

        try:
            return await record_answers(session, self._resume_input.answers)
        except BaseException:
            await session.abandon()
            raise

    async def _prepare_embedded_model(self) -> None:
        from treadle.apps.console import embedded_setup

        if embedded_setup.is_maybe_needed(self._settings):
            await embedded_setup.download_named(self._settings)

    def _name_embedded_model(self, session: AgentSession) -> None:
        """A tiny model is often wrong: the user learns which model it was, even in a script."""
        if not self._settings.model and session.model.name.startswith("embedded/"):
            print_error(f"treadle: {session.notes[0]}")

    def _name_unused_files(self) -> None:
        """A script runs in a folder that its author trusts: they learn that Treadle does not."""
        if is_trusted(self._folder):
            return
        from treadle.apps.settings.extensions import list_extension_files

        if files := list_extension_files(self._folder):
            unused = f"not used, except for deny and ask rules: {', '.join(files)}"
            print_error(f"treadle: this folder is not trusted; {unused} (run `treadle trust`)")

    async def _prepare_resume(self, view: SessionState, driver: Driver) -> None:
        """Prepare for open calls of an earlier process."""
        if not self._prompt and not any(isinstance(one.item, UserItem) for one in view.queued):
            driver.retry()  # a turn that a signal or an error ended is continued
        if isinstance(move := pending(view.transcript), RunTools):
            self._resumed = {(self._session_id, call.id) for call in move.calls}
            if self._resume_input is not None:
                await driver.restore_approvals()  # also of child agents
                self._resumed |= {(one.session_id, one.call.id) for one in driver.approvals}
        if view.intents and not self._command_line.has("quiet"):
            from treadle.apps.conversation.crash_report import CrashReport

            tell = lambda text: print_error(f"treadle: {redact_for_display(text)}")  # noqa: E731
            driver.watch(CrashReport(view, tell))

    async def _run_turn(self, session: AgentSession, driver: Driver) -> tuple[TurnResult, object]:
        """One turn, or with a schema as many as it takes until the answer matches."""
        limit = self._settings.max_time
        timer = None
        if limit is not None:
            timer = asyncio.get_running_loop().call_later(limit, self._on_time_limit)
        try:
            turn, output = await self._run_one_turn(session, driver)
            if turn.reason != "end_turn" or not driver.tasks.list():
                return turn, output
            from treadle.apps.cli.background_wait import BackgroundWait

            seconds, run_turn = self._settings.background_wait, partial(self._run_one_turn, session)
            self._background = BackgroundWait(driver, seconds, self._print_note)
            return await self._background.finish(turn, output, partial(run_turn, driver))
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_one_turn(
        self, session: AgentSession, driver: Driver
    ) -> tuple[TurnResult, object]:
        if self._schema is None:
            return await session.agent.finish_turn(driver), None
        from treadle.apps.cli.structured_output import run_structured_turn

        return await run_structured_turn(session, driver)

    def _report_stopped(self, driver: Driver) -> None:
        """Name the background tasks that end with the run."""
        running = [task.summary for task in driver.tasks.list() if task.state == "running"]
        if running and not self._command_line.has("quiet"):
            text = f"stopped at the end of the run: {', '.join(running)}"
            print_error(f"treadle: {redact_for_display(text)}")

    # --- during the turn -------------------------------------------------------------------

    def _decide(self, approval: PendingApproval) -> bool | Denial | Awaitable[ApproverAnswer]:
        decision = None
        session_id = approval.session_id or self._session_id
        if self._resume_input and (session_id, approval.call.id) in self._resumed:
            decision = self._resume_input.decision
        is_question = approval.kind == "question"
        if decision is not None and not (is_question and decision is True):
            return decision if isinstance(decision, bool) else Denial(decision)
        pending_approvals = self._driver.approvals if self._driver is not None else ()
        is_own = approval in pending_approvals  # not a subagent's
        if self._command_line.has("suspend") and is_own:
            if is_question:
                raise self._question_suspension(pending_approvals)
            detail = f"{approval.summary} needs approval"
            raise TurnSuspended("approval", WakeCondition("answer"), detail)
        if self._progress is not None:
            self._progress.print_denial(approval)
        return self._denied.deny(approval)

    def _question_suspension(self, approvals: Sequence[PendingApproval]) -> TurnSuspended:
        from treadle.apps.cli.resume_answers import format_questions

        calls = tuple(approval.call for approval in approvals if approval.kind == "question")
        detail = f"the model asks: {format_questions(calls)}"
        return TurnSuspended("question", WakeCondition("answer"), detail)

    async def _suspend(self, wait: TurnSuspended, session: AgentSession, driver: Driver) -> None:
        from treadle.core.transcript.entries import Suspended
        from treadle.sessions.detached.suspend import suspend_turn

        entry = Suspended(driver.trace[-1].turn_id, wait.reason, wait.wake, wait.detail)
        await suspend_turn(session.store, entry)
        await driver.children.freeze()  # what is stopped now is not over
        await driver.log.freeze()

    def _print_note(self, text: str) -> None:
        if self._progress is not None:
            self._progress.print_line(text)

    def _print_warning(self, text: str, stream_json: StreamJsonWriter | None) -> None:
        """Unlike a note it is printed without a terminal, too."""
        if stream_json is not None:
            stream_json.on_event(WarningRaised(self._session_id, "", 0, text))
        if self._progress is not None:
            self._progress.print_line(text)
        elif stream_json is None and not self._command_line.has("quiet"):
            print_error(f"treadle: {redact_for_display(text)}")

    def _interrupt(self, reason: str) -> None:
        if self._background is not None:
            self._background.interrupt()
        if self._driver is not None:
            self._driver.interrupt(reason)
        elif self._task is not None:
            self._task.cancel()

    def _on_time_limit(self) -> None:
        self._is_time_limit_reached = True
        self._interrupt(TIME_LIMIT_REASON)

    def _on_stdout_closed(self, error: OSError) -> None:
        # The other formats write only at the end.
        if self._format == "stream-json" and self._driver is not None:
            self._driver.interrupt("stdout is closed")

    # --- result ----------------------------------------------------------------------------

    def _make_end(self) -> RunEnd:
        return RunEnd(
            self._settings,
            bool(self._denied.approvals),
            self._is_time_limit_reached,
            self._background is not None and self._background.is_over,
            self._signals.exit_code,
        )

    def _complete_report(self, report: RunReport) -> RunReport:
        return msgspec.structs.replace(
            report,
            session_id=self._session_id,
            model=self._model,
            seconds=round(time.monotonic() - self._started_at, 3),
            usage=self._totals.usage,
            denied=self._denied.list_all(),
            missing_rules=self._denied.list_missing_rules(),
        )

    def _make_header(self, session: AgentSession) -> StreamJsonHeader:
        return StreamJsonHeader(
            session_id=self._session_id,
            model=self._model,
            folder=str(self._folder),
            permission_mode=self._settings.permission_mode,
            tools=tuple(
                tool.spec.name
                for tool in session.agent.config.source.tools()
                if not tool.spec.unlisted
            ),
            notes=session.notes,
        )

    def _print_summary(self, report: RunReport) -> None:
        """A line about a failure, and about a dry run; and the usage, if progress is shown."""
        line = self._command_line
        if report.exit_code != exit_codes.SUCCESS:
            about = (line.settings(), line.text("until"), line.program)
            denied = self._denied.list_needing_approval()
            message = explain_exit(report, denied, self._suspended, self._settings, *about)
            if message:
                print_error(f"treadle: {message}")
        if self._session_id and line.has("dry_run") and not line.has("quiet"):
            print_error(f"treadle: {DRY_RUN}")
        if self._progress is not None:
            session = f", session {report.session_id}" if report.session_id else ""
            self._progress.print_line(
                f"{format_usage(report.usage)}, {report.seconds:.1f} s{session}"
            )

    def _final_exit_code(self, code: int) -> int:
        error = self._stdout.error
        if error is None and self._has_output:
            return code
        if self._signals.exit_code is not None:
            return self._signals.exit_code
        if error is not None and error.errno == errno.EPIPE:
            return exit_codes.BROKEN_PIPE
        problem = os.strerror(error.errno or 0) if error is not None else "it is closed"
        print_error(f"treadle: cannot write the answer to stdout: {problem}")
        return exit_codes.IO_ERROR
