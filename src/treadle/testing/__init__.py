"""Fakes, fault injection and conformance suites, shipped for programs that use the engine.

    clock         a clock without waiting            stores      a store in memory
    tools         tools that record and wait         chaos       a model that fails
    observers     one that records, one that fails   provider    a provider server on loopback
    faulty_files  a file system that fails           conformance suites for the contracts
    http_behaviors  what HTTP servers and proxies do, played on loopback

The model that follows a script is treadle.models.Scripted.
The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.testing.chaos import ChaosModel
    from treadle.testing.clock import ManualClock
    from treadle.testing.faulty_files import FaultyFiles
    from treadle.testing.observers import FailingObserver, RecordingObserver
    from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
    from treadle.testing.stores import MemoryStore
    from treadle.testing.tools import ChangingSource, RecordingTool

__all__ = [
    "ChangingSource",
    "ChaosModel",
    "FailingObserver",
    "FakeCall",
    "FakeReply",
    "FaultyFiles",
    "ManualClock",
    "MemoryStore",
    "ProviderServer",
    "RecordingObserver",
    "RecordingTool",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ChangingSource": "tools",
        "ChaosModel": "chaos",
        "FailingObserver": "observers",
        "FakeCall": "provider",
        "FakeReply": "provider",
        "FaultyFiles": "faulty_files",
        "ManualClock": "clock",
        "MemoryStore": "stores",
        "ProviderServer": "provider",
        "RecordingObserver": "observers",
        "RecordingTool": "tools",
    },
)
