"""The agents and background tasks of a session, each with a view of its own, built from events.

The conversation passes its events. A child's view is made by the same reducer as that of the
session, so a host shows it in the same way: what it does now, its time and cost, its transcript.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.block_text import format_activity
from treadle.apps.conversation.state.blocks import IDLE, NoteBlock, strip_brackets
from treadle.apps.conversation.state.reducer import MAX_PROGRESS_CHARS, apply_event
from treadle.apps.conversation.state.view_state import ViewState, add_block, replace_block
from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event
from treadle.lib.text.text import format_cost, format_duration

MAX_FINISHED = 8  # that are kept to look at
_replace = msgspec.structs.replace


class ChildWork(msgspec.Struct, frozen=True):
    """A child agent, or a command in the background. `key` names it in this session; `session_id`
    is that of an agent, `task_id` is set if it runs in the background."""

    key: str
    number: int  # by which a user names it
    title: str
    started: float
    is_agent: bool
    session_id: str = ""
    task_id: str = ""
    ended: float | None = None
    is_stopped: bool = False  # an agent that was stopped before it was done
    view: ViewState = ViewState()

    @property
    def is_running(self) -> bool:
        return self.ended is None

    def describe(self, now: float) -> str:
        """`running grep, 12s, $0.02`."""
        seconds = (now if self.ended is None else self.ended) - self.started
        parts = ["stopped" if self.is_stopped else "ended"]
        if self.is_running and self.is_agent:
            is_idle = self.view.activity == IDLE
            parts = ["starting" if is_idle else format_activity(self.view.activity)]
        elif self.is_running:
            parts = ["running in the background"]
        parts.append(format_duration(seconds))
        if (usage := self.view.usage).known_cost:
            parts.append(format_cost(usage.cost, usage.known_cost))
        return ", ".join(parts)


class ChildViews(BaseObserver):
    """Observes the driver. Keeps the running ones, and the last that ended."""

    kinds = frozenset(
        {
            events.ToolStarted,
            events.ChildEvent,
            events.ToolDetached,
            events.ToolProgress,
            events.ToolFinished,
            events.TaskFinished,
            events.TurnFinished,
            events.RunFailed,
        }
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._works: dict[str, ChildWork] = {}
        self._count = 0  # of all that there were
        self._summaries: dict[str, str] = {}  # of calls that run, by key
        self._outputs: dict[str, str] = {}  # of calls in the foreground, which may be detached

    def list(self) -> list[ChildWork]:
        """The running ones, oldest first, then those that ended, newest first."""
        running = [work for work in self._works.values() if work.is_running]
        ended = [work for work in self._works.values() if not work.is_running]
        return [*running, *reversed(ended)]

    def get(self, key: str) -> ChildWork | None:
        return self._works.get(key)

    def on_event(self, event: Event) -> None:
        self._apply("", event)

    def _apply(self, parent: str, event: Event) -> None:
        match event:
            case events.ToolStarted(call_id=call_id, summary=summary):
                self._summaries[parent + call_id] = redact_for_display(strip_brackets(summary))
            case events.ChildEvent(call_id=call_id, child=child):
                self._update_agent(parent + call_id, child)
            case events.ToolDetached(call_id=call_id, task_id=task_id):
                self._detach(parent + call_id, task_id)
            case events.ToolProgress(call_id=call_id, text=text):
                self._add_output(parent + call_id, text)
            case events.ToolFinished(call_id=call_id):
                self._end(parent + call_id)
            case events.TaskFinished(task_id=task_id, is_cancelled=is_cancelled):
                for work in list(self._works.values()):
                    if work.task_id == task_id and work.key.startswith(parent):
                        self._works[work.key] = _replace(work, is_stopped=is_cancelled)
                        self._end(work.key)
            case events.TurnFinished() | events.RunFailed():
                self._end_turn(parent)
            case _:
                pass

    def _update_agent(self, key: str, event: Event) -> None:
        work = self._works.get(key)
        if work is None or not work.is_running:
            title = self._summaries.get(key, "agent")
            work = self._add(key, title, is_agent=True, session_id=event.session_id)
        elif not work.is_agent:  # it was detached before its first event
            work = _replace(work, is_agent=True, session_id=event.session_id)
        work = _replace(work, view=apply_event(work.view, event))
        if isinstance(event, events.TurnFinished):
            work = _replace(work, is_stopped=event.result.reason == "aborted")
        self._works[key] = work
        self._apply(f"{key}/", event)

    def _add(self, key: str, title: str, *, is_agent: bool, session_id: str = "") -> ChildWork:
        self._count += 1
        return ChildWork(key, self._count, title, self.clock(), is_agent, session_id)

    def _detach(self, key: str, task_id: str) -> None:
        work = self._works.get(key)
        if work is None:
            work = self._add(key, self._summaries.get(key, task_id), is_agent=False)
        self._works[key] = _replace(work, task_id=task_id)
        if earlier := self._outputs.pop(key, ""):
            self._add_output(key, earlier)

    def _add_output(self, key: str, text: str) -> None:
        """The view of a command is the end of its output."""
        work = self._works.get(key)
        if work is None:
            self._outputs[key] = (self._outputs.get(key, "") + text)[-MAX_PROGRESS_CHARS:]
            return
        if work.is_agent:
            return
        last = work.view.blocks[0] if len(work.view.blocks) else NoteBlock("", "plain")
        assert isinstance(last, NoteBlock), "a command has one note"
        note = _replace(last, text=(last.text + text)[-MAX_PROGRESS_CHARS:])
        has_note = bool(len(work.view.blocks))
        view = replace_block(work.view, 0, note) if has_note else add_block(work.view, note)
        self._works[key] = _replace(work, view=view)

    def _end(self, key: str) -> None:
        """It has ended, and what it started, too."""
        self._summaries.pop(key, None)
        self._outputs.pop(key, None)
        for work in list(self._works.values()):
            is_meant = work.key == key or work.key.startswith(f"{key}/")
            if is_meant and work.is_running:
                del self._works[work.key]  # in the order in which they end
                self._works[work.key] = _replace(work, ended=self.clock())
        ended = [work.key for work in self._works.values() if not work.is_running]
        for old in ended[:-MAX_FINISHED]:
            del self._works[old]

    def _end_turn(self, parent: str) -> None:
        """Calls in the foreground end with their turn."""
        for work in list(self._works.values()):
            is_below = work.key.startswith(parent) and "/" not in work.key[len(parent) :]
            if is_below and not work.task_id:
                self._end(work.key)
        for texts in (self._summaries, self._outputs):
            for key in [key for key in texts if key.startswith(parent)]:
                del texts[key]
