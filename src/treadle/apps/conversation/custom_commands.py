"""Custom slash commands: Markdown files whose text is sent as the message.

    .treadle/commands/NAME.md, .claude/commands/NAME.md     in the folder (if trusted) and in $HOME

`$ARGUMENTS` is replaced by everything typed after the name, `$1` to `$9` by its words. A subfolder
is part of the name: `git/fix.md` is `/git:fix`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treadle.apps.conversation.host import Host
from treadle.core import frontmatter
from treadle.core.errors import ConfigError
from treadle.core.text import suggest
from treadle.core.untrusted_files import read_text

COMMAND_FOLDERS = (".treadle/commands", ".claude/commands")
MAX_BYTES = 256 * 1024
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS|[1-9])")


class CustomCommand(msgspec.Struct, frozen=True):
    name: str
    summary: str
    body: str
    file: Path

    def expand(self, arguments: str) -> str:
        """The message to send."""
        try:
            words = shlex.split(arguments)
        except ValueError:
            words = arguments.split()

        def fill_in(placeholder: re.Match[str]) -> str:
            if placeholder[1] == "ARGUMENTS":
                return arguments
            number = int(placeholder[1])
            return words[number - 1] if number <= len(words) else ""

        if _PLACEHOLDER.search(self.body):
            return _PLACEHOLDER.sub(fill_in, self.body)
        return f"{self.body}\n\n{arguments}".strip()


def find_custom_commands(
    folders: Iterable[Path], home: Path | None = None
) -> tuple[list[CustomCommand], list[str]]:
    """The commands, and one line for each file that was skipped. Of two with the same name the
    first wins. Symlinks that leave the folder are skipped, except in the user's home."""
    commands: dict[str, CustomCommand] = {}
    problems: list[str] = []
    for folder in dict.fromkeys(folders):
        within = None if folder == home else folder
        for base in (folder / name for name in COMMAND_FOLDERS):
            if within is not None and not _is_inside(base, within):
                problems.append(f"{base}: skipped, it is a symlink that leaves {within}")
                continue
            for file in sorted(base.glob("**/*.md")):
                try:
                    command = _read_command(file, base, within)
                except (ConfigError, FileNotFoundError) as error:
                    problems.append(str(error))
                else:
                    commands.setdefault(command.name, command)
    return list(commands.values()), problems


def find_host_commands(host: Host) -> tuple[list[CustomCommand], list[str]]:
    """Those of the user, and of the folder of a host if it is trusted."""
    folders, home = [host.folder] if host.is_trusted else [], Path.home()
    return find_custom_commands([*folders, home], home=home)


def expand_custom_command(
    commands: Iterable[CustomCommand], name: str, arguments: str
) -> str | None:
    """The message of the command with this name; None if there is none."""
    return next((one.expand(arguments) for one in commands if one.name == name), None)


def describe_unknown_command(name: str, known: Iterable[str]) -> str:
    suggestion = suggest(name, known)
    hint = f"did you mean /{suggestion}?" if suggestion else "/help lists the commands"
    return f"unknown command /{name}; {hint}"


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
