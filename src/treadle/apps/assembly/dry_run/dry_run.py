"""`--dry-run`: calls that only read run; what a call would change is recorded, and not done.

    DryRun            which calls are recorded, and the files as they would be by now
    DryRunModel       lets `/apply` carry out what was recorded, in a turn of its own
    DryRunPolicy      runs what the mode `plan` allows, and lets the rest be recorded
    RecordedEffect    what is kept of such a call in the data of its result

The log is the list: recorded_calls.py carries it out. Used by stages.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from treadle.apps.assembly.lazy import LazyPolicy
from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import (
    Allow,
    Ask,
    BasePolicy,
    Deny,
    PermissionRequest,
    Verdict,
    require_approval,
)
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import ForwardingTool, Tool, ToolContext, ToolOutput
from treadle.core.contracts.wrapped import (
    WrappedForwardingTool,
    WrappedModel,
    WrappedSource,
    WrappedTool,
)
from treadle.core.events import Event, RunFailed, TurnFinished
from treadle.core.transcript.content import Arguments
from treadle.tools.undo import DRY_RUN_KEY

if TYPE_CHECKING:
    from treadle.models.scripted import ScriptElement

RECORDED = (
    "Dry run: recorded, not carried out. The user decides about it after this run. Go on as if it "
    "had succeeded; files and commands do not show its effect."
)
NOT_RECORDED = "in a dry run `{name}` is not started: what it does could not be recorded"


class RecordedEffect(msgspec.Struct, frozen=True):
    """`preview` is what the user is shown; `before` are the files that it changes, by path, with
    the SHA-256 that they have to have ("": there is none)."""

    preview: str
    before: dict[str, str] = {}


def hash_file(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def read_file(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


class ModelStandIn(Protocol):
    """Replies in place of the model. The user has approved its calls."""

    def has(self, call_id: str) -> bool: ...

    def reply(self, request: ModelRequest) -> ScriptElement: ...


class DryRun(BaseObserver):
    """`player` makes the calls of this turn, which are carried out."""

    kinds = frozenset({TurnFinished, RunFailed})

    def __init__(self) -> None:
        self.player: ModelStandIn | None = None
        self.call_ids: set[str] = set()
        self.tool_names: set[str] = set()
        self.files: dict[str, bytes | None] = {}

    def on_event(self, event: Event) -> None:
        if self.player is not None:
            self.player = None
            self.files.clear()  # from now on they are what the turn has made of them

    def wrap(self, tools: Sequence[Any]) -> list[Any]:
        return [
            _DryRunSource(one, self) if hasattr(one, "tools") else self.wrap_tool(one)
            for one in tools
        ]

    def wrap_tool(self, tool: Tool) -> Tool:
        self.tool_names.add(tool.spec.name)
        return (_ForwardingTool if isinstance(tool, ForwardingTool) else _DryRunTool)(tool, self)

    def plan(self, context: ToolContext) -> ToolContext:
        """The same with the files as they would be by now, if the call is recorded."""
        if context.call_id not in self.call_ids:
            return context
        return msgspec.structs.replace(context, planned_files=self.files)

    async def record(self, tool: Tool, arguments: Arguments, context: ToolContext) -> ToolOutput:
        """A ToolError of the preview says that the call would fail."""
        preview = await tool.preview(arguments, self.plan(context))
        text, files = tool.summary(arguments), dict[str, bytes | None]()
        if preview is not None:
            text, files = preview.text, preview.files
        current = {path: self.files.get(path, read_file(path)) for path in files}
        before = {path: hash_file(content) for path, content in current.items()}
        self.files |= files
        effect = msgspec.to_builtins(RecordedEffect(text, before))
        return ToolOutput(RECORDED, display=text, data={DRY_RUN_KEY: effect})


class DryRunModel(WrappedModel):
    def __init__(self, model: Model, dry_run: DryRun) -> None:
        super().__init__(model)
        self._dry_run = dry_run

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        from treadle.models.scripted import Scripted

        player = self._dry_run.player
        if player is None or request.purpose not in ("turn", "closing"):
            return super().stream(request)
        return Scripted(player.reply, name=self.name, card=self.card).stream(request)


class _DryRunSource(WrappedSource):
    def __init__(self, source: ToolSource, dry_run: DryRun) -> None:
        super().__init__(source)
        self._dry_run = dry_run

    def tools(self) -> Sequence[Tool]:
        return tuple(self._dry_run.wrap_tool(tool) for tool in self._source.tools())


class _DryRunTool(WrappedTool):
    def __init__(self, tool: Tool, dry_run: DryRun) -> None:
        super().__init__(tool)
        self._dry_run = dry_run

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return await super().evidence(arguments, self._dry_run.plan(context))

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if context.call_id in self._dry_run.call_ids:
            return await self._dry_run.record(self._tool, arguments, context)
        return await super().call(arguments, context)


class _ForwardingTool(_DryRunTool, WrappedForwardingTool):
    def wrap_target(self, target: Tool) -> Tool:
        return self._dry_run.wrap_tool(target)


class DryRunPolicy(BasePolicy):
    """What a rule denies stays denied."""

    def __init__(self, policy: LazyPolicy, dry_run: DryRun) -> None:
        self._policy = policy
        self._dry_run = dry_run

    async def decide(self, request: PermissionRequest) -> Verdict:
        policy = await self._policy.get_policy()
        own = require_approval(await policy.decide(request), request.tool)
        if request.tool.effect == "pure" and not request.access.delegates:
            return own
        self._dry_run.call_ids.discard(request.call_id)
        player = self._dry_run.player
        if player is not None and player.has(request.call_id):
            is_asked = isinstance(own, Ask) and own.kind == "approval"
            return Allow("approved by the user after a dry run") if is_asked else own
        if isinstance(own, Deny) and own.kind == "policy":
            return own
        reads = await policy.narrow("plan").decide(request)
        if isinstance(reads, Allow) and not request.access.delegates:
            return own
        if request.access.delegates or request.tool.name not in self._dry_run.tool_names:
            return Deny(NOT_RECORDED.format(name=request.tool.name))
        self._dry_run.call_ids.add(request.call_id)
        return Allow("dry run: recorded, not carried out")
