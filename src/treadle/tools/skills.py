"""Skills: folders with a SKILL.md that says how to do something, and files that help with it.

    ---
    name: release
    description: Cut a release of this project. Use when asked to publish a version.
    ---
    1. Run scripts/version.py ...

Only names and descriptions are in the prompt; the `skill` tool loads the rest when it is needed.
A skill runs nothing by itself: its scripts are run by the model with its other tools, under the
policy. A repository's skills count only in a folder that the user trusts.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ConfigError, ToolError
from treadle.core.transcript.content import Arguments
from treadle.core.untrusted_files import read_text
from treadle.tools.frontmatter import FrontmatterError, parse_frontmatter

PROJECT_DIRS = (".treadle/skills", ".claude/skills")
HOME_DIRS = (".treadle/skills",)
SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
MAX_SKILLS = 200
MAX_FILES = 50
MAX_DESCRIPTION_CHARS = 1_024
MAX_SECTION_CHARS = 16_000
_NAME = re.compile(r"[A-Za-z0-9][\w.:-]{0,63}", re.ASCII)


class Skill(msgspec.Struct, frozen=True):
    """One skill. `within` is the folder that its files may not lead out of, unless it is one of
    the user's own."""

    name: str
    description: str
    folder: Path
    within: Path | None
    for_model: bool = True  # some are meant to be started by a person only


# ------------------------------------------------------------------ finding them


def find_skills(folder: Path | None, home: Path, *, trusted: bool) -> tuple[list[Skill], list[str]]:
    """The skills of a folder and of the user, and a line for each that is not taken.

    Of two with one name the project's counts.
    """
    found: dict[str, Skill] = {}
    notes: list[str] = []
    places: list[tuple[Path, Path | None]] = [(home / place, None) for place in HOME_DIRS]
    if folder is not None and os.path.realpath(folder) != os.path.realpath(home):
        theirs = [(folder / place, folder) for place in PROJECT_DIRS]
        waiting = 0 if trusted else sum(1 for place, _ in theirs for _ in _list_folders(place))
        if waiting:
            notes.append(f"{waiting} skills of {folder} wait until you trust the folder")
        places = [*theirs, *places] if trusted else places
    for place, within in places:
        for one in _list_folders(place):
            try:
                skill = read_skill(one, within)[0]
            except ConfigError as error:
                notes.append(str(error))
            else:
                found.setdefault(skill.name, skill)
    return sorted(found.values(), key=lambda skill: skill.name), notes


def _list_folders(parent: Path) -> Iterator[Path]:
    try:
        found = sorted(parent.iterdir())
    except OSError:
        return
    for folder in found[:MAX_SKILLS]:
        if not folder.name.startswith(".") and folder.is_dir():
            yield folder


def read_skill(folder: Path, within: Path | None) -> tuple[Skill, str]:
    """One skill and its body. A ConfigError says what is wrong with it."""
    file = folder / SKILL_FILE
    head, body = _read_skill_file(file, within)
    name = str(head.get("name") or folder.name)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{file}: {name[:80]!r} is no name; use letters, digits and -")
    description = " ".join(str(head.get("description") or "").split())
    if not description:
        raise ConfigError(f"{file}: has no description, so a model cannot know when to use it")
    if not body.strip():
        raise ConfigError(f"{file}: has no text under its head; write what to do")
    only_person = str(head.get("disable-model-invocation", "")).lower() == "true"
    skill = Skill(name, description[:MAX_DESCRIPTION_CHARS], folder, within, not only_person)
    return skill, body.strip()


def _read_skill_file(file: Path, within: Path | None) -> tuple[dict[str, str | list[str]], str]:
    try:
        return parse_frontmatter(read_text(file, MAX_SKILL_BYTES, within=within))
    except FileNotFoundError:
        raise ConfigError(f"{file.parent}: has no {SKILL_FILE}, so it is no skill") from None
    except FrontmatterError as error:
        raise ConfigError(f"{file}: {error}") from error


# ------------------------------------------------------------------ what the model is told


def format_skills_section(skills: Sequence[Skill]) -> str:
    """The part of the prompt that names them; empty without any."""
    shown = [skill for skill in skills if skill.for_model]
    if not shown:
        return ""
    lines = [
        "# Skills",
        "Instructions that somebody wrote for work of a certain kind. When a task fits one of "
        "these descriptions, call `skill` with its name before you begin, and follow what it says.",
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
    """The whole of a skill, read now: where it is, what it says, which files it has."""
    body = read_skill(skill.folder, skill.within)[1]
    files, is_all = _list_skill_files(skill)
    parts = [f"Skill {skill.name}, in {skill.folder} (paths in it are relative to that).", body]
    if files:
        more = "" if is_all else f"\n- and more than {MAX_FILES} others"
        parts.append("Files of this skill:\n" + "\n".join(f"- {file}" for file in files) + more)
    return "\n\n".join(parts)


def _list_skill_files(skill: Skill) -> tuple[list[str], bool]:
    """The files beside it with their paths; links are not followed, and one that leads out is
    not named."""
    within = os.path.realpath(skill.within or "/")
    found: list[str] = []
    for folder, folders, names in os.walk(skill.folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith(".") or name == SKILL_FILE:
                continue
            if not Path(os.path.realpath(path)).is_relative_to(within):
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
        names = [skill.name for skill in skills]
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
        self._known_names = ", ".join(names)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        name = arguments.get("name")
        if not isinstance(name, str) or len(arguments) != 1:
            return "invalid arguments for skill: give `name`, and nothing else"
        if name.casefold() not in self._skills:
            return f"there is no skill {name!r}; there are: {self._known_names}"
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[skill: {arguments.get('name', '')}]"

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        skill = self._skills[str(arguments["name"]).casefold()]
        try:
            text = await asyncio.to_thread(load_skill_text, skill)
        except ConfigError as error:
            raise ToolError(f"the skill {skill.name} cannot be used any more: {error}") from error
        return ToolOutput(text, display=f"{skill.name}: {skill.description}")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "reading a skill has no effect")


class Skills:
    """Skills as a tool source: one tool, or none without skills for a model."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        shown = [skill for skill in skills if skill.for_model]
        self._tools: tuple[Tool, ...] = (SkillTool(shown),) if shown else ()

    @property
    def name(self) -> str:
        return "skills"

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def instructions(self) -> str:
        return ""  # they have a section of the prompt of their own

    async def open(self) -> None:
        return None

    async def aclose(self) -> None:
        return None
