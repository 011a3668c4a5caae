"""Skills: folders with a SKILL.md that explains how to do something, and further files.

    ---
    name: release
    description: Cut a release of this project. Use when asked to publish a version.
    ---
    1. Run scripts/version.py ...

Only names and descriptions are in the prompt; the `skill` tool loads the rest when needed. A skill
runs nothing by itself: the model runs its scripts with its other tools, under the policy. Skills
of a project are used only if the user trusts its folder.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import ConfigError, ToolError
from treadle.core.transcript.content import Arguments
from treadle.core.untrusted_files import read_text
from treadle.lib.text.frontmatter import FrontmatterError, parse_frontmatter
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import plural
from treadle.tools.federation import StaticSource
from treadle.tools.folder_names import PROJECT_SKILL_FOLDERS, SKILL_FOLDERS

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
MAX_SKILLS = 200
MAX_FILES = 50
MAX_DESCRIPTION_CHARS = 1_024
MAX_SECTION_CHARS = 16_000
_NAME = compile_lazily(r"[A-Za-z0-9][\w.:-]{0,63}", re.ASCII)


class Skill(msgspec.Struct, frozen=True):
    """One skill. `within` is the folder that symlinks in its files must not escape; None for the
    user's own skills."""

    name: str
    description: str
    folder: Path
    within: Path | None
    for_model: bool = True  # False: only the user starts it
    plugin_root: str = ""  # the folder of the plugin that has it


# ------------------------------------------------------------------ discovery


def find_skills(folder: Path | None, home: Path, *, trusted: bool) -> tuple[list[Skill], list[str]]:
    """The skills of a folder and of the user, and a line for each one that is not used.

    Of two with one name the project's is used, and of its folders the first.
    """
    found: dict[str, tuple[Skill, str]] = {}
    notes: list[str] = []
    parents: list[tuple[Path, Path | None]] = [(home / name, None) for name in SKILL_FOLDERS]
    if folder is not None and os.path.realpath(folder) != os.path.realpath(home):
        in_project = [(folder / name, folder) for name in PROJECT_SKILL_FOLDERS]
        unused = 0 if trusted else sum(len(list(_list_folders(parent))) for parent, _ in in_project)
        if unused:
            skills = plural(unused, "skill")
            notes.append(f"{skills} of {folder} cannot be used until you trust the folder")
        parents = [*in_project, *parents] if trusted else parents
    for parent, within in parents:
        for skill_folder in _list_folders(parent):
            try:
                skill, body = read_skill(skill_folder, within)
            except ConfigError as error:
                notes.append(str(error))
                continue
            used, text = found.setdefault(skill.name, (skill, body))
            if used is not skill and (used.description, text) != (skill.description, body):
                notes.append(f"{skill_folder}: not used, {used.folder} has the same name")
    return sorted((skill for skill, _ in found.values()), key=lambda skill: skill.name), notes


def _list_folders(parent: Path) -> Iterator[Path]:
    try:
        found = sorted(parent.iterdir())
    except OSError:
        return
    for folder in found[:MAX_SKILLS]:
        if not folder.name.startswith(".") and folder.is_dir():
            yield folder


def read_skill(folder: Path, within: Path | None, name: str = "") -> tuple[Skill, str]:
    """One skill and its body; ConfigError if it is invalid. `name` is used in place of its own."""
    file = folder / SKILL_FILE
    head, body = _read_skill_file(file, within)
    name = name or str(head.get("name") or folder.name)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{file}: invalid name {name[:80]!r}; use letters, digits and -")
    description = " ".join(str(head.get("description") or "").split())
    if not description:
        raise ConfigError(
            f"{file}: the skill is not used: it has no description, by which a model chooses it. "
            "Add a line `description: ...` to its front matter"
        )
    if not body.strip():
        raise ConfigError(f"{file}: has no text below its frontmatter; write what to do")
    only_user = str(head.get("disable-model-invocation", "")).lower() == "true"
    skill = Skill(name, description[:MAX_DESCRIPTION_CHARS], folder, within, not only_user)
    return skill, body.strip()


def _read_skill_file(file: Path, within: Path | None) -> tuple[dict[str, str | list[str]], str]:
    try:
        return parse_frontmatter(read_text(file, MAX_SKILL_BYTES, within=within))
    except FileNotFoundError:
        raise ConfigError(f"{file.parent}: not a skill, it has no {SKILL_FILE}") from None
    except FrontmatterError as error:
        raise ConfigError(f"{file}: {error}") from error


# ------------------------------------------------------------------ texts for the model


def format_skills_section(skills: Sequence[Skill]) -> str:
    """The section of the prompt that lists the skills; empty if there are none."""
    shown = [skill for skill in skills if skill.for_model]
    if not shown:
        return ""
    lines = [
        "# Skills",
        "Instructions for certain kinds of work. When a task fits one of these descriptions, call "
        "`skill` with its name before you begin, and follow what it says.",
    ]
    size, left = sum(map(len, lines)), list[str]()
    for skill in shown:
        line = f"- {skill.name}: {skill.description}"
        if size + len(line) > MAX_SECTION_CHARS:
            left.append(skill.name)
            continue
        lines.append(line)
        size += len(line)
    if left:
        lines.append(f"- without room for a description: {', '.join(left)[:MAX_SECTION_CHARS]}")
    return "\n".join(lines)


def load_skill_text(skill: Skill) -> str:
    """The whole skill, read now: its folder, its text, its files."""
    body = read_skill(skill.folder, skill.within, skill.name)[1]
    if skill.plugin_root:
        body = body.replace("${CLAUDE_PLUGIN_ROOT}", skill.plugin_root)
    files, is_all = _list_skill_files(skill)
    parts = [f"Skill {skill.name}, in {skill.folder} (paths in it are relative to that).", body]
    if files:
        more = "" if is_all else f"\n- and more than {MAX_FILES} others"
        parts.append("Files of this skill:\n" + "\n".join(f"- {file}" for file in files) + more)
    return "\n\n".join(parts)


def _list_skill_files(skill: Skill) -> tuple[list[str], bool]:
    """The paths of its other files, and whether these are all. Symlinked folders are not followed;
    a symlink that leaves `within` is not listed."""
    within = os.path.realpath(skill.within or "/")
    found: list[str] = []
    for folder, folders, names in os.walk(skill.folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            is_inside = Path(os.path.realpath(path)).is_relative_to(within)
            if name.startswith(".") or name == SKILL_FILE or not is_inside:
                continue
            if len(found) == MAX_FILES:
                return found, False
            found.append(str(path))
    return found, True


# ------------------------------------------------------------------ the tool


class SkillTool(BaseTool):
    """Loads a skill."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = {skill.name.casefold(): skill for skill in skills}
        self._known_names = ", ".join(skill.name for skill in skills)
        self._spec = ToolSpec(
            "skill",
            "Load the instructions of a skill by its name; the prompt lists them.",
            {
                "type": "object",
                "properties": {"name": {"type": "string", "description": "Which skill"}},
                "required": ["name"],
                "additionalProperties": False,
            },
            effect="pure",
            concurrent=True,
        )

    def check(self, arguments: Arguments) -> str | None:
        name = arguments.get("name")
        if not isinstance(name, str) or len(arguments) != 1:
            return "invalid arguments for skill: give `name`, and nothing else"
        if name.casefold() not in self._skills:
            return f"there is no skill {name!r}; known skills: {self._known_names}"
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[skill: {arguments.get('name', '')}]"

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        skill = self._skills[str(arguments["name"]).casefold()]
        try:
            text = await asyncio.to_thread(load_skill_text, skill)
        except ConfigError as error:
            raise ToolError(f"the skill {skill.name} can no longer be used: {error}") from error
        return ToolOutput(text, display=f"{skill.name}: {skill.description}")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "reading a skill has no effect")


class Skills(StaticSource):
    """Skills as a tool source: one tool, or none without skills for a model. It has no
    instructions: skills have their own section of the prompt."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        shown = [skill for skill in skills if skill.for_model]
        super().__init__((SkillTool(shown),) if shown else (), "skills")
