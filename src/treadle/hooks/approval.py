"""Which hooks and servers of a project may run: those that the user approved unchanged.

An approval contains the hash of the definition and of the project's files that it runs, as far as
script_hashes.py finds them: a changed script needs a new approval. The store of the
approvals is passed in; the hosts ask the user.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.core.contracts.approval_store import ApprovalState, ApprovalStore
from treadle.hooks.hook_config import HookConfig
from treadle.lib.text.redaction import REDACTED, is_secret

IN_SANDBOX = "inside the sandbox, if there is one"
OUTSIDE_SANDBOX = "outside of the sandbox"
_HOOK_LOCATIONS = {
    "command": IN_SANDBOX,
    "http": "sends what the agent does to this address",
    "prompt": "asks the small model, which costs tokens",
}
UNTRACKED_CHANGES = (
    "changes of the files that it runs are not detected: approve only if you trust the whole folder"
)
_LONG_BLANKS = re.compile(r"\s{9,}")
HOW_TO_APPROVE = "`treadle trust --approve`, or /trust in a session"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)")


class UnapprovedExtension(msgspec.Struct, frozen=True):
    """A hook, server, command or settings file of a project that has no effect, and why."""

    kind: str
    name: str
    command: str
    state: ApprovalState
    is_folder_trusted: bool
    location: str = ""  # inside or outside of the sandbox
    is_complete: bool = True  # False if a change of what it runs may not be detected
    details: tuple[str, ...] = ()  # its folder, and what it gets from the user's environment

    @property
    def is_changed(self) -> bool:
        """Whether the user approved it before its last change, and expects that it runs."""
        return self.is_folder_trusted and self.state == "changed"

    @property
    def summary(self) -> str:
        """One line for the user."""
        command = collapse_blanks(self.command)
        if not self.is_folder_trusted:
            return f"{self.kind} {self.name} waits until you trust the folder: {command}"
        why = "changed since you approved it" if self.is_changed else "is new"
        waits = f"waits for your approval ({HOW_TO_APPROVE})"
        return f"{self.kind} {self.name} {why} and {waits}: {command}"

    @property
    def description(self) -> str:
        """What it runs and where, and whether changes are detected."""
        notes = (self.location, "" if self.is_complete else UNTRACKED_CHANGES)
        text = "; ".join(filter(None, notes))
        command = collapse_blanks(self.command)
        return f"{command} ({text})" if text else command

    @property
    def detail_lines(self) -> tuple[str, ...]:
        """Everything that the user has to know before approving it."""
        verb = {"settings": "adds", "command": "does"}.get(self.kind, "runs")
        first = f"{self.kind} {collapse_blanks(self.name)} {verb} {self.description}"
        return first, *(f"  {collapse_blanks(line)}" for line in self.details)


def collapse_blanks(text: str) -> str:
    """Replace long runs of blanks by their count: they would push the rest out of sight."""
    return _LONG_BLANKS.sub(lambda run: f" … ({len(run[0]):,} blanks) ", text)


def filter_approved_hooks(
    store: ApprovalStore, folder: Path, commands: Sequence[HookConfig]
) -> tuple[list[HookConfig], list[UnapprovedExtension]]:
    """The hooks of a project that may run, marked as the project's, and those that wait."""
    checker = _ApprovalChecker(store, folder, "hook")
    allowed, waiting = list[HookConfig](), list[UnapprovedExtension]()
    for command in commands:
        unapproved = checker.check(describe_hook(command), command.definition)
        if unapproved is None:
            allowed.append(replace(command, is_project=True))
        else:
            waiting.append(unapproved)
    return allowed, waiting


def describe_hook(command: HookConfig) -> UnapprovedExtension:
    """A hook as the user is shown it."""
    details = [f"for {command.matcher}"] if command.matcher else []
    details += _describe_server({"headers": command.headers})
    if command.variables:
        details.append(f"may send your {', '.join(command.variables)}, but no secrets")
    return _make_waiting(
        "hook", command.name, command.command, _HOOK_LOCATIONS[command.kind], details
    )


def approve_hooks(store: ApprovalStore, folder: Path, commands: Sequence[HookConfig]) -> None:
    """Approve these hooks, which the user was shown."""
    for command in commands:
        store.approve(folder, "hook", command.name, add_file_hashes(command.definition, folder))


def filter_approved_servers(
    store: ApprovalStore, folder: Path, servers: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[UnapprovedExtension]]:
    """The servers of a project that may start, and those that wait."""
    checker = _ApprovalChecker(store, folder, "server")
    allowed, waiting = dict[str, Mapping[str, Any]](), list[UnapprovedExtension]()
    for name, server in servers.items():
        unapproved = checker.check(describe_server(name, server), server)
        if unapproved is None:
            allowed[name] = server
        else:
            waiting.append(unapproved)
    return allowed, waiting


def describe_server(name: str, server: Mapping[str, Any]) -> UnapprovedExtension:
    """A server as the user is shown it."""
    line = " ".join([str(server.get("command", "")), *map(str, server.get("args") or ())])
    url = str(server.get("url") or "")
    location = "" if url else OUTSIDE_SANDBOX
    return _make_waiting("server", name, url or line, location, [*_describe_server(server)])


def _make_waiting(
    kind: str, name: str, command: str, location: str, details: Sequence[str] = ()
) -> UnapprovedExtension:
    return UnapprovedExtension(kind, name, command, "new", False, location, True, tuple(details))


def _describe_server(server: Mapping[str, Any]) -> Iterator[str]:
    """What a server gets in addition to its command or URL."""
    if server.get("cwd"):
        yield f"in the folder {server['cwd']}"
    for key, template in (
        ("env", "with {}={}"),
        ("headers", "sends {}: {}"),
        ("oauth", "logs in with {} {}"),
    ):
        values = server.get(key)
        for name, value in values.items() if isinstance(values, dict) else ():
            # A reference to a variable is not secret, and the user should see it.
            is_hidden = is_secret(str(name)) and not _VARIABLE.search(str(value))
            yield template.format(name, REDACTED if is_hidden else value)
    variables = dict.fromkeys(_VARIABLE.findall(json.dumps(server)))
    secret = [name for name in variables if is_secret(name, os.environ.get(name, ""))]
    if plain := [name for name in variables if name not in secret]:
        yield f"reads your {', '.join(plain)}"
    if secret:
        names = ", ".join(secret)
        yield f"asks for your {names}, which stays empty: only your own servers get secrets"


def approve_server(
    store: ApprovalStore, folder: Path, name: str, server: Mapping[str, Any]
) -> None:
    """Approve this server, which the user was shown."""
    store.approve(folder, "server", name, add_file_hashes(server, folder))


def filter_approved_definitions(
    store: ApprovalStore, folder: Path, kind: str, definitions: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[UnapprovedExtension]]:
    """The names of settings files or commands of a project that take effect, and those that wait.

    Settings have `env`, `folders`, `network` and `run`, a command has `run` and `allow`.
    """
    checker = _ApprovalChecker(store, folder, kind)
    allowed, waiting = list[str](), list[UnapprovedExtension]()
    for name, definition in definitions.items():
        shown = _make_waiting(kind, name, describe_definition(definition), "")
        unapproved = checker.check(shown, definition)
        if unapproved is None:
            allowed.append(name)
        else:
            waiting.append(unapproved)
    return allowed, waiting


def approve_definitions(
    store: ApprovalStore, folder: Path, kind: str, definitions: Mapping[str, Mapping[str, Any]]
) -> None:
    """Approve these settings or commands, which the user was shown."""
    for name, definition in definitions.items():
        store.approve(folder, kind, name, add_file_hashes(definition, folder))


def describe_definition(definition: Mapping[str, Any]) -> str:
    """What settings add, or what a command runs and allows, in one line."""
    parts = [f"the folder {folder}" for folder in definition.get("folders", ())]
    parts += [f"the network of {host}" for host in definition.get("network", ())]
    parts += [f"{name}={value}" for name, value in definition.get("env", {}).items()]
    parts += definition.get("run", ())
    allowed = ", ".join(definition.get("allow", ()))
    return "; ".join([*parts, *([f"allows {allowed}"] if allowed else [])])


def add_file_hashes(definition: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A definition with the hashes of the project's files that it runs. Its keys are stored."""
    from treadle.hooks.script_hashes import hash_scripts  # loads the shell parser

    scripts = hash_scripts(definition, folder)
    content: dict[str, Any] = {"definition": json.dumps(definition, sort_keys=True)}
    if scripts.files:
        content["files"] = scripts.files
    return content if scripts.is_complete else {**content, "unseen": True}


class _ApprovalChecker:
    """Checks whether the hooks or servers of one folder may run."""

    def __init__(self, store: ApprovalStore, folder: Path, kind: str) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._is_trusted = store.is_trusted(folder)

    def check(
        self, waiting: UnapprovedExtension, definition: Mapping[str, Any]
    ) -> UnapprovedExtension | None:
        """None if it may run."""
        if not self._is_trusted:  # hashes no files: there may be many
            return waiting
        content = add_file_hashes(definition, self._folder)
        state = self._store.get_approval_state(self._folder, self._kind, waiting.name, content)
        if state == "approved":
            return None
        is_complete = not content.get("unseen", False)
        return replace(waiting, state=state, is_folder_trusted=True, is_complete=is_complete)
