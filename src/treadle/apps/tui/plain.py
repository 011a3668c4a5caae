"""The terminal line by line: for screen readers, for terminals that can do no more, for pipes.

No alternate screen, no cursor movement, nothing is drawn over. What is said while it works is
steered in; ctrl+c stops, twice leaves. Questions are numbered, and answered by a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TextIO

from treadle.apps.tui import commands, diffs, painting, trusting
from treadle.apps.tui.attaching import Attachments
from treadle.apps.tui.blocks import Block, Call, Code, Note, Said, Shell, Thought, Tone, Words
from treadle.apps.tui.choice import Option
from treadle.apps.tui.conversation import Conversation, Question
from treadle.apps.tui.custom import CustomCommand, custom_commands
from treadle.apps.tui.host import Ask, Doors, Host
from treadle.apps.tui.markdown import visible
from treadle.apps.tui.options import Options
from treadle.apps.tui.shelling import OwnCommands
from treadle.apps.wiring.discretion import shown
from treadle.core import terminal
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import PendingApproval

PATIENCE = 1.5


def run_plain(host: Host, options: Options) -> int:
    return asyncio.run(Plain(host, options).run())


class Plain:
    """Implements commands.Face on two streams."""

    def __init__(self, host: Host, options: Options, out: TextIO | None = None) -> None:
        self.host = host
        self.custom: Sequence[CustomCommand] = ()
        self.doors = Doors(self._approve, self._ask, self.tell)
        self._options = options
        self._out = out or sys.stdout
        self._attachments = Attachments(host.folder, host.added)
        self._own = OwnCommands(host)
        self._conversation: Conversation | None = None
        self._lines: deque[str | None] = deque()  # typed, not yet taken; None is the end
        self._asked: asyncio.Future[str | None] | None = None
        self._is_tty = os.isatty(0)
        self._printed = 0  # blocks that are on the screen, whole
        self._begun = 0  # characters of the block that grows
        self._over: asyncio.Event = asyncio.Event()
        self._code = 0
        self._work: set[asyncio.Task[None]] = set()
        self._asking: Question | None = None
        self._stops = 0

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "there is a session by now"
        return self._conversation

    # --- the whole -----------------------------------------------------------------------

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, 143)
        reader = _Reader(self._heard)
        try:
            if await self._begin():
                await self._over.wait()
        finally:
            reader.close()
            for task in list(self._work):
                task.cancel()
            await self._close()
        return self._code

    async def _begin(self) -> bool:
        try:
            if not await trusting.at_the_start(self.host, self.choose):
                return False
            driver = await self.host.open(self.doors, resume=self._options.resume)
        except (TreadleError, OSError) as error:
            print(f"treadle: {error}", file=sys.stderr)
            self._code = 2
            return False
        self._take_up(driver)
        if self._options.prompt:
            self._send(self._options.prompt)
        self._pump()
        return True

    def _take_up(self, driver: Driver) -> None:
        folders = [self.host.folder] if self.host.is_trusted else []
        self.custom, problems = custom_commands([*folders, Path.home()], home=Path.home())
        self._conversation = Conversation(driver, self._show)
        if self.host.is_declined and not self.host.is_trusted:
            self.conversation.show(Note(trusting.DECLINED))
        for note in (*self.host.notes, *problems):
            self.conversation.show(Note(note))
        if self.conversation.is_unfinished:
            self.conversation.note("the last turn was not finished: an empty line goes on with it")
        self.conversation.start()
        self._printed = self._begun = 0
        self._show()
        self._prompt()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                if self._conversation is not None:
                    await self._conversation.aclose()
                await self.host.aclose()
        except TimeoutError:
            pass  # the journal is only appended to: it is whole as it is

    def _leave(self, code: int) -> None:
        self._code = code
        self._over.set()

    def _stop(self) -> None:
        self._stops += 1
        if self._conversation is not None and self._conversation.view.is_busy and self._stops == 1:
            self._conversation.interrupt()
        elif self._stops == 1 and self._own.stop():
            self._stops = 0
        else:
            self._leave(130 if self._stops > 1 else 0)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._follow(asyncio.get_running_loop().create_task(work))

    def _follow(self, task: asyncio.Task[None]) -> None:
        self._work.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.tell(f"{type(task.exception()).__name__}: {task.exception()}", "error")
        self._pump()

    # --- what is typed -------------------------------------------------------------------

    def _heard(self, line: str | None) -> None:
        self._lines.append(line)
        self._pump()

    def _pump(self) -> None:
        """Hand on the lines that can be taken now: an answer to a question, else a message.

        From a terminal a message may come at any time; lines of a file or a pipe wait their turn,
        so that an answer in them is not taken for a message.
        """
        while self._lines:
            if self._asked is not None:
                if not self._asked.done():
                    self._asked.set_result(self._lines[0] and self._lines.popleft())
                return
            is_resting = (
                self._conversation is not None
                and self._conversation.is_resting
                and not self._conversation.questions
                and not self._work
            )
            if self._conversation is None or not (is_resting or (self._is_tty and self._lines[0])):
                return
            line = self._lines.popleft()
            self._stops = 0
            if line is None:
                self._leave(0)
            else:
                self._send(line)

    def _send(self, text: str) -> None:
        line = text.strip()
        if not line:
            if self.conversation.is_unfinished:
                self.conversation.go_on()
        elif line.startswith("/"):
            self._do(commands.perform(self, line))
        elif line.startswith("!"):
            self._follow(self._own.start(self.conversation, line[1:].strip()))
        else:
            self.conversation.say(self._own.with_ran(self._attachments.item(text)))

    # --- what is shown -------------------------------------------------------------------

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._leave(141)

    def _prompt(self) -> None:
        self._write(f"[{self.host.mode}] > " if self._out.isatty() else "")

    def _show(self) -> None:
        """Print what is new; a block that still grows, as far as it is."""
        if self._conversation is None:
            return
        view = self._conversation.view
        was_busy = self._begun or self._printed < len(view.blocks)
        while self._printed < len(view.blocks):
            block = view.blocks[self._printed]
            is_growing = self._printed == view.stream
            if isinstance(block, Call) and not (block.is_over or block.state == "background"):
                break
            if isinstance(block, Shell) and not block.is_over:
                break
            if isinstance(block, Words | Code):
                self._write(visible(block.text[self._begun :]))
                self._begun = len(block.text)
            elif not is_growing:
                self._write(visible(self._told(block)))
            if is_growing:
                break
            if isinstance(block, Words | Code):
                self._write("" if block.text.endswith("\n") else "\n")
            self._printed, self._begun = self._printed + 1, 0
        self._sync_questions()
        if was_busy and not view.is_busy and self._printed == len(view.blocks):
            self._prompt()
        if self._lines:
            asyncio.get_running_loop().call_soon(self._pump)

    def _told(self, block: Block) -> str:
        match block:
            case Said(text=text, steered=steered):
                return f"You{' (meanwhile)' if steered else ''}: {text}\n"
            case Thought(text=text, tight=tight):
                return "" if tight else f"Thinking: {' '.join(text.split())[:200]}\n"
            case Call():
                return self._call(block)
            case Shell(exit_code=code):
                ended = f"exit code {code}\n" if code else ""
                return f"{painting.plain_text(block)}\n{ended}"
            case Note(text=text, tone=tone):
                return f"{'Error: ' if tone == 'error' else ''}{text}\n"
        return ""

    def _call(self, call: Call) -> str:
        line = f"Tool {painting.title(call)}: {call.state}"
        if diffs.is_diff(call.display):
            return f"{line}\n{call.display}\n"
        first = (call.reason if call.state == "denied" else call.result).strip().split("\n")
        more = f" (and {len(first) - 1} more lines)" if len(first) > 1 else ""
        return f"{line}. {first[0][:200]}{more}\n"

    def tell(self, text: str, tone: Tone = "plain") -> None:
        self._write(visible(shown(text)) + "\n")

    # --- questions -----------------------------------------------------------------------

    async def _approve(self, approval: PendingApproval) -> bool | str:
        return await self.conversation.ask_approval(approval)

    async def _ask(self, ask: Ask) -> str | None:
        return await self.conversation.ask(ask)

    def _sync_questions(self) -> None:
        questions = self.conversation.questions
        first = questions[0] if questions else None
        if first is not None and first is not self._asking:
            self._asking = first
            self._do(self._settle(first))

    async def _settle(self, question: Question) -> None:
        if question.ask is not None:
            options = [Option(label, label, about) for label, about in question.ask.choices]
            self._write(visible(question.ask.question) + "\n")
            answer = await self.choose("Answer", options) if options else await self._line("> ")
            self.conversation.answer(question, answer)
            return
        approval = question.approval
        assert approval is not None, "a question is one or the other"
        asked = f"May it {approval.summary.strip('[]')}? {approval.reason}"
        self._write(f"\n{terminal.visible(asked)}\n")
        preview = await self.host.preview(approval.call)
        self._write(terminal.visible(preview or approval.call.raw, keep="\n\t") + "\n")
        options = [Option("y", "yes")]
        if approval.rules and not question.is_child:
            options.append(Option("a", terminal.visible(f"always: {', '.join(approval.rules)}")))
        options += [Option("n", "no, and say why"), Option("s", "stop")]
        match await self.choose("Allow", options):
            case "y":
                self.conversation.approve(question)
            case "a":
                self.conversation.approve(question, always=True)
            case "n":
                self.conversation.deny(question, (await self._line("Why not? ") or "").strip())
            case _:
                self.conversation.interrupt()

    async def _line(self, question: str) -> str | None:
        self._write(question)
        self._asked = asyncio.get_running_loop().create_future()
        self._pump()
        try:
            return await self._asked
        finally:
            self._asked = None

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        *,
        filters: bool = False,
        words: str = "",
        now: str = "",
    ) -> str | None:
        if words:
            self._write(visible(f"{words}\n\n"))
        for number, option in enumerate(options, 1):
            about = f" ({option.about})" if option.about else ""
            self._write(visible(f"  {number} {option.label}{about}\n"))
        while True:
            line = await self._line(
                f"{title}{'' if title[-1] == '?' else ','} 1 to {len(options)}: "
            )
            given = (line or "").strip()
            if not given:
                return None
            if given.isdigit() and 1 <= int(given) <= len(options):
                return options[int(given) - 1].value
            for option in options:
                if given.lower() in (option.value.lower(), option.label.lower()):
                    return option.value

    async def rewind(self) -> None:
        turns = self.host.turns()
        options = [Option(one.turn_id, one.text[:80] or "(went on)") for one in reversed(turns)]
        chosen = await self.choose("Go back to before", options)
        if chosen is None:
            return
        changes = await self.host.changes(chosen)
        for change in changes:
            self.tell(f"  {change.path} would be {change.kind}")
        files = bool(changes) and (
            await self.choose("Files", [Option("y", "files too"), Option("n", "only the words")])
            == "y"
        )

        async def opening() -> Driver:
            driver, words = await self.host.rewind(chosen, files=files)
            self.tell(words or "went back")
            return driver

        await self.move(opening)

    async def move(self, opening: Callable[[], Awaitable[Driver]]) -> None:
        driver = self.conversation.driver
        before = driver.session_id if len(driver.history) else None
        await self.conversation.aclose()
        try:
            driver = await opening()
        except (TreadleError, OSError) as error:
            self.tell(str(error), "error")
            driver = await self.host.open(self.doors, resume=before)
        self._take_up(driver)

    def put(self, text: str) -> None:
        self.tell(f"the text was: {text}")

    def change_theme(self, name: str) -> None:
        self.tell("there are no colours here")

    def changed_mode(self) -> None:
        self.tell(f"{self.host.mode}: {commands.MODES.get(self.host.mode, '')}")

    def quit(self) -> None:
        self._leave(0)


class _Reader:
    """Lines from standard input, without a thread and without making it non-blocking: the terminal
    is shared with what we write to."""

    def __init__(self, heard: Callable[[str | None], None]) -> None:
        self._heard = heard
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        try:
            self._loop.add_reader(0, self._read)
        except PermissionError:  # a file: it can be read to its end at once
            while not self._is_closed:
                self._read()

    def _read(self) -> None:
        try:
            data = os.read(0, 65_536)
        except OSError:
            data = b""
        if not data:
            if self._rest:
                self._heard(self._rest.decode(errors="replace"))
            self._rest = b""
            self._heard(None)
            self.close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(line.decode(errors="replace"))

    def close(self) -> None:
        self._is_closed = True
        try:
            self._loop.remove_reader(0)
        except (OSError, ValueError):
            pass
