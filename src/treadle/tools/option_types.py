"""The types of the options of `@tool`, for type checkers.

Imported by no program: tool_options.py has the same names (a test compares them).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from treadle.core.contracts.tool import Access, Preview, ProbeResult, ToolKind, UndoAnswer
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import EffectClass
from treadle.core.transcript.items import ToolResultItem

PreviewAnswer = str | Preview | None


class ToolOptions(TypedDict, total=False):
    """Every option of `@tool`; each may be left out.

    name              what the model calls; the name of the function
    description       for the model; the docstring of the function
    effect            pure: can be repeated, and runs beside other calls · verifiable: `probe` can
                      find out whether it happened · irreversible: at most once (the default)
    approval          the user decides on every call, even if the policy allows it
    kind              what it does, for those who show its calls: read, edit, execute, ...
    concurrent        may run beside other calls; the default for a pure tool
    timeout           seconds; the default is `tool_timeout` of the agent. Then the call is
                      cancelled (`context.is_cancelled`), and has 5 seconds to end
    max_result_chars  a longer result is truncated
    detachable        the call may continue in the background: `context.detach()`
    detach_after      seconds after which it continues there
    access            what a call touches: keys for the order of calls, files and commands for the
                      policy
    check             what else is wrong with the arguments, as a text for the model; None: nothing
    preview           what a call would do, for the user who has to approve it: a text or a Preview,
                      of the arguments; may be async. A ToolError says that the call would fail
    undo              the call that takes a call back, of its arguments and its result (`.text`):
                      the name of a tool and its arguments; or why there is none
    evidence, probe   of a verifiable tool: what is kept before a call, and whether it happened
    """

    name: str | None
    description: str | None
    effect: EffectClass
    approval: bool
    kind: ToolKind
    concurrent: bool | None
    timeout: float | None
    max_result_chars: int
    detachable: bool | None
    detach_after: float | None
    access: Callable[[Arguments], Access] | None
    check: Callable[[Arguments], str | None] | None
    preview: Callable[[Arguments], PreviewAnswer | Awaitable[PreviewAnswer]] | None
    probe: Callable[..., Awaitable[ProbeResult]] | None
    evidence: Callable[..., Awaitable[dict[str, Any]]] | None
    undo: Callable[[Arguments, ToolResultItem], UndoAnswer] | None
