"""Commands of the user's and the project's own: Markdown files whose words are sent.

    .treadle/commands/NAME.md, .claude/commands/NAME.md     here (once trusted) and at home

`$ARGUMENTS` stands for all that is typed after the name, `$1` to `$9` for its words. A folder
becomes a part of the name: `git/fix.md` is `/git:fix`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.tools import frontmatter

PLACES = (".treadle/commands", ".claude/commands")
MOST_CHARS = 100_000
_PLACE = re.compile(r"\$(ARGUMENTS|[1-9])")


class CustomCommand(msgspec.Struct, frozen=True):
    name: str
    summary: str
    body: str
    file: Path

    def text(self, arguments: str) -> str:
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

        if _PLACE.search(self.body):
            return _PLACE.sub(put, self.body)
        return f"{self.body}\n\n{arguments}".strip()


def custom_commands(folders: Iterable[Path]) -> list[CustomCommand]:
    """All of them; of two with one name the first counts. One that cannot be read is left out."""
    found: dict[str, CustomCommand] = {}
    for folder in folders:
        for place in PLACES:
            for file in sorted((folder / place).glob("**/*.md")):
                command = _read(file, folder / place)
                if command is not None:
                    found.setdefault(command.name, command)
    return list(found.values())


def _read(file: Path, base: Path) -> CustomCommand | None:
    try:
        text = file.read_text(encoding="utf-8")[:MOST_CHARS]
        front, body = frontmatter.split(text)
    except (OSError, ValueError):
        return None
    name = ":".join(file.relative_to(base).with_suffix("").parts)
    summary = str(front.get("description") or body.strip().split("\n", 1)[0])
    return CustomCommand(name, summary[:80], body.strip(), file)
