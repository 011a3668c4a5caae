"""What the model is told first, from the sections of context/ and the files that hold here.

The project's memory files count where the user trusts the folder; the user's own always do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.context.prompt import SystemPrompt, build_prompt, describe_environment, read_section

if TYPE_CHECKING:
    from treadle.context.memory import Memory

UNATTENDED_INSTRUCTION = (
    "Nobody can answer questions during this run: decide, and say in the end what you chose."
)


def build_system_prompt(
    root: Path,
    *,
    notes: list[str],
    trusted: bool,
    interactive: bool,
    mode: str,
    added_folders: Sequence[Path] = (),
    tools: str = "",
    skills: str = "",
    appended: str = "",
    is_small: bool = False,
) -> tuple[SystemPrompt, Memory | None]:
    """Its sections, and the memory in it, if there is any.

    Constant during a session, so that it stays in the provider's cache.
    """
    extra = [read_section("plan")] if mode == "plan" else []
    extra += [] if interactive or is_small else [UNATTENDED_INSTRUCTION]
    extra += [appended] if appended.strip() else []
    memory = None if is_small else _load_memory(root, trusted, notes)
    prompt = build_prompt(
        environment=describe_environment(root, added_folders=added_folders),
        tools=tools,
        memory=memory.text if memory is not None else "",
        skills=skills,
        user_text="\n\n".join(extra),
        for_small_model=is_small,
    )
    return prompt, memory


def _load_memory(root: Path, trusted: bool, notes: list[str]) -> Memory | None:
    home = Path.home()
    own_files = (home / ".treadle" / "AGENTS.md", home / ".claude" / "CLAUDE.md")
    project_files = [root / name for name in ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")]
    here = [file.name for file in project_files if file.exists()]
    if here and not trusted:
        notes.append(f"{', '.join(here)} not read: `treadle trust` says that you trust this folder")
    if not (here and trusted) and not any(file.exists() for file in own_files):
        return None
    from treadle.context.memory import read_memory

    # Without trust the user's own files alone: as if the work were in the home folder of treadle.
    place = root if trusted else home / ".treadle"
    memory = read_memory(place, home=home)
    notes.extend(memory.problems)
    return memory
