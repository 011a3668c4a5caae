"""The system prompt, from the sections of context/prompt and the memory files.

Memory files of the project are used only in a trusted folder; those of the user always. Used by
assemble.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.context.memory_files import (
    CURSOR_AND_GEMINI_FILES,
    PROJECT_FILES,
    find_repository,
    find_user_files,
)
from treadle.context.prompt import (
    SystemPrompt,
    build_prompt,
    describe_environment,
    read_section,
)
from treadle.lib.text.redaction import redact

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
    more_memory: bool = False,
    check_read: Callable[[Path], str] = lambda path: "",
) -> tuple[SystemPrompt, Memory | None]:
    """The prompt without secrets, and the memory in it if there is any.

    It is the same in every host and mode, so that it stays in the provider's cache. `family`: see
    `find_family` in context/prompt. `more_memory`, `check_read`: see `read_memory`.
    """
    # Other models get the mode as a notice, so that a change of it keeps the prompt as it is.
    extra = [read_section("plan")] if mode == "plan" and is_small else []
    extra += [appended] if appended.strip() else []
    memory = None if is_small else _load_memory(root, trusted, notes, more_memory, check_read)
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


def _load_memory(
    folder: Path,
    trusted: bool,
    notes: list[str],
    more: bool,
    check_read: Callable[[Path], str],
) -> Memory | None:
    home, root = Path.home(), find_repository(folder)
    names = (*PROJECT_FILES, *(CURSOR_AND_GEMINI_FILES if more else ()))
    down = folder.relative_to(root).parts
    folders = [root.joinpath(*down[:count]) for count in range(len(down) + 1)]
    present = [one / name for one in folders for name in names if (one / name).exists()]
    if present and not trusted:
        listed = ", ".join(str(file.relative_to(root)) for file in present)
        notes.append(f"{listed} ignored: the folder is not trusted (run `treadle trust`)")
    own = any(file.path.exists() for file in find_user_files(home, more=more))
    if not (present and trusted) and not own:
        return None
    from treadle.context.memory import read_memory, read_user_memory

    if trusted:
        memory = read_memory(root, folder, home, more=more, check_read=check_read)
    else:
        memory = read_user_memory(home, more=more)
    notes.extend(memory.problems)
    return memory
