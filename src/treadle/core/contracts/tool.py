"""The contract of a tool: its name, its arguments, its effect.

The loop calls a tool with arguments that were parsed, validated against the schema and allowed.
The tool returns an output or raises; both become one result for the model. Used by
core/loop/tool_round.py; built-in tools use the Workspace contract.
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
    """What the model and the loop know about a tool without calling it.

    effect      pure: can be repeated · verifiable: a probe can find out whether it happened ·
                irreversible: at most once
    concurrent  may run in parallel with other calls, by resource; otherwise alone and in order
    timeout     seconds; None: the tool has no limit
    detachable  the call may continue in the background: when it calls `context.detach()`, or
                after `detach_after` seconds
    eager       if the tool is pure, a call may start while the reply is still streaming
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
    """What a call uses: many calls may read a key at the same time, only one may write it."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class ToolOutput(msgspec.Struct, frozen=True):
    """The output of a call: `content` for the model, `display` for the user."""

    content: str | tuple[ResultContent, ...]
    display: str = ""
    is_error: bool = False
    full_output: str = ""  # path of the complete output, if content is only a part
    data: dict[str, Any] = {}  # for programs, kept in the log; not shown to the model


class ProbeResult(msgspec.Struct, frozen=True):
    """Whether an interrupted call had its effect, with the evidence."""

    outcome: Literal["done", "not_done", "unknown"]
    evidence: str


class ToolContext(msgspec.Struct, frozen=True):
    """What a call may use. `idempotency_key` is the same when a call is repeated after a crash."""

    session_id: str
    turn_id: str
    call_id: str
    idempotency_key: str
    report_progress: Callable[[str], None]
    detach: Callable[[], None]  # continue in the background; for detachable tools
    relay_event: Callable[[Event], None]  # passes an event of a child agent to the observers
    workspace: Workspace | None = None
    tasks: Any = None  # the loop's detached calls: list, read, cancel
    services: dict[str, Any] = {}  # objects of the host for its own tools
    history: Callable[[], Transcript] = Transcript  # the whole history, without compaction


class Tool(Protocol):
    """One thing that an agent can do.

    Promises: `call` honours cancellation and leaves nothing running; it reports progress through
    the context; a failure is a ToolError whose text tells the model what to do.
    A tool must not change the transcript, ask the user directly, or print.
    """

    @property
    def spec(self) -> ToolSpec: ...

    def check(self, arguments: Arguments) -> str | None:
        """What is wrong with these arguments, as a text for the model; None if they are valid."""

    def summary(self, arguments: Arguments) -> str:
        """One line for the user, such as `[bash: ls -la]`."""

    def resources(self, arguments: Arguments) -> Resources: ...

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput: ...

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        """What `probe` needs later; collected before the effect of a verifiable call."""

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        """Whether an interrupted call had its effect."""


@runtime_checkable
class ForwardingTool(Protocol):
    """A tool that forwards to others: the loop decides on, shows and runs the target instead."""

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        """The target tool and its arguments; or what is wrong, as a text for the model."""
