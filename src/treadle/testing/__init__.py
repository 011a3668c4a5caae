"""Fakes, fault injection and conformance suites, shipped for programs that use the engine.

    clock         a clock without waiting            stores      a store in memory
    tools         tools that record and wait         chaos       a model that fails
    observers     one that records, one that fails   provider    a provider server on loopback
    faulty_files  a file system that fails           conformance suites for the contracts

The model that follows a script is treadle.models.Scripted. `check_model`, `check_store` and so on
test an implementation of a contract: docs/extending.md. The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.testing.chaos import ChaosModel
    from treadle.testing.clock import ManualClock
    from treadle.testing.conformance.gate import check_gate
    from treadle.testing.conformance.hook import check_hook
    from treadle.testing.conformance.model import ConformanceRequests, check_model
    from treadle.testing.conformance.mutator import check_mutator
    from treadle.testing.conformance.observer import check_observer
    from treadle.testing.conformance.policy import check_policy
    from treadle.testing.conformance.run_engine import check_run_engine
    from treadle.testing.conformance.source import check_tool_source
    from treadle.testing.conformance.store import check_store
    from treadle.testing.conformance.task_manager import check_task_manager
    from treadle.testing.conformance.tool import check_tool
    from treadle.testing.conformance.workspace import check_workspace
    from treadle.testing.faulty_files import FaultyFiles
    from treadle.testing.observers import FailingObserver, RecordingObserver
    from treadle.testing.provider import FakeCall, FakeReply, FakeUsage, ProviderServer
    from treadle.testing.stores import MemoryStore
    from treadle.testing.tools import ChangingSource, RecordingTool, make_tool_context

__all__ = [
    "ChangingSource",
    "ChaosModel",
    "ConformanceRequests",
    "FailingObserver",
    "FakeCall",
    "FakeReply",
    "FakeUsage",
    "FaultyFiles",
    "ManualClock",
    "MemoryStore",
    "ProviderServer",
    "RecordingObserver",
    "RecordingTool",
    "check_gate",
    "check_hook",
    "check_model",
    "check_mutator",
    "check_observer",
    "check_policy",
    "check_run_engine",
    "check_store",
    "check_task_manager",
    "check_tool",
    "check_tool_source",
    "check_workspace",
    "make_tool_context",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ChangingSource": "tools",
        "ChaosModel": "chaos",
        "ConformanceRequests": "conformance.model",
        "FailingObserver": "observers",
        "FakeCall": "provider",
        "FakeReply": "provider",
        "FakeUsage": "provider",
        "FaultyFiles": "faulty_files",
        "ManualClock": "clock",
        "MemoryStore": "stores",
        "ProviderServer": "provider",
        "RecordingObserver": "observers",
        "RecordingTool": "tools",
        "check_gate": "conformance.gate",
        "check_hook": "conformance.hook",
        "check_model": "conformance.model",
        "check_mutator": "conformance.mutator",
        "check_observer": "conformance.observer",
        "check_policy": "conformance.policy",
        "check_run_engine": "conformance.run_engine",
        "check_store": "conformance.store",
        "check_task_manager": "conformance.task_manager",
        "check_tool": "conformance.tool",
        "check_tool_source": "conformance.source",
        "check_workspace": "conformance.workspace",
        "make_tool_context": "tools",
    },
    lambda name: "treadle.models.Scripted" if name == "Scripted" else "",
)
