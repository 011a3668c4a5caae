"""The contracts of the engine: what a model, a tool, a store and so on have to do.

An object with these methods can be given to an agent; `Base…` has defaults, `Wrapped…` changes a
few things of another object. docs/extending.md has an example of each, `treadle.testing` checks
whether an implementation keeps its promises.
"""

from __future__ import annotations

from treadle.core.contracts.gate import Admit, BaseGate, Gate, RequestEstimate, Stop
from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Change,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.model import (
    CacheRequest,
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
)
from treadle.core.contracts.mutator import MutationContext, MutationPoint, Mutator
from treadle.core.contracts.observer import BaseObserver, Observer
from treadle.core.contracts.policy import (
    Allow,
    Ask,
    BasePolicy,
    Deny,
    PermissionRequest,
    Policy,
    Verdict,
)
from treadle.core.contracts.source import BaseSource, ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import (
    MakeTaskManager,
    ReportTaskEnd,
    TaskInfo,
    TaskManager,
    TaskState,
)
from treadle.core.contracts.tool import (
    Access,
    BaseTool,
    FileAccess,
    ForwardingTool,
    Preview,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.contracts.workspace import (
    CommandResult,
    FileContent,
    ProgramResult,
    RunningCommand,
    Workspace,
)
from treadle.core.contracts.wrapped import WrappedModel, WrappedSource, WrappedStore, WrappedTool
from treadle.core.transcript.content import Arguments, Document, Image, Text, Thinking, ToolCall
from treadle.core.transcript.entries import EffectClass, Entry, View, fold_entries
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

__all__ = [
    "Access",
    "AddContext",
    "Admit",
    "Allow",
    "Arguments",
    "Ask",
    "AssistantItem",
    "BaseGate",
    "BaseObserver",
    "BasePolicy",
    "BaseSource",
    "BaseTool",
    "Block",
    "CacheRequest",
    "Change",
    "CommandResult",
    "Deny",
    "Document",
    "EffectClass",
    "Entry",
    "FileAccess",
    "FileContent",
    "ForwardingTool",
    "Gate",
    "Hook",
    "HookAnswer",
    "HookInput",
    "HookPoint",
    "Image",
    "Item",
    "MakeTaskManager",
    "Model",
    "ModelCard",
    "ModelEvent",
    "ModelNotified",
    "ModelOptions",
    "ModelRequest",
    "ModelTextDelta",
    "ModelThinkingDelta",
    "ModelToolCallBegan",
    "ModelToolCallDelta",
    "ModelToolCallRequested",
    "ModelUsageUpdated",
    "MutationContext",
    "MutationPoint",
    "Mutator",
    "NoticeItem",
    "Observer",
    "PartQuarantined",
    "PermissionRequest",
    "Permit",
    "Policy",
    "Preview",
    "ProbeResult",
    "ProgramResult",
    "Reply",
    "ReportTaskEnd",
    "RequestEstimate",
    "RunningCommand",
    "Stop",
    "Store",
    "SummaryItem",
    "TaskInfo",
    "TaskManager",
    "TaskState",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolOutput",
    "ToolResultItem",
    "ToolSource",
    "ToolSpec",
    "Transcript",
    "Usage",
    "UserItem",
    "Verdict",
    "View",
    "Workspace",
    "WrappedModel",
    "WrappedSource",
    "WrappedStore",
    "WrappedTool",
    "fold_entries",
]
