"""The files that a call may write and that it names, relative to the folder of the checkpoints.

A checkpoint leaves out what the project ignores, but not these: a `.env` that the agent edits can
be undone. Each word of a command counts as a name: a file that is only read is stored needlessly,
one that is missed cannot be undone. Used by `recorder`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from treadle.core.contracts.tool import Access
from treadle.lib.shell.ast import NO_CD, SimpleCommand, Word

_MAX_NAMES = 500


def list_written_files(access: Access, root: Path) -> set[str]:
    folder = root / access.cwd
    written = (PurePosixPath(one.path) for one in access.files if one.mode == "write")
    names = chain(written, _list_command_words(access.command or ""))
    paths = (_make_relative(root, folder / name) for name in islice(names, _MAX_NAMES))
    return {path for path in paths if path}


def _list_command_words(text: str) -> Iterator[PurePosixPath]:
    if not text:
        return
    from treadle.lib.shell.syntax.parser import parse_command

    line = parse_command(text)
    for command in (*line.commands, *line.guessed_commands):
        yield from _list_words(command)


def _list_words(command: SimpleCommand) -> Iterator[PurePosixPath]:
    """Each word that may be a path, after each folder that the command may run in."""
    folders = [PurePosixPath(*path) for path in command.cd_paths or NO_CD]
    targets = (one.target for one in command.redirects if one.target is not None)
    for word in chain(command.argv[1:], targets):
        for text in _list_texts(word):
            yield from (folder / text for folder in folders)
    for inner in command.inner:
        yield from _list_words(inner)


def _list_texts(word: Word) -> Iterator[str]:
    """`x`; of `--option=x` and `name=x` also the value."""
    text = word.text
    if text and "\0" not in text and "\n" not in text:
        yield text
        name, _, value = text.partition("=")
        if name and value:
            yield value


def _make_relative(root: Path, path: Path) -> str:
    """The path below the root; "" if it is not below it."""
    below = os.path.relpath(path, root)
    return "" if below == "." or below.split("/")[0] == ".." else below
