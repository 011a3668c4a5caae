"""Which hooks and servers of a project may run: those that the user approved as they are now.

An approval holds the hash of the definition and of the project's own files that it names, so a
script that was changed later has to be approved again. The store is trust.py's; nothing here asks.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.policy.hooks.configured import HookCommand
from treadle.policy.trust import Approval, TrustStore

_PROJECT_DIR = re.compile(r"\$\{?(?:TREADLE|CLAUDE)_PROJECT_DIR\}?")
_MOST_FILES = 64


class Waiting(msgspec.Struct, frozen=True):
    """A hook or server of a project that does not run, and why."""

    kind: str
    name: str
    what: str
    state: Approval
    folder_trusted: bool

    @property
    def line(self) -> str:
        """One line for the person."""
        if not self.folder_trusted:
            return f"{self.kind} {self.name} waits until you trust the folder: {self.what}"
        why = "changed since you approved it" if self.state == "changed" else "is new"
        return f"{self.kind} {self.name} {why} and waits for your approval: {self.what}"


def approved_hooks(
    store: TrustStore, folder: Path, commands: Sequence[HookCommand]
) -> tuple[list[HookCommand], list[Waiting]]:
    """The hooks of a project's settings that may run, and those that wait."""
    trusted, allowed, waiting = store.trusts(folder), list[HookCommand](), list[Waiting]()
    for command in commands:
        state = store.approval(folder, "hook", command.name, bound(command.definition, folder))
        if trusted and state == "approved":
            allowed.append(command)
        else:
            waiting.append(Waiting("hook", command.name, command.command, state, trusted))
    return allowed, waiting


def approve_hooks(store: TrustStore, folder: Path, commands: Sequence[HookCommand]) -> None:
    """The user was shown these hooks and approved them."""
    for command in commands:
        store.approve(folder, "hook", command.name, bound(command.definition, folder))


def approved_servers(
    store: TrustStore, folder: Path, servers: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[Waiting]]:
    """The servers that a project names and that may be started, and those that wait."""
    trusted = store.trusts(folder)
    allowed, waiting = dict[str, Mapping[str, Any]](), list[Waiting]()
    for name, server in servers.items():
        state = store.approval(folder, "server", name, bound(server, folder))
        if trusted and state == "approved":
            allowed[name] = server
        else:
            what = server.get("url") or " ".join([str(server.get("command", "")),
                                                  *map(str, server.get("args") or ())])  # fmt: skip
            waiting.append(Waiting("server", name, str(what), state, trusted))
    return allowed, waiting


def approve_server(store: TrustStore, folder: Path, name: str, server: Mapping[str, Any]) -> None:
    """The user was shown this server and approved it."""
    store.approve(folder, "server", name, bound(server, folder))


def bound(definition: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A definition with the hashes of the project's own files that its words name."""
    root = Path(os.path.realpath(folder))
    files: dict[str, str] = {}
    for word in _words(definition):
        path = Path(os.path.realpath(root / _PROJECT_DIR.sub(lambda _: str(root), word)))
        if len(files) < _MOST_FILES and path.is_relative_to(root) and os.path.isfile(path):  # noqa: PTH113 (never raises)
            files[str(path.relative_to(root))] = _digest(path)
    return {**definition, "files": files} if files else dict(definition)


def _words(value: object) -> Iterator[str]:
    """Every text of a definition, and every word of it where it is a command line."""
    if isinstance(value, str):
        if "\0" in value or len(value) > 10_000:
            return
        yield value
        try:
            lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            yield from lexer
        except ValueError:  # an open quote: the shell will say so
            yield from value.split()
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"
