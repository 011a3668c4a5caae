"""Which hooks and servers of a project may run: those that the user approved as they are now.

An approval holds the hash of the definition and of the project's own files that it runs, as far as
binding.py finds them, so a script that was changed later has to be approved again. The store is
trust.py's; nothing here asks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.secrets import REDACTED, is_secret
from treadle.policy.hooks.configured import HookCommand
from treadle.policy.trust import Approval, TrustStore

INSIDE = "inside the sandbox, where one can be built"
OUTSIDE = "outside of the sandbox"
UNSEEN = "it cannot be seen whether what it runs changes: trust all of the folder, or say no"
_BLANKS = re.compile(r"\s{9,}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)")


class Waiting(msgspec.Struct, frozen=True):
    """A hook or server of a project that does not run, and why.

    `is_sure` is false where a later change of what it runs might not be noticed. `details` are
    lines about what else of it is approved: where it starts, what it is given of the user's.
    """

    kind: str
    name: str
    runs: str
    state: Approval
    folder_trusted: bool
    where: str = ""
    is_sure: bool = True
    details: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """One line for the person."""
        if not self.folder_trusted:
            what = short(self.runs)
            return f"{self.kind} {self.name} waits until you trust the folder: {what}"
        why = "changed since you approved it" if self.state == "changed" else "is new"
        return f"{self.kind} {self.name} {why} and waits for your approval: {short(self.runs)}"

    @property
    def what(self) -> str:
        """What a person has to know before a yes: what it runs, where, and what is not seen."""
        said = "; ".join(part for part in (self.where, "" if self.is_sure else UNSEEN) if part)
        return f"{short(self.runs)} ({said})" if said else short(self.runs)

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, for the question whether it may run."""
        first = f"{self.kind} {short(self.name)} runs {self.what}"
        return first, *(f"  {short(line)}" for line in self.details)


def short(text: str) -> str:
    """With long runs of blanks counted: they would push the rest out of sight."""
    return _BLANKS.sub(lambda run: f" … ({len(run[0]):,} blanks) ", text)


def approved_hooks(
    store: TrustStore, folder: Path, commands: Sequence[HookCommand]
) -> tuple[list[HookCommand], list[Waiting]]:
    """The hooks of a project's settings that may run, marked as the project's; those that wait."""
    look = _Look(store, folder, "hook")
    allowed, waiting = list[HookCommand](), list[Waiting]()
    for command in commands:
        details = (f"for {command.matcher}",) if command.matcher else ()
        found = look.at(command.name, command.definition, command.command, INSIDE, details)
        if found is None:
            allowed.append(msgspec.structs.replace(command, of_folder=True))
        else:
            waiting.append(found)
    return allowed, waiting


def approve_hooks(store: TrustStore, folder: Path, commands: Sequence[HookCommand]) -> None:
    """The user was shown these hooks and approved them."""
    for command in commands:
        store.approve(folder, "hook", command.name, bound(command.definition, folder))


def approved_servers(
    store: TrustStore, folder: Path, servers: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[Waiting]]:
    """The servers that a project names and that may be started, and those that wait."""
    look = _Look(store, folder, "server")
    allowed, waiting = dict[str, Mapping[str, Any]](), list[Waiting]()
    for name, server in servers.items():
        line = " ".join([str(server.get("command", "")), *map(str, server.get("args") or ())])
        url = str(server.get("url") or "")
        where = "" if url else OUTSIDE
        found = look.at(name, server, url or line, where, tuple(_details(server)))
        if found is None:
            allowed[name] = server
        else:
            waiting.append(found)
    return allowed, waiting


def _details(server: Mapping[str, Any]) -> Iterator[str]:
    """What a server is given beside its command or address."""
    if server.get("cwd"):
        yield f"in the folder {server['cwd']}"
    for key, words in (("env", "with {}={}"), ("headers", "sends {}: {}")):
        given = server.get(key)
        for name, value in given.items() if isinstance(given, dict) else ():
            # A reference is no secret, and says what would be given away.
            hides = is_secret(str(name)) and not _VARIABLE.search(str(value))
            yield words.format(name, REDACTED if hides else value)
    taken = dict.fromkeys(_VARIABLE.findall(json.dumps(server)))
    secret = [name for name in taken if is_secret(name, os.environ.get(name, ""))]
    if plain := [name for name in taken if name not in secret]:
        yield f"takes your {', '.join(plain)}"
    if secret:
        names = ", ".join(secret)
        yield f"asks for your {names}, which stays empty: a folder gets no secret"


def approve_server(store: TrustStore, folder: Path, name: str, server: Mapping[str, Any]) -> None:
    """The user was shown this server and approved it."""
    store.approve(folder, "server", name, bound(server, folder))


def bound(definition: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A definition with the hashes of the project's own files that it runs."""
    # Reading a command line loads a parser: not before somebody has to know.
    from treadle.policy.hooks.binding import binding

    found = binding(definition, folder)
    kept: dict[str, Any] = {"definition": json.dumps(definition, sort_keys=True)}
    if found.files:
        kept["files"] = found.files
    return kept if found.is_sure else {**kept, "unseen": True}


class _Look:
    """At one definition after the other: whether it may run."""

    def __init__(self, store: TrustStore, folder: Path, kind: str) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._trusted = store.trusts(folder)

    def at(
        self,
        name: str,
        definition: Mapping[str, Any],
        runs: str,
        where: str,
        details: tuple[str, ...],
    ) -> Waiting | None:
        """None if it may run."""
        if not self._trusted:  # its files are not looked at: there may be many
            return Waiting(self._kind, name, runs, "new", False, where, details=details)
        found = bound(definition, self._folder)
        state = self._store.approval(self._folder, self._kind, name, found)
        if state == "approved":
            return None
        is_sure = "unseen" not in found
        return Waiting(self._kind, name, runs, state, True, where, is_sure, details)
