"""The contract of a store of approvals: which definitions of a folder did the user approve?

An approval is of a definition as it was: a changed one needs a new approval. Implemented by
permissions/trust.py, used by hooks/approval.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

ApprovalState = Literal["approved", "new", "changed"]


class ApprovalStore(Protocol):
    """Approvals of hooks, servers and settings, by folder, kind and name."""

    def is_trusted(self, folder: str | Path) -> bool: ...

    def get_approval_state(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> ApprovalState: ...

    def approve(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> None: ...
