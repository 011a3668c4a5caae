"""One kind of child agent: what an agent file says, and what a program gives as `subagents`.

agent_files.py reads the files; task_tool.py offers the kinds to a model.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.core.argument_checks import (
    TEXT,
    Expected,
    check_fields,
    filled_text,
    list_of,
    number,
    optional,
    whole_number,
)


class AgentDefinition(msgspec.Struct, frozen=True):
    """One kind of child agent.

    tools           names of tools; None: all of the parent. `task` only if it is listed
    excluded_tools  tools that it does not get
    model           the name of its model; "": the parent's
    mode            a permission mode; it counts if it allows less than the parent's
    max_turns       tool rounds of one task
    max_cost        USD that it may spend, of the budget of its parent
    worktree        it works in a git worktree of its own
    background      its call returns at once, and its report comes later
    use_small_model the small model of the settings, if there is one and `model` is ""
    """

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str = ""
    mode: str = ""
    max_turns: int = 50
    origin: str = ""
    excluded_tools: tuple[str, ...] = ()
    max_cost: float | None = None
    worktree: bool = False
    background: bool = False
    use_small_model: bool = False

    def __post_init__(self) -> None:
        check_fields(self, _EXPECTED)


_EXPECTED: Mapping[str, Expected] = {
    "name": filled_text("a name"),
    "description": filled_text("a text that says when to use the agent"),
    "prompt": TEXT,
    "tools": optional(list_of(TEXT, "names of tools")),
    "model": TEXT,
    "mode": TEXT,
    "max_turns": whole_number(0),
    "origin": TEXT,
    "excluded_tools": list_of(TEXT, "names of tools"),
    "max_cost": optional(number("a number of USD, 0 or more", lambda value: value >= 0)),
}
