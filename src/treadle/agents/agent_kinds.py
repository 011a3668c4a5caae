"""The kinds of child agents that every agent has: general, explore, plan and review.

A definition of the same name replaces one (agent_files.py). Used by task_tool.py.
"""

from __future__ import annotations

from treadle.agents.agent_definition import AgentDefinition

CHILD_INSTRUCTIONS = (
    "You work on one task that another agent gave you. It sees only your last message, so put into "
    "it all that matters: what you did or found, with file paths, and what is left. You cannot ask "
    "questions: decide, and say what you assumed."
)

GENERAL_AGENT = AgentDefinition(
    "general",
    "Does a piece of work with all tools.",
    "Do all of the task, check it, and end with a short report.",
)

EXPLORE_AGENT = AgentDefinition(
    "explore",
    "Finds where something is and how it works. Fast; changes nothing.",
    "You look things up and change nothing. Begin broad (names, words, folders), then read only "
    "the parts that matter; make independent searches in one reply. End with the answer, the files "
    "and lines that prove it, and what you did not find.",
    excluded_tools=("task", "write", "edit", "apply_patch", "notebook_edit", "todo"),
    mode="plan",
    use_small_model=True,
)

PLAN_AGENT = AgentDefinition(
    "plan",
    "Works out how to make a larger change, step by step. Changes nothing.",
    "You plan a change and make none. Read the code that it touches and how the project does such "
    "things. End with the plan: the steps in order, the files of each, what could go wrong, how to "
    "check the result.",
    excluded_tools=("task", "write", "edit", "apply_patch", "notebook_edit"),
    mode="plan",
)

REVIEW_AGENT = AgentDefinition(
    "review",
    "Reviews a change: what is wrong with it, worst first. Changes nothing.",
    "You review a change and make none. Read the diff, then the code around it that it depends on "
    "and that depends on it. Report what is wrong, not what is good: errors, lost or leaked data, "
    "cases without a test, contracts that are broken. For each finding its file and line, what "
    "happens, and how to see it; the worst first. Leave out matters of taste and what you cannot "
    "show. If nothing is wrong, say so in a line.",
    excluded_tools=("task", "write", "edit", "apply_patch", "notebook_edit"),
    mode="plan",
)

BUILTIN_AGENTS = (GENERAL_AGENT, EXPLORE_AGENT, PLAN_AGENT, REVIEW_AGENT)
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
