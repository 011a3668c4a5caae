"""Which hooks and servers of a project may run: those that the user approved as they are now.

An approval holds the hash of the definition and of the project's own files that it runs, as far as
script_hashes.py finds them, so a script that was changed later has to be approved again. The store is
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

from treadle.core.redaction import REDACTED, is_secret
from treadle.policy.hooks.config import HookConfig
from treadle.policy.trust import ApprovalState, TrustStore

IN_SANDBOX = "inside the sandbox, where one can be built"
OUTSIDE_SANDBOX = "outside of the sandbox"
UNTRACKED_CHANGES = (
    "it cannot be seen whether what it runs changes: trust all of the folder, or say no"
)
_LONG_BLANKS = re.compile(r"\s{9,}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)")


class UnapprovedExtension(msgspec.Struct, frozen=True):
    """A hook or server of a project that does not run, and why.

    `is_sure` is false where a later change of what it runs might not be noticed. `details` are
    lines about what else of it is approved: where it starts, what it is given of the user's.
    """

    kind: str
    name: str
    command: str
    state: ApprovalState
    is_folder_trusted: bool
    location: str = ""
    is_complete: bool = True
    details: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line for the person."""
        if not self.is_folder_trusted:
            what = collapse_blanks(self.command)
            return f"{self.kind} {self.name} waits until you trust the folder: {what}"
        why = "changed since you approved it" if self.state == "changed" else "is new"
        return f"{self.kind} {self.name} {why} and waits for your approval: {collapse_blanks(self.command)}"

    @property
    def description(self) -> str:
        """What a person has to know before a yes: what it runs, where, and what is not seen."""
        said = "; ".join(
            part for part in (self.location, "" if self.is_complete else UNTRACKED_CHANGES) if part
        )
        return (
            f"{collapse_blanks(self.command)} ({said})" if said else collapse_blanks(self.command)
        )

    @property
    def detail_lines(self) -> tuple[str, ...]:
        """All of it, for the question whether it may run."""
        first = f"{self.kind} {collapse_blanks(self.name)} runs {self.description}"
        return first, *(f"  {collapse_blanks(line)}" for line in self.details)


def collapse_blanks(text: str) -> str:
    """With long runs of blanks counted: they would push the rest out of sight."""
    return _LONG_BLANKS.sub(lambda run: f" … ({len(run[0]):,} blanks) ", text)


def filter_approved_hooks(
    store: TrustStore, folder: Path, commands: Sequence[HookConfig]
) -> tuple[list[HookConfig], list[UnapprovedExtension]]:
    """The hooks of a project's settings that may run, marked as the project's; those that wait."""
    look = _ApprovalChecker(store, folder, "hook")
    allowed, waiting = list[HookConfig](), list[UnapprovedExtension]()
    for command in commands:
        details = (f"for {command.matcher}",) if command.matcher else ()
        found = look.check(command.name, command.definition, command.command, IN_SANDBOX, details)
        if found is None:
            allowed.append(msgspec.structs.replace(command, is_project=True))
        else:
            waiting.append(found)
    return allowed, waiting


def approve_hooks(store: TrustStore, folder: Path, commands: Sequence[HookConfig]) -> None:
    """The user was shown these hooks and approved them."""
    for command in commands:
        store.approve(folder, "hook", command.name, add_file_hashes(command.definition, folder))


def filter_approved_servers(
    store: TrustStore, folder: Path, servers: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[UnapprovedExtension]]:
    """The servers that a project names and that may be started, and those that wait."""
    look = _ApprovalChecker(store, folder, "server")
    allowed, waiting = dict[str, Mapping[str, Any]](), list[UnapprovedExtension]()
    for name, server in servers.items():
        line = " ".join([str(server.get("command", "")), *map(str, server.get("args") or ())])
        url = str(server.get("url") or "")
        where = "" if url else OUTSIDE_SANDBOX
        found = look.check(name, server, url or line, where, tuple(_describe_server(server)))
        if found is None:
            allowed[name] = server
        else:
            waiting.append(found)
    return allowed, waiting


def _describe_server(server: Mapping[str, Any]) -> Iterator[str]:
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
    store.approve(folder, "server", name, add_file_hashes(server, folder))


def add_file_hashes(definition: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A definition with the hashes of the project's own files that it runs."""
    # Reading a command line loads a parser: not before somebody has to know.
    from treadle.policy.hooks.script_hashes import hash_scripts

    found = hash_scripts(definition, folder)
    kept: dict[str, Any] = {"definition": json.dumps(definition, sort_keys=True)}
    if found.files:
        kept["files"] = found.files
    return kept if found.is_complete else {**kept, "unseen": True}


class _ApprovalChecker:
    """At one definition after the other: whether it may run."""

    def __init__(self, store: TrustStore, folder: Path, kind: str) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._is_trusted = store.is_trusted(folder)

    def check(
        self,
        name: str,
        definition: Mapping[str, Any],
        command: str,
        location: str,
        details: tuple[str, ...],
    ) -> UnapprovedExtension | None:
        """None if it may run."""
        if not self._is_trusted:  # its files are not looked at: there may be many
            return UnapprovedExtension(
                self._kind, name, command, "new", False, location, details=details
            )
        found = add_file_hashes(definition, self._folder)
        state = self._store.get_approval_state(self._folder, self._kind, name, found)
        if state == "approved":
            return None
        is_sure = "unseen" not in found
        return UnapprovedExtension(
            self._kind, name, command, state, True, location, is_sure, details
        )
