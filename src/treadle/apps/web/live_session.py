"""A session that the server has open: an HostedSession, and what the tabs see of it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.commands.shell import ShellCommands
from treadle.apps.conversation.completion import (
    Completion,
    find_completions,
    list_project_files,
)
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.conversation.session.callbacks import HostCallbacks
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import NoteBlock, Tone
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.view_state import ViewState, add_block
from treadle.apps.web.call_index import CallIndex, CallTimes
from treadle.apps.web.feed import Feed, PageState
from treadle.apps.web.messages import TabReply
from treadle.apps.web.render.regions import SessionFacts, render_regions
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.lib.tasks import forget_result
from treadle.lib.text.text import shorten_home
from treadle.sessions.children import ChildSession
from treadle.sessions.library import Library
from treadle.sessions.log.reader import read_header
from treadle.sessions.summaries import make_title


class SessionOrigin(msgspec.Struct, frozen=True):
    """Of a session that is no fork all of this is empty. `title` is shown until there is a message
    of its own after `inherited` items. `usage` is what the fork itself used."""

    title: str = ""
    inherited: int = 0
    usage: Usage | None = None

    def find_title(self, history: Transcript) -> str:
        if self.title and not self.inherited:
            return self.title
        for position in range(self.inherited, len(history)):
            item = history[position]
            if isinstance(item, UserItem):
                return make_title(item.first_text)
        return self.title

    def without_inherited(self, view: ViewState) -> ViewState:
        """The view with the usage of the session alone: its origin has the rest."""
        return view if self.usage is None else msgspec.structs.replace(view, usage=self.usage)


def read_origin(session_dir: Path, history: Transcript) -> SessionOrigin:
    header = read_header(session_dir)
    if header is None or header.parent is None:
        return SessionOrigin()
    library = Library()
    summary = library.get_summary(session_dir)
    inherited = 0 if summary.title else len(history)
    return SessionOrigin(library.get_title(summary), inherited, summary.usage)


class NumberedQuestions:
    """The open questions of a session, each with a number that no other one ever had."""

    def __init__(self) -> None:
        self._numbered: list[tuple[int, PendingQuestion]] = []
        self._last_number = 0
        self._command_question: tuple[int, Question] | None = None

    def update(self, waiting: Sequence[PendingQuestion]) -> list[tuple[int, PendingQuestion]]:
        known = {id(question): number for number, question in self._numbered}
        self._numbered = [(known.get(id(one)) or self._next_number(), one) for one in waiting]
        return self._numbered

    def find(self, number: int, waiting: Sequence[PendingQuestion]) -> PendingQuestion | None:
        """An open question; None if it was answered, perhaps in another tab."""
        return dict(self.update(waiting)).get(number)

    def add_command_question(self, question: Question) -> int:
        """Keep the question of a command until it is answered, or the next one comes."""
        self._command_question = (self._next_number(), question)
        return self._last_number

    def take_command_question(self, number: int) -> Question | None:
        asked, self._command_question = self._command_question, None
        return asked[1] if asked is not None and asked[0] == number else None

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number


MAX_REMEMBERED_REQUESTS = 1_000
FILES_SECONDS = 10.0  # the names of the folder's files are listed at most once in this time


class LiveSession(HostCallbacks):
    """One session and everything that a tab can do with it. `on_change` is called when a list of
    sessions has to be drawn again."""

    kind = "page"
    keeps_view = False

    def __init__(self, opened: HostedSession, on_change: Callable[[], None]) -> None:
        self.opened = opened
        self.returned_text = ""  # queued messages that an interrupt gave back
        self._on_change = on_change
        self._calls = self._next_calls = CallIndex()
        self._is_resumed = False
        self.numbered = NumberedQuestions()
        self._requests: OrderedDict[str, asyncio.Task[TabReply | None]] = OrderedDict()
        self.shell_commands = ShellCommands(opened)
        self._feed: Feed | None = None
        self._call_times = CallTimes()
        self._files: Sequence[str] = ()
        self._files_listed_at = float("-inf")
        self._facts = SessionFacts()
        self._origin = SessionOrigin()
        self._changed_files: Mapping[str, str] = {}
        self._agents: Mapping[str, ChildSession] = {}
        self._refreshing: set[asyncio.Task[None]] = set()
        self._was_idle = True
        self._listed_as: tuple[str, float] | None = None

    async def open(self, resume: str | None) -> None:
        """Open a new session, or continue one."""
        self._is_resumed = resume is not None
        await self.opened.open(self, resume=resume)

    @property
    def _conversation(self) -> Conversation | None:
        return self.opened.conversation

    @property
    def conversation(self) -> Conversation:
        return self.opened.require_conversation()

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
        return self._conversation is not None and bool(self._conversation.questions.waiting)

    def list_questions(self) -> Sequence[tuple[int, PendingQuestion]]:
        """The open questions, each with its number."""
        if self._conversation is None:
            return ()
        return self.numbered.update(self._conversation.questions.waiting)

    @property
    def is_used(self) -> bool:
        """Whether a tab shows it or something runs or waits in it."""
        if self.is_busy or self.is_waiting or self.feed.is_watched:
            return True
        has_tasks = self._conversation is not None and bool(self._conversation.view.tasks)
        return has_tasks or self.shell_commands.is_running

    @property
    def is_saved(self) -> bool:
        """Whether closing it loses nothing: an empty session is not on disk, and neither are
        outputs of `!` that go with the next message."""
        if self._conversation is None or self.shell_commands.recent_outputs:
            return False
        return bool(len(self._conversation.driver.history))

    def read_row(self) -> tuple[str, float]:
        """Its state in the list, "" if it has none of its own, and its cost, 0 if it is unknown."""
        conversation = self.opened.conversation
        if conversation is None:
            return "", 0.0
        view = conversation.view
        busy = "running" if view.is_busy else ""
        return "waiting" if conversation.questions.waiting else busy, view.usage.known_cost

    # --- the page --------------------------------------------------------------------------

    async def read_view(
        self, driver: Driver, notes: Sequence[str]
    ) -> tuple[ViewState, Sequence[str]]:
        driver.watch(self._call_times)  # before the conversation, which shows them
        if self._is_resumed:
            self._is_resumed = False
            session_dir = await self.opened.flush()
            await asyncio.to_thread(self._call_times.load, session_dir)
            self._origin = await asyncio.to_thread(read_origin, session_dir, driver.history)
        about_model, *others = notes or ("",)
        first = add_block(ViewState(), NoteBlock(about_model)) if about_model else ViewState()
        calls = CallIndex()

        def read_history() -> ViewState:
            view = build_view(driver.history, first)
            calls.update(view.blocks)
            return view

        # In a thread: a long session takes seconds, and other tabs continue.
        view = await asyncio.to_thread(read_history)
        self._next_calls = calls
        return view, others

    def prepare_conversation(self, conversation: Conversation, notes: Sequence[str]) -> None:
        conversation.view = self._origin.without_inherited(conversation.view)
        super().prepare_conversation(conversation, notes)

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        self._calls, session_id = self._next_calls, conversation.driver.session_id
        self.show_mode()
        if self._feed is None:
            self._feed = Feed(
                session_id, self._build_state, self._call_times.find, self._call_times.find_start
            )
        self.refresh_changed_files()
        self.mark_changed()

    def start_switch(self) -> None:
        self.feed.refresh()  # no state can be built before the session is open again

    def _build_state(self, version: int) -> PageState:
        conversation = self.conversation
        view = conversation.view
        self._calls.update(view.blocks)
        facts = msgspec.structs.replace(
            self._facts,
            title=self.opened.saved.name or self._origin.find_title(conversation.driver.history),
            changed_files=self._changed_files,
            agents=self._agents,
            banner=self.opened.sandbox_problem,
            is_unfinished=conversation.has_unfinished_turn,
            retry_at=self._call_times.retry_at,
            forecast="" if len(conversation.driver.history) else self.opened.forecast.text,
        )
        regions = render_regions(view, facts, self.list_questions(), self._calls)
        return PageState(version, view.blocks, regions)

    def show_mode(self) -> None:
        """Also after a change of model, limits or trust."""
        opened, card = self.opened, self.opened.model.card
        limits = opened.limits.list_limits()
        max_cost = [line.value for line in limits if line.setting == "max_cost"]
        self._facts = SessionFacts(
            folder=shorten_home(opened.folder),
            session_id=opened.driver.session_id,
            mode=opened.mode_label,
            model=card.name.rpartition("/")[2],
            window=card.window,
            max_cost=max_cost[0] if max_cost else None,
            is_trusted=opened.trust.is_given or not opened.trust.list_files(),
        )
        self.mark_changed()

    def refresh_changed_files(self) -> None:
        """After a turn, and after undo, redo and rewind: read which files the agent changed, and
        what its child agents did."""
        task = asyncio.get_running_loop().create_task(self._read_changed_files())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _read_changed_files(self) -> None:
        try:
            self._changed_files = await self.opened.undo.list_changed_files()
            session_dir, library = await self.opened.flush(), self.opened.library
            [agents] = await asyncio.to_thread(library.list_child_sessions, [session_dir])
            self._agents = {one.summary.id: one for one in agents}
        except (TreadleError, OSError):
            return  # an empty session, or one that is closed meanwhile
        self.mark_changed()

    def mark_changed(self) -> None:
        conversation = self.opened.conversation
        if self._feed is not None and conversation is not None:
            self._feed.mark_changed()
            is_idle = conversation.is_idle
            if is_idle and not self._was_idle:  # a turn has ended
                self._calls.update(conversation.view.blocks)
                if self._calls.has_new_calls():
                    self.refresh_changed_files()
            self._was_idle = is_idle
        row = self.read_row()
        if row != self._listed_as:
            self._listed_as = row
            self._on_change()

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        if self._conversation is not None:
            self._conversation.show_note(text)

    def return_messages(self, items: Sequence[UserItem]) -> None:
        self.returned_text = "\n".join(item.text for item in items)

    # --- what a tab asks for ---------------------------------------------------------------

    async def run_once(
        self, request_id: str, work: Callable[[], Coroutine[Any, Any, TabReply | None]]
    ) -> TabReply | None:
        """Do what a request asks for; one that comes again gets the same answer. What has begun is
        done, also if the tab is gone. A request that failed can be sent again."""
        if not request_id:
            return await work()
        task = self._requests.get(request_id)
        if task is None:
            self._requests[request_id] = task = asyncio.create_task(work())
            task.add_done_callback(forget_result)
            if len(self._requests) > MAX_REMEMBERED_REQUESTS:
                self._requests.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except Exception:
            self._requests.pop(request_id, None)
            raise

    def submit(self, item: UserItem) -> None:
        self.conversation.submit(self.shell_commands.attach_outputs(item))

    def interrupt(self) -> None:
        if not self.shell_commands.stop():
            self.conversation.interrupt()

    async def complete(self, line: str, commands: Sequence[tuple[str, str]]) -> list[Completion]:
        """The completions of a line: commands after `/`, files of the folder after `@`."""
        if "@" in line and time.monotonic() - self._files_listed_at > FILES_SECONDS:
            self._files = await list_project_files(self.opened.folder)
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
        await self.opened.aclose()
