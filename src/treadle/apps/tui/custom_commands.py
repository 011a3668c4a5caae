"""Commands of the user's and the project's own: Markdown files whose words are sent.

    .treadle/commands/NAME.md, .claude/commands/NAME.md     here (once trusted) and at home

`$ARGUMENTS` stands for all that is typed after the name, `$1` to `$9` for its words. A folder
becomes a part of the name: `git/fix.md` is `/git:fix`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.tools import frontmatter

COMMAND_FOLDERS = (".treadle/commands", ".claude/commands")
MAX_BYTES = 256 * 1024
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS|[1-9])")


class CustomCommand(msgspec.Struct, frozen=True):
    name: str
    summary: str
    body: str
    file: Path

    def expand(self, arguments: str) -> str:
        """What is sent."""
        try:
            words = shlex.split(arguments)
        except ValueError:
            words = arguments.split()

        def put(place: re.Match[str]) -> str:
            if place[1] == "ARGUMENTS":
                return arguments
            number = int(place[1])
            return words[number - 1] if number <= len(words) else ""

        if _PLACEHOLDER.search(self.body):
            return _PLACEHOLDER.sub(put, self.body)
        return f"{self.body}\n\n{arguments}".strip()


def find_custom_commands(
    folders: Iterable[Path], home: Path | None = None
) -> tuple[list[CustomCommand], list[str]]:
    """All of them, and a line for each that is left out. Of two with one name the first counts.

    Links do not lead out of a folder, except at home, where they are the user's own.
    """
    found: dict[str, CustomCommand] = {}
    problems: list[str] = []
    for folder in dict.fromkeys(folders):
        within = None if folder == home else folder
        for base in (folder / place for place in COMMAND_FOLDERS):
            if within is not None and not _is_inside(base, within):
                problems.append(f"{base}: leads out of {within} by a link; it is not read")
                continue
            for file in sorted(base.glob("**/*.md")):
                try:
                    command = _read_command(file, base, within)
                except (ConfigError, FileNotFoundError) as error:
                    problems.append(str(error))
                else:
                    found.setdefault(command.name, command)
    return list(found.values()), problems


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _read_command(file: Path, base: Path, within: Path | None) -> CustomCommand:
    try:
        front, body = frontmatter.parse_frontmatter(read_text(file, MAX_BYTES, within=within))
    except frontmatter.FrontmatterError as error:
        raise ConfigError(f"{file}: {error}") from error
    name = ":".join(file.relative_to(base).with_suffix("").parts)
    summary = str(front.get("description") or body.strip().split("\n", 1)[0])
    return CustomCommand(name, summary[:80], body.strip(), file)
