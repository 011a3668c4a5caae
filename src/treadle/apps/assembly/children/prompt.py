"""What a child agent is told.

The prompt of its parent with its own definition instead of the identity, without what its tools
cannot do. Used by setup.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.agents.agent_definition import CHILD_INSTRUCTIONS, AgentDefinition
from treadle.apps.assembly.children.places import ChildPlace
from treadle.context.prompt import PromptSection, read_section
from treadle.core.contracts.tool import ToolSpec

READ_ONLY_INSTRUCTION = "You may only look: calls that change something are denied."
COMMANDS_INSTRUCTION = (
    "You may only look. Commands may run, such as tests: their sandbox can change nothing but /tmp."
)


def may_change(tools: Sequence[ToolSpec]) -> bool:
    """Whether one of the tools can change files of the folder."""
    return any(tool.kind in ("edit", "execute") for tool in tools)


def make_instructions(
    definition: AgentDefinition, place: ChildPlace, tools: Sequence[ToolSpec]
) -> str:
    """Its definition, and what the prompt of its parent says about the tools that it has."""
    if definition.fork:
        return place.prompt.text
    names = frozenset(tool.name for tool in tools)
    own, left_out = [definition.prompt, CHILD_INSTRUCTIONS], {"identity"}
    is_plan = place.policy.mode == "plan"
    if is_plan:
        own.append(COMMANDS_INSTRUCTION if place.is_read_only else READ_ONLY_INSTRUCTION)
    left_out |= {"changes", "family"} if is_plan or not may_change(tools) else set()
    left_out |= {"skills"} if "skill" not in names else set()

    def narrow(section: PromptSection) -> str:
        if section.name in ("working", "changes"):
            return read_section(section.name, names - {"ask"})  # CHILD_INSTRUCTIONS forbid it
        if section.name == "environment":
            return place.describe(place.commands if "bash" in names else "")
        return section.text

    sections = [narrow(one) for one in place.prompt.sections if one.name not in left_out]
    return "\n\n".join(text.strip() for text in (*own, *sections) if text.strip())
