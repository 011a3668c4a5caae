"""The contract of a tool: its name, its arguments, its effect.

The loop calls a tool with arguments that were parsed, validated against the schema and allowed.
The tool returns an output or raises; both become one result for the model. Used by
core/loop/calls/execute.py; built-in tools use the Workspace contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, Protocol, cast, runtime_checkable

import msgspec

# Not only for type checkers: help(ToolContext) reads its annotations.
from treadle.core.contracts.task_manager import TaskManager
from treadle.core.contracts.workspace import Workspace
from treadle.core.events import Event
from treadle.core.transcript.content import Arguments, ResultContent
from treadle.core.transcript.entries import EffectClass
from treadle.core.transcript.entries import ToolKind as ToolKind
from treadle.core.transcript.items import Metadata, join_text
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.core.type_variables import ContextDepsT, PartDepsT

DEFAULT_RESULT_CHARS = 100_000


class ToolSpec(msgspec.Struct, frozen=True, dict=True):
    """What the model and the loop know about a tool without calling it.

    effect      pure: can be repeated · verifiable: a probe can find out whether it happened ·
                irreversible: at most once
    concurrent  may run beside other calls, by resource; otherwise it runs alone and in order
    timeout     seconds; None: the tool has no limit
    detachable  the call may continue in the background: when it calls `context.detach()`,
                or after `detach_after` seconds
    eager       a pure call may start while the reply that contains it still streams
    asks_host   the call may need decisions of the host while it runs: `context.ask_host()`. Its
                `restore_approvals(arguments, context)`, if it has that, gives the ApprovalRequests
                that wait after a crash, before the call continues
    needs_approval  the user decides on every call, even if the policy allows it
    needs_policy    an agent without a policy runs it only if its approver agrees
    deferred        the model finds it with the provider's own tool search; a model without the
                    ability `tool_search` does not see it
    unlisted        the model is not told about it; a call by its name runs like any other
    aliases         other names that models use for it; they are not told to the model
    kind            what it does, for those who show its calls; no permission depends on it
    text_argument   the argument that is meant if a model writes a plain text in place of JSON
    grammar         of that text, for Lark: models that can write only the text, without JSON, do
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
    asks_host: bool = False
    needs_approval: bool = False
    needs_policy: bool = False
    deferred: bool = False
    aliases: tuple[str, ...] = ()
    text_argument: str = ""
    grammar: str = ""
    unlisted: bool = False
    kind: ToolKind = "other"


class FileAccess(msgspec.Struct, frozen=True):
    """A path that a call reads or writes, as the model wrote it.

    recursive   the call reads everything beneath it
    is_shown    a call that writes it also reads it: its result, an error of it or the place that a
                file is moved to may show what was there before
    """

    path: str
    mode: Literal["read", "write"] = "read"
    recursive: bool = False
    is_shown: bool = False


# What a command asks of its sandbox: nothing, the network, or to run outside of it.
SandboxRequest = Literal["", "network", "off"]


class Access(msgspec.Struct, frozen=True):
    """What a call touches.

    reads, writes  keys for the order of calls: many calls may read a key at once, one may write it
    files          paths, for the policy; relative ones start at `cwd`
    command        the shell command line that it runs
    url            the address that it fetches
    cwd            where the command and relative paths start; "" is the root of the workspace
    sandbox        what the command asks of the sandbox, for this call only
    domains        of the network only these hosts; () is all of it
    delegates      a child agent does the work; its own calls touch files
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    files: tuple[FileAccess, ...] = ()
    command: str | None = None
    url: str | None = None
    cwd: str = ""
    sandbox: SandboxRequest = ""
    domains: tuple[str, ...] = ()
    delegates: bool = False


NO_ACCESS = Access()


class Preview(msgspec.Struct, frozen=True):
    """What a call would do, shown to the user who has to approve it.

    path    of the file that a diff changes
    whole   the same diff with all lines of the file; "" if there is none
    files   what the files will contain, by their real paths, for the previews of later calls of the
            same round; None: the file is removed. The user is not shown it
    """

    kind: Literal["diff", "command", "text"]
    text: str
    path: str = ""
    whole: str = ""
    files: dict[str, bytes | None] = {}


STOPPED_KEY = "is_stopped"  # in ToolOutput.data: it was stopped before it was done


class ToolOutput(msgspec.Struct, frozen=True):
    """What a call returned: `content` for the model, `display` for the user. `notes` say what the
    tool had to correct in its arguments, in a few words for the model; they are no content."""

    content: str | tuple[ResultContent, ...]
    display: str = ""
    is_error: bool = False
    full_output: str = ""  # where the whole output can be read, if content is a part of it
    data: dict[str, Any] | None = None  # for programs, kept in the log; not shown to the model
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        content = self.content
        return content if isinstance(content, str) else join_text(content)


class ProbeResult(msgspec.Struct, frozen=True):
    """Whether an interrupted call had its effect, with the evidence."""

    outcome: Literal["done", "not_done", "unknown"]
    evidence: str


def never_cancelled() -> bool:
    """`ToolContext.is_cancelled` of a call that nothing can stop."""
    return False


async def deny_unasked(request: Any) -> None:
    """`ToolContext.ask_host` where there is no host."""
    request.deny_all("this call needs the user's approval, and the user cannot be asked")


class ToolContext(msgspec.Struct, Generic[ContextDepsT], frozen=True):
    """What a call may use: a parameter of a tool with this type gets it.

    `deps` is what the run was given, `agent.run(..., deps=shop)`: write `ToolContext[Shop]`.
    `idempotency_key` is the same when the same call is tried again after a crash; `access` is what
    the policy allowed. `metadata` is that of the run, `usage` what the session used before the
    call. `planned_files` is for previews: files as the earlier calls of the round will leave them,
    as in `Preview.files`.
    """

    session_id: str
    turn_id: str
    call_id: str
    idempotency_key: str
    report_progress: Callable[[str], None]
    detach: Callable[[], None]  # continue in the background; for detachable tools
    relay_event: Callable[[Event], None]  # show an event of a child agent to our observers
    workspace: Workspace | None = None
    tasks: TaskManager | None = None  # the background tasks: list, read, cancel
    services: dict[str, Any] = {}  # what the host provides for its own tools
    history: Callable[[], Transcript] = Transcript  # all items, also those out of the view
    access: Access = NO_ACCESS
    is_cancelled: Callable[[], bool] = never_cancelled  # being stopped; for plain functions
    # Let the host decide on an ApprovalRequest of a child agent; for tools with `asks_host`.
    ask_host: Callable[[Any], Awaitable[None]] = deny_unasked
    deps: ContextDepsT = cast(ContextDepsT, None)
    planned_files: dict[str, bytes | None] = {}
    children: Any = None  # the child agents of the session, for the tool that starts them
    metadata: Metadata = {}
    usage: Usage = NO_USAGE
    view: Callable[[], Transcript] = Transcript  # what the model sees of the history


# Of an optional method `undo(arguments, result)`: the call that takes a call back, as the name of a
# tool and its arguments; why there is none, "" if the call had no effect; None: not known.
UndoAnswer = tuple[str, Arguments] | str | None


class Tool(Protocol[PartDepsT]):
    """One thing that an agent can do. `BaseTool` has a default for all but `spec` and `call`.
    A `Tool[Shop]` needs the `deps` of a run to be a Shop.

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

    def access(self, arguments: Arguments, session_id: str) -> Access:
        """What the call touches, for the order of calls and for the policy. Runs nothing."""

    async def preview(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> Preview | None:
        """What the call would do; None if the arguments say it all. Changes nothing.

        A ToolError says that the call would fail: the model gets it as the result, and the user is
        not asked."""

    async def call(self, arguments: Arguments, context: ToolContext[PartDepsT]) -> ToolOutput: ...

    async def evidence(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> dict[str, Any]:
        """What a probe will compare; taken before the effect of a verifiable call."""

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext[PartDepsT]
    ) -> ProbeResult:
        """Whether an interrupted call had its effect."""


class BaseTool(Generic[PartDepsT]):
    """A tool that only needs a spec and a call: everything else has its default here."""

    _spec: ToolSpec

    @property
    def spec(self) -> ToolSpec:
        try:
            return self._spec
        except AttributeError:
            name = type(self).__name__
            raise NotImplementedError(f"{name} does not define `spec`") from None

    def check(self, arguments: Arguments) -> str | None:
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[{self.spec.name}]"

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return NO_ACCESS

    async def preview(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> Preview | None:
        return None

    async def call(self, arguments: Arguments, context: ToolContext[PartDepsT]) -> ToolOutput:
        raise NotImplementedError(f"{type(self).__name__} does not define `call`")

    async def evidence(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> dict[str, Any]:
        return {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext[PartDepsT]
    ) -> ProbeResult:
        return ProbeResult("unknown", f"{self.spec.name} cannot tell whether it was done")


@runtime_checkable
class ForwardingTool(Protocol):
    """A tool that forwards to others: the loop decides on, shows and runs the target instead.

    One with a method `find_target(name)` is also asked for a tool that is not in the list and that
    the model calls by its own name.
    """

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        """The target tool and its arguments; or what is wrong, as a text for the model."""


def find_target(tool: Tool, name: str) -> Tool | None:
    """What a tool forwards to under this name, if it says so."""
    find: Callable[[str], Tool | None] | None = getattr(tool, "find_target", None)
    return None if find is None else find(name)


class RepairedArguments(msgspec.Struct, frozen=True):
    """Arguments as a tool knows them. `notes` say what was changed, in a few words for the model.
    `tool`, `tool_arguments`: another tool that is meant, if the agent has it. `is_guessed`: a value
    was changed, not only a name; the user is asked about such a call if it is irreversible. `more`:
    the arguments of further calls of the tool that were in this one; the notes are theirs, too."""

    arguments: Arguments
    notes: tuple[str, ...] = ()
    tool: str = ""
    tool_arguments: Arguments = {}
    is_guessed: bool = False
    more: tuple[Arguments, ...] = ()


@runtime_checkable
class RepairingTool(Protocol):
    """A tool that knows how models misspell its arguments."""

    def repair(self, arguments: Arguments) -> RepairedArguments:
        """The arguments that are meant, before they are checked and decided on. Runs nothing."""
