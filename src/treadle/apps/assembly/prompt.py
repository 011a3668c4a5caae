"""The system prompt, from the sections of context/prompt and the memory files.

Memory files of the project are used only in a trusted folder; those of the user always. Used by
assemble.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.context.prompt import (
    SystemPrompt,
    build_prompt,
    describe_environment,
    read_section,
)
from treadle.core.redaction import redact

if TYPE_CHECKING:
    from treadle.context.memory import Memory


def build_system_prompt(
    root: Path,
    *,
    notes: list[str],
    trusted: bool,
    mode: str,
    family: str = "",
    added_folders: Sequence[Path] = (),
    tools: str = "",
    skills: str = "",
    appended: str = "",
    is_small: bool = False,
    commands: str = "",
    secrets: tuple[str, ...] = (),
) -> tuple[SystemPrompt, Memory | None]:
    """The prompt without secrets, and the memory in it if there is any.

    It is the same in every host and mode, so that it stays in the provider's cache. `family`: see
    `find_family` in context/prompt.
    """
    # Other models get the mode as a notice, so that a change of it keeps the prompt as it is.
    extra = [read_section("plan")] if mode == "plan" and is_small else []
    extra += [appended] if appended.strip() else []
    memory = None if is_small else _load_memory(root, trusted, notes)
    prompt = build_prompt(
        family=family,
        environment=describe_environment(root, added_folders=added_folders, commands=commands),
        tools=tools,
        memory=memory.text if memory is not None else "",
        skills=skills,
        user_text="\n\n".join(extra),
        for_small_model=is_small,
    )
    replace = msgspec.structs.replace
    sections = [replace(part, text=redact(secrets, part.text)) for part in prompt.sections]
    return SystemPrompt(tuple(sections)), memory


def _load_memory(root: Path, trusted: bool, notes: list[str]) -> Memory | None:
    home = Path.home()
    own_files = (home / ".treadle" / "AGENTS.md", home / ".claude" / "CLAUDE.md")
    project_files = [root / name for name in ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")]
    present = [file.name for file in project_files if file.exists()]
    if present and not trusted:
        names = ", ".join(present)
        notes.append(f"{names} ignored: the folder is not trusted (run `treadle trust`)")
    if not (present and trusted) and not any(file.exists() for file in own_files):
        return None
    from treadle.context.memory import read_memory

    # Without trust only the user's files: the same as working in ~/.treadle.
    memory = read_memory(root if trusted else home / ".treadle", home=home)
    notes.extend(memory.problems)
    return memory
