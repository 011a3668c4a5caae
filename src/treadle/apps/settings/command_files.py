"""Custom slash commands: Markdown files whose text is sent as the message.

    .treadle/commands/NAME.md, .claude/commands/NAME.md     in the folder (if trusted) and in $HOME
    .cursor/commands/NAME.md                                in the folder
    .treadle/skills, .claude/skills, …                      /NAME loads the skill
    ~/.codex/prompts/NAME.md                                /prompts:NAME

    ---
    description: Commit what is staged
    allowed-tools: Bash(git commit:*), Read       without approval in this turn
    model: haiku                                  headless, if no other is chosen
    ---
    Changes: !`git diff --staged`                 the output of a command
    Follow @docs/commits.md for $ARGUMENTS

`$ARGUMENTS` is everything typed after the name, `$1` to `$9` are its words; a file that uses `$0`
or `$ARGUMENTS[0]` counts from 0. A subfolder is part of the name: `git/fix.md` is `/git:fix`. What
the commands of a project run and allow needs an approval (extensions.py). Reads only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.text import frontmatter
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.folder_names import (
    COMMAND_FOLDERS,
    PROJECT_COMMAND_FOLDERS,
    PROJECT_SKILL_FOLDERS,
    SKILL_FOLDERS,
)

CODEX_PROMPTS = ".codex/prompts"
MAX_BYTES = 256 * 1024
_PLACEHOLDER = compile_lazily(r"\$(?:ARGUMENTS\[(\d)\]|(ARGUMENTS)\b|(\d)(?!\d))")
_FROM_ZERO = compile_lazily(r"\$(?:0(?!\d)|ARGUMENTS\[0\])")
_NAMED = compile_lazily(r"\$([A-Z][A-Z0-9_]*)\b")
SHELL_COMMAND = compile_lazily(r"(?<![\w`])!`([^`\n]+)`")
# A rule ends at a comma or blank that is not in its parentheses.
_RULE = compile_lazily(r"[^\s,(]+(?:\([^)]*\))?")


class CustomCommand(msgspec.Struct, frozen=True):
    """A command of a file. `is_user`: the file is the user's own, not one of a project;
    `is_plugin`: of a plugin that the user agreed to."""

    name: str
    summary: str
    body: str
    file: Path
    is_user: bool = False
    allowed_tools: tuple[str, ...] = ()
    model: str = ""
    is_plugin: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """What it runs and allows, which an approval is for; empty if it does neither."""
        commands = SHELL_COMMAND.findall(self.body)
        if not commands and not self.allowed_tools:
            return {}
        return {"run": commands, "allow": list(self.allowed_tools)}

    def expand(self, arguments: str, body: str = "") -> str:
        """The message to send, before its commands are run. Arguments without a place in the text
        follow it. `body`: the text instead of that of the file."""
        text = self.fill_in(body or self.body, arguments)
        if _PLACEHOLDER.search(self.body) or text != (body or self.body):
            return text
        return f"{text}\n\n{arguments}".strip()

    def fill_in(self, text: str, arguments: str) -> str:
        """A part of the file with the arguments in place of their names."""
        try:
            from shlex import split

            words = split(arguments)
        except ValueError:
            words = arguments.split()
        first = 0 if _FROM_ZERO.search(self.body) else 1

        def replace(placeholder: re.Match[str]) -> str:
            index, everything, number = placeholder.groups()
            if everything:
                return arguments
            place = int(index) if index is not None else int(number) - first
            return words[place] if 0 <= place < len(words) else ""

        named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z][A-Z0-9_]*=", word))
        text = _NAMED.sub(lambda match: named.get(match[1], match[0]), text)
        return _PLACEHOLDER.sub(replace, text)


def find_custom_commands(
    folders: Iterable[Path], home: Path | None = None
) -> tuple[list[CustomCommand], list[str]]:
    """The commands, and one line for each file that was skipped. Of two with the same name the
    first wins. Symlinks that leave the folder are skipped, except in the user's home."""
    commands: dict[str, CustomCommand] = {}
    problems: list[str] = []
    for folder in dict.fromkeys(folders):
        within = None if folder == home else folder
        for base, file, name in _list_files(folder, within, problems):
            try:
                command = read_command(file, name, within)
            except (ConfigError, FileNotFoundError) as error:
                if base.name != "skills":  # the list of skills names those
                    problems.append(str(error))
            else:
                commands.setdefault(command.name, command)
    return list(commands.values()), problems


def _list_files(
    folder: Path, within: Path | None, problems: list[str]
) -> Iterator[tuple[Path, Path, str]]:
    """The files with commands below a folder: their base folder, the file, the command's name."""
    in_home = (*COMMAND_FOLDERS, *SKILL_FOLDERS)
    in_project = (*PROJECT_COMMAND_FOLDERS, *PROJECT_SKILL_FOLDERS)
    for base in (folder / name for name in (in_home if within is None else in_project)):
        if within is not None and not _is_inside(base, within):
            problems.append(f"{base}: skipped, it is a symlink that leaves {within}")
        elif base.name == "skills":
            yield from ((base, file, file.parent.name) for file in sorted(base.glob("*/SKILL.md")))
        else:
            for file in sorted(base.glob("**/*.md")):
                yield base, file, ":".join(file.relative_to(base).with_suffix("").parts)
    if within is None:
        prompts = folder / CODEX_PROMPTS
        for file in sorted(prompts.glob("*.md")):
            yield prompts, file, f"prompts:{file.stem}"


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_command(
    file: Path, name: str, within: Path | None, *, is_plugin: bool = False
) -> CustomCommand:
    """The command of a file; ConfigError or FileNotFoundError if it cannot be read. A skill may
    name itself, but not one of a plugin."""
    try:
        front, body = frontmatter.parse_frontmatter(read_text(file, MAX_BYTES, within=within))
    except frontmatter.FrontmatterError as error:
        raise ConfigError(f"{file}: {error}") from error
    summary = str(front.get("description") or body.strip().split("\n", 1)[0])
    if file.name == "SKILL.md":
        name = name if is_plugin else str(front.get("name") or name)
        body = f"Skill {name}, in {file.parent} (paths in it are relative to that).\n\n{body}"
    allowed = front.get("allowed-tools") or ""
    rules = allowed if isinstance(allowed, list) else _RULE.findall(allowed)
    model = str(front.get("model") or "").strip()
    return CustomCommand(
        *(name, summary[:80], body.strip(), file, within is None, tuple(rules), model),
        is_plugin=is_plugin,
    )
