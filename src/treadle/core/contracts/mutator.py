"""The contract of a mutator: may rewrite the view of the history.

Compaction and reminders are mutators. Each decides itself whether to act. The log keeps what a
mutator replaces. The loop checks every law of the new view and discards the view if one is broken.
Used by core/loop/mutators.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from treadle.core.contracts.hook import HookPoint
from treadle.core.contracts.model import CallModel, ModelCard
from treadle.core.contracts.wrapped import call_directly
from treadle.core.events import Event
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

# before_model: before each model call. context_too_long: the provider rejected a request for its
# length, at most once per round. on_request: the user or the host asked for it.
MutationPoint = Literal[
    "before_model", "after_tool_result", "after_turn_ended", "context_too_long", "on_request"
]


EmitEvent = Callable[..., None]
RunHooks = Callable[[HookPoint, Mapping[str, Any]], Awaitable[object]]
AskAside = Callable[[Transcript, bool], Awaitable[AssistantItem]]


def ignore_event(kind: type[Event], *fields: object) -> None:
    """Default when there are no observers."""


async def run_no_hooks(point: HookPoint, data: Mapping[str, Any]) -> None:
    """Default when there are no hooks."""


class MutationContext(msgspec.Struct, frozen=True):
    """What a mutator receives. `last_usage` is what the provider measured at the last call.

    notify                 shows one line to the user
    run_pre_compact_hooks  None: a hook blocks the compaction; a text is added to the focus
    call_model             makes a model call of the mutator's own, with the purpose "summary"
    emit                   emits an event: its type, and its fields after the first three
    ask_aside              asks the model of the session, with its instructions and tools, to answer
                           the end of this transcript without a call, for the purpose "summary".
                           The beginning is read from the provider's cache if the second argument
                           is True and the last request had it too; otherwise no cache is used
    run_hooks              runs the hooks of a point that takes no answer: instructions_loaded,
                           file_changed
    """

    point: MutationPoint
    transcript: Transcript
    session_id: str
    turn_id: str
    card: ModelCard
    last_usage: Usage
    overhead_chars: int  # system prompt and tool definitions
    notify: Callable[[str], None]
    run_pre_compact_hooks: Callable[[], Awaitable[str | None]]
    focus: str = ""  # what the user wants to keep above all
    call_model: CallModel = call_directly
    emit: EmitEvent = ignore_event
    ask_aside: AskAside | None = None  # None: outside of a session
    run_hooks: RunHooks = run_no_hooks


class Mutator(Protocol):
    """Rewrites the view of the history.

    Promises: `mutate` returns None, or the same transcript object, when there is nothing to do; a
    changed view keeps every law; items that stay are the same objects.
    A mutator must not drop the open calls of the last reply, or their results.
    One with an attribute `for_children` that is False is not given to child agents.
    """

    @property
    def name(self) -> str: ...

    @property
    def points(self) -> frozenset[MutationPoint]: ...

    async def mutate(self, context: MutationContext) -> Transcript | None: ...
