"""The contract of a tool: what it is called, what it needs, what it does to the world.

A tool is called with arguments that were parsed, validated against its schema and allowed.
It returns an output or raises: both become one result for the model. Below it stands the
workspace; above it core/loop/tool_round.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from treadle.core.events import Event
from treadle.core.transcript.content import Arguments, ResultContent
from treadle.core.transcript.entries import EffectClass
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.core.contracts.workspace import Workspace

DEFAULT_RESULT_CHARS = 100_000


class ToolSpec(msgspec.Struct, frozen=True, dict=True):
    """What the model and the loop know of a tool without calling it.

    effect      pure: rerun freely · verifiable: a probe can tell whether it happened ·
                irreversible: at most once
    concurrent  may run beside others, by resource; otherwise it runs alone and in order
    timeout     seconds; None means no limit of its own
    detachable  the call may go on in the background: when it says so by `context.detach()`,
                or after `detach_after` seconds
    eager       if it is pure, it may start while the stream that calls for it still runs
    """

    name: str
    description: str
    schema: dict[str, Any]
    effect: EffectClass = "irreversible"
    concurrent: bool = False
    timeout: float | None = None
    max_result_chars: int = DEFAULT_RESULT_CHARS
    detachable: bool = False
    detach_after: float | None = None
    strict: bool = False
    eager: bool = True


class Resources(msgspec.Struct, frozen=True):
    """What a call touches: many may read a key at once, one may write it."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class ToolOutput(msgspec.Struct, frozen=True):
    """What a call gave: `content` for the model, `display` for the person."""

    content: str | tuple[ResultContent, ...]
    display: str = ""
    is_error: bool = False
    full_output: str = ""  # where the whole of it can be read, if content is a part
    data: dict[str, Any] = {}  # facts for programs, kept in the log; no model sees them


class ProbeResult(msgspec.Struct, frozen=True):
    """What an inspection after a crash found out about an intended effect."""

    outcome: Literal["done", "not_done", "unknown"]
    evidence: str


class ToolContext(msgspec.Struct, frozen=True):
    """What a call may use. `key` is the same when the same call is tried again after a crash."""

    session_id: str
    turn_id: str
    call_id: str
    idempotency_key: str
    report_progress: Callable[[str], None]
    detach: Callable[[], None]  # go on in the background; for detachable tools
    relay_event: Callable[[Event], None]  # show an event of a child agent to this one's observers
    workspace: Workspace | None = None
    tasks: Any = None  # the loop's detached calls: list, read, cancel
    services: dict[str, Any] = {}  # what the host put in for its own tools
    history: Callable[[], Transcript] = Transcript  # all that was said, in view or not


class Tool(Protocol):
    """One thing that an agent can do.

    Promises: `call` honours cancellation and leaves nothing running; it reports progress
    through the context; a failure is a ToolError whose text helps the model.
    It must not touch the transcript, ask the user by itself, or print.
    """

    @property
    def spec(self) -> ToolSpec: ...

    def check(self, arguments: Arguments) -> str | None:
        """What is wrong with these arguments, in words for the model; None if nothing is."""

    def summary(self, arguments: Arguments) -> str:
        """One line for the person, such as `[bash: ls -la]`."""

    def resources(self, arguments: Arguments) -> Resources: ...

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput: ...

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        """What a probe needs to know later; taken before the effect of a verifiable call."""

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        """Whether an interrupted call had its effect."""


@runtime_checkable
class ForwardingTool(Protocol):
    """A tool that stands for others: a call of it is judged, shown and carried out as theirs."""

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        """Which tool is meant, and with what; or what is wrong, in words for the model."""
