"""The contract of a policy: may this call happen?

Asked about every call that is well formed, before its effect; about one call more than once if
its arguments were changed, it may start early, or it is taken up after a restart. What the answer
means in a mode, and how rules are written, is policy/'s business.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import Arguments


class PermissionRequest(msgspec.Struct, frozen=True):
    """A call that wants to happen."""

    session_id: str
    call_id: str
    tool: ToolSpec
    arguments: Arguments
    summary: str


class Allow(msgspec.Struct, frozen=True):
    reason: str = ""


class Deny(msgspec.Struct, frozen=True):
    """No; the model reads the reason.

    `kind` "headless": the call needs approval, and the run has no user to ask.
    """

    reason: str
    kind: Literal["policy", "headless"] = "policy"


class Ask(msgspec.Struct, frozen=True):
    """Somebody has to decide. `rules` are what "always" would save, shown before it does."""

    reason: str
    rules: tuple[str, ...] = ()


Verdict = Allow | Deny | Ask


class Policy(Protocol):
    """Who decides what may happen.

    Promises: the same proposal under the same rules gets the same verdict; an error inside
    is a Deny or an Ask, never an Allow.
    It must not run anything, and must not be widened by what a model or a repository says.
    """

    async def decide(self, request: PermissionRequest) -> Verdict: ...

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        """The person said "always": keep these rules."""
