"""The kinds of child agents: what an agent file says, what a program gives as `subagents`, and
those that every agent has: general, explore, plan and review.

agent_files.py reads the files; task_tool.py offers the kinds to a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from treadle.agents.run import MODEL_EXPECTED
from treadle.core.argument_checks import (
    TEXT,
    Expected,
    SuggestingMeta,
    check_fields,
    filled_text,
    list_of,
    number,
    optional,
    whole_number,
)
from treadle.core.contracts.model import Model
from treadle.core.contracts.tool import Tool


class AgentDefinition(msgspec.Struct, frozen=True, metaclass=SuggestingMeta):
    """One kind of child agent.

    tools           names of the parent's tools, and functions or tools of its own; None: all of the
                    parent but `task`; "*": all of them
    excluded_tools  tools that it does not get
    model           its model, by name or as an object; "": the parent's
    mode            a permission mode; it counts if it allows less than the parent's
    max_turns       tool rounds of one task
    max_cost        USD that it may spend, of the budget of its parent
    worktree        it works in a git worktree of its own
    background      its call returns at once, and its report comes later
    use_small_model the small model of the settings, if there is one and `model` is ""
    output_type     what it answers, a type or a JSON schema; its parent reads JSON
    read_only_commands  in plan mode its commands run, if there is a sandbox: in one without network
                    in which the folder is read-only
    fork            it begins with the conversation, the instructions and the tools of its parent,
                    which the provider has in its cache; `prompt` is not used
    """

    name: str
    description: str
    prompt: str
    tools: Sequence[str | Tool | Callable[..., Any]] | None = None
    model: str | Model = ""
    mode: str = ""
    max_turns: int = 50
    origin: str = ""
    excluded_tools: tuple[str, ...] = ()
    max_cost: float | None = None
    worktree: bool = False
    background: bool = False
    use_small_model: bool = False
    output_type: object = str
    fork: bool = False
    read_only_commands: bool = False

    foreign_names: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("instructions", "system", "system_prompt"), "prompt"
    )

    def __post_init__(self) -> None:
        check_fields(self, _EXPECTED)

    def narrow_cost(self, max_cost: float | None) -> AgentDefinition:
        """The same for a child that may spend at most this, if that is less."""
        if max_cost is None or (self.max_cost is not None and self.max_cost <= max_cost):
            return self
        return msgspec.structs.replace(self, max_cost=max_cost)

    @property
    def tool_names(self) -> tuple[str, ...] | None:
        """The tools of the parent that it gets; None: all of them, `task` only with "*"."""
        return None if self.tools is None else tuple(t for t in self.tools if isinstance(t, str))

    @property
    def own_tools(self) -> tuple[Tool | Callable[..., Any], ...]:
        return tuple(one for one in self.tools or () if not isinstance(one, str))


_EXPECTED: Mapping[str, Expected] = {
    "name": filled_text("a name"),
    "description": filled_text("a text that says when to use the agent"),
    "prompt": TEXT,
    "tools": optional(
        list_of(
            Expected(
                lambda value: isinstance(value, str) or callable(value) or hasattr(value, "spec"),
                "a name, a function or a tool",
            ),
            "names of tools, functions and tools",
        )
    ),
    "model": MODEL_EXPECTED,
    "mode": TEXT,
    "max_turns": whole_number(0),
    "origin": TEXT,
    "excluded_tools": list_of(TEXT, "names of tools"),
    "max_cost": optional(number("a number of USD, 0 or more", lambda value: value >= 0)),
}


# --- the kinds that every agent has: a definition of the same name replaces one ------------

CHILD_INSTRUCTIONS = (
    "You work on one task that another agent gave you. It sees only your last message, so put into "
    "it all that matters: what you did or found, with file paths, and what is left. You cannot ask "
    "questions: decide, and say what you assumed."
)

# What an agent that changes nothing and has no user to ask cannot use.
WRITE_TOOLS = ("task", "write", "edit", "apply_patch", "notebook_edit", "ask", "present_plan")

GENERAL_AGENT = AgentDefinition(
    "general",
    "Does a piece of work with all tools.",
    "Do all of the task, check it, and end with a short report.",
    ("*",),
)

FORK_AGENT = AgentDefinition(
    "fork", "Knows this conversation, and does a part of the work.", "", fork=True
)

EXPLORE_AGENT = AgentDefinition(
    "explore",
    "Finds where something is and how it works. Fast; changes nothing.",
    "You look things up and change nothing. Begin broad (names, words, folders), then read only "
    "the parts that matter; make independent searches in one reply. End with the answer, the files "
    "and lines that prove it, and what you did not find.",
    excluded_tools=(*WRITE_TOOLS, "todo"),
    mode="plan",
    use_small_model=True,
)

PLAN_AGENT = AgentDefinition(
    "plan",
    "Plans a larger change, step by step. Changes nothing.",
    "You plan a change and make none. Read the code that it touches and how the project does such "
    "things. End with the plan: the steps in order, the files of each, what could go wrong, how to "
    "check the result.",
    excluded_tools=WRITE_TOOLS,
    mode="plan",
)

REVIEW_AGENT = AgentDefinition(
    "review",
    "Reviews a change, the worst first. Changes nothing.",
    "You review a change and make none. Read the diff, then the code around it that it depends on "
    "and that depends on it. Report what is wrong, not what is good: errors, lost or leaked data, "
    "cases without a test, contracts that are broken. For each finding its file and line, what "
    "happens, and how to see it; the worst first. Run tests if commands may run. Leave out matters "
    "of taste and what you cannot show. If nothing is wrong, say so in a line.",
    excluded_tools=WRITE_TOOLS,
    mode="plan",
    read_only_commands=True,
)

BUILTIN_AGENTS = (GENERAL_AGENT, FORK_AGENT, EXPLORE_AGENT, PLAN_AGENT, REVIEW_AGENT)
KIND_ALIASES = {"generalpurpose": "general"}  # what other programs call them


def find_kind(name: str, known: dict[str, AgentDefinition]) -> AgentDefinition | None:
    """The definition of this name, whatever its case and form."""
    if name in known:
        return known[name]
    wanted = _fold(name)
    wanted = KIND_ALIASES.get(wanted, wanted)
    return next((one for key, one in known.items() if _fold(key) == wanted), None)


def _fold(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "").replace(" ", "")
