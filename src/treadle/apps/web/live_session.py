"""A session that the server has open: its host, its conversation and its feed."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from treadle.apps.conversation.completion import (
    Completion,
    find_completions,
    list_project_files,
)
from treadle.apps.conversation.conversation import Conversation, PendingQuestion
from treadle.apps.conversation.custom_commands import find_host_commands
from treadle.apps.conversation.host import Host, HostCallbacks, ModelQuestion, PlanAnswer
from treadle.apps.conversation.limits import LimitReport
from treadle.apps.conversation.shell_commands import ShellCommands
from treadle.apps.conversation.state.blocks import NoteBlock
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.view_state import ViewState, add_block
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.web.call_index import CallIndex
from treadle.apps.web.call_times import CallTimes
from treadle.apps.web.feed import Feed, PageState
from treadle.apps.web.render.regions import SessionFacts, render_regions
from treadle.apps.web.session_origin import SessionOrigin, read_origin
from treadle.core.errors import ConfigError, TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.usage import NO_USAGE
from treadle.lib.text.text import shorten_home

MAX_REMEMBERED_MESSAGES = 1_000
FILES_SECONDS = 10.0  # the names of the folder's files are listed at most once in this time


class LiveSession:
    """One session and everything that a tab can do with it. `on_change` is called when a list of
    sessions has to be drawn again, `on_rename` when its id has changed."""

    def __init__(
        self,
        host: Host,
        on_change: Callable[[], None],
        on_rename: Callable[[str, str], None] = lambda old_id, new_id: None,
    ) -> None:
        self.host = host
        self._on_rename = on_rename
        self.returned_text = ""  # queued messages that an interrupt gave back
        self._on_change = on_change
        self._calls = CallIndex()
        self._numbered: list[tuple[int, PendingQuestion]] = []
        self._last_question = 0
        self._received: OrderedDict[str, None] = OrderedDict()
        self._lock = asyncio.Lock()  # one change of the open session at a time
        self._shell_commands = ShellCommands(host)
        self._conversation: Conversation | None = None
        self._feed: Feed | None = None
        self._call_times = CallTimes()
        self.custom_commands: Sequence[CustomCommand] = ()
        self._files: Sequence[str] = ()
        self._files_listed_at = float("-inf")
        self._facts = SessionFacts()
        self._origin = SessionOrigin()
        self._changed_files: Mapping[str, str] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._was_idle = True
        self._listed_as: tuple[bool, bool, float] | None = None

    async def open(self, resume: str | None) -> None:
        """Open a new session, or continue one."""
        driver = await self.host.open(self._callbacks, resume=resume)
        if resume is not None:
            session_dir = await self.host.flush()
            await asyncio.to_thread(self._call_times.load, session_dir)
            self._origin = await asyncio.to_thread(read_origin, session_dir, driver.history)
        await self._attach(driver)

    @property
    def _callbacks(self) -> HostCallbacks:
        return HostCallbacks(self._ask_approval, self._ask_user, self.show_note)

    @property
    def conversation(self) -> Conversation:
        if self._conversation is None:
            raise ConfigError("the session is being opened again; try once more")
        return self._conversation

    @property
    def feed(self) -> Feed:
        assert self._feed is not None, "open() makes it"
        return self._feed

    @property
    def session_id(self) -> str:
        return self.feed.session_id

    @property
    def is_busy(self) -> bool:
        return self._conversation is not None and self._conversation.view.is_busy

    @property
    def is_waiting(self) -> bool:
        """Whether a question is open."""
        return self._conversation is not None and bool(self._conversation.questions)

    @property
    def is_used(self) -> bool:
        """Whether a tab shows it or something runs or waits in it."""
        if self.is_busy or self.is_waiting or self.feed.is_watched:
            return True
        has_tasks = self._conversation is not None and bool(self._conversation.view.tasks)
        return has_tasks or self._shell_commands.is_running

    @property
    def is_saved(self) -> bool:
        """Whether closing it loses nothing: an empty session is not on disk, and neither are
        outputs of `!` that go with the next message."""
        if self._conversation is None or self._shell_commands.recent_outputs:
            return False
        return bool(len(self._conversation.driver.history))

    @property
    def cost(self) -> float:
        """0 if it is unknown."""
        usage = self._conversation.view.usage if self._conversation is not None else NO_USAGE
        return usage.known_cost

    # --- the page --------------------------------------------------------------------------

    async def _attach(self, driver: Driver) -> None:
        driver.watch(self._call_times)  # before the conversation, which shows them
        self.custom_commands, problems = find_host_commands(self.host)
        about_model, *notes = self.host.notes or ("",)
        first = add_block(ViewState(), NoteBlock(about_model)) if about_model else ViewState()
        calls = CallIndex()

        def read_history() -> ViewState:
            view = build_view(driver.history, first)
            calls.update(view.blocks)
            return view

        # In a thread: a long session takes seconds, and other tabs continue.
        view = await asyncio.to_thread(read_history)
        conversation = Conversation(
            driver, self._mark_changed, self._return_messages, view, self.host.allow_for_session
        )
        conversation.view = self._origin.without_inherited(conversation.view)
        for note in (*notes, *problems):
            conversation.show_block(NoteBlock(note))
        driver.watch(LimitReport(self.host.list_limits, conversation.show_note))
        self._conversation, self._calls = conversation, calls
        self.refresh_facts()
        if self._feed is None:
            self._feed = Feed(driver.session_id, self._build_state, self._find_seconds)
        elif self._feed.session_id != driver.session_id:  # an empty one gets another id
            old_id = self._feed.session_id
            self._feed.restart(driver.session_id)
            self._on_rename(old_id, driver.session_id)
        conversation.start()
        self.refresh_changed_files()
        self._mark_changed()

    def _find_seconds(self, call_id: str) -> float | None:
        return self._call_times.find(call_id)

    def _build_state(self, version: int) -> PageState:
        conversation = self.conversation
        view = conversation.view
        self._calls.update(view.blocks)
        facts = msgspec.structs.replace(
            self._facts,
            title=self._origin.find_title(conversation.driver.history),
            changed_files=self._changed_files,
            banner=self.host.sandbox_problem,
            is_unfinished=conversation.has_unfinished_turn and conversation.is_idle,
        )
        regions = render_regions(view, facts, self._number_questions(), self._calls)
        return PageState(version, view.blocks, regions)

    def refresh_facts(self) -> None:
        """After a change of mode, model, limits or trust."""
        host, card = self.host, self.host.model
        max_cost = [line.value for line in host.list_limits() if line.setting == "max_cost"]
        self._facts = SessionFacts(
            folder=shorten_home(host.folder),
            session_id=host.driver.session_id,
            mode=host.mode,
            model=card.name.rpartition("/")[2],
            window=card.window,
            max_cost=max_cost[0] if max_cost else None,
            is_trusted=host.is_trusted or not host.list_extension_files(),
        )
        self._mark_changed()

    def refresh_changed_files(self) -> None:
        """After a turn, and after undo, redo and rewind: read which files the agent changed."""
        task = asyncio.get_running_loop().create_task(self._read_changed_files())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _read_changed_files(self) -> None:
        try:
            self._changed_files = await self.host.list_changed_files()
        except (TreadleError, OSError):
            return  # an empty session, or one that is closed meanwhile
        self._mark_changed()

    def _number_questions(self) -> list[tuple[int, PendingQuestion]]:
        """The open questions, each with a number that no other one ever had."""
        known = {id(question): number for number, question in self._numbered}
        numbered: list[tuple[int, PendingQuestion]] = []
        for question in self.conversation.questions:
            number = known.get(id(question), 0)
            if not number:
                self._last_question = number = self._last_question + 1
            numbered.append((number, question))
        self._numbered = numbered
        return numbered

    def _mark_changed(self) -> None:
        if self._feed is not None and self._conversation is not None:
            self._feed.mark_changed()
            is_idle = self._conversation.is_idle
            if is_idle and not self._was_idle:  # a turn has ended
                self._calls.update(self._conversation.view.blocks)
                if self._calls.has_new_calls():
                    self.refresh_changed_files()
            self._was_idle = is_idle
        row = (self.is_busy, self.is_waiting, self.cost)
        if row != self._listed_as:
            self._listed_as = row
            self._on_change()

    def show_note(self, text: str) -> None:
        if self._conversation is not None:
            self._conversation.show_note(text)

    def _return_messages(self, items: list[UserItem]) -> None:
        self.returned_text = "\n".join(item.text for item in items)

    # --- what a tab asks for ---------------------------------------------------------------

    def submit(self, item: UserItem, message_id: str) -> None:
        """Send a message. One that comes again under the same id, because the connection broke
        before the tab knew that it had arrived, is sent once."""
        if message_id in self._received:
            return
        self.conversation.submit(self._shell_commands.attach_outputs(item))
        self._received[message_id] = None
        if len(self._received) > MAX_REMEMBERED_MESSAGES:
            self._received.popitem(last=False)

    def run_shell_command(self, command: str) -> None:
        self._shell_commands.start(self.conversation, command)

    def find_question(self, number: int) -> PendingQuestion | None:
        """An open question; None if it was answered, perhaps in another tab."""
        return dict(self._number_questions()).get(number)

    def interrupt(self) -> None:
        if not self._shell_commands.stop():
            self.conversation.interrupt()

    async def reopen(self, open_driver: Callable[[], Awaitable[Driver]]) -> None:
        """Close the conversation and show the driver that `open_driver` opens; if that fails, the
        session is opened again as it was, and the error is raised."""
        async with self._lock:
            conversation = self.conversation
            driver = conversation.driver
            session_id = driver.session_id if len(driver.history) else None
            self.feed.refresh()  # no state can be built before the session is open again
            self._conversation = None
            await conversation.aclose()
            try:
                driver = await open_driver()
            except (TreadleError, OSError):
                await self._attach(await self.host.open(self._callbacks, resume=session_id))
                raise
            await self._attach(driver)

    def require_idle(self) -> None:
        if self.is_busy:
            raise ConfigError("the agent is working; stop the turn first")

    async def reopen_idle(self, open_driver: Callable[[], Awaitable[Driver]]) -> None:
        """`reopen`, unless a turn runs."""
        self.require_idle()
        await self.reopen(open_driver)

    async def complete(self, line: str, commands: Sequence[tuple[str, str]]) -> list[Completion]:
        """The completions of a line: commands after `/`, files of the folder after `@`."""
        if "@" in line and time.monotonic() - self._files_listed_at > FILES_SECONDS:
            self._files = await list_project_files(self.host.folder)
            self._files_listed_at = time.monotonic()
        return find_completions(line, self._files, commands)

    def resume_if_asked(self) -> None:
        """Ask again what was open when the server was killed: for a tab that was there then."""
        conversation = self.conversation
        move = pending(conversation.driver.transcript)
        if conversation.is_idle and isinstance(move, RunTools):
            conversation.resume()

    async def aclose(self) -> None:
        for task in self._refreshing:
            task.cancel()
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.aclose()
        await self.host.aclose()

    # --- callbacks of the host -------------------------------------------------------------

    async def _ask_approval(self, approval: PendingApproval) -> Approval | Denial | None:
        return await self.conversation.ask_approval(approval)

    async def _ask_user(self, question: ModelQuestion) -> str | PlanAnswer | None:
        return await self.conversation.ask_user(question)
