"""Which folders the user trusts, and which programs from them were approved.

A folder is known by its real path; what git metadata or links say counts for nothing. Until it is
trusted, nothing in it runs or widens anything: its settings may only narrow. A server or hook is
approved by the hash of its definition, so a changed one is a new one.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.policy.ruleset.rules import RuleSet
from treadle.policy.settings_file import write_private_file

# What of a project's settings takes effect without trust: only what makes the agent do less.
_NARROWING_LISTS = frozenset({"deny", "ask"})


class _TrustFile(msgspec.Struct):
    folders: list[str] = []
    approvals: dict[str, str] = {}  # "folder\nkind\nname" -> hash of the definition
    declined: list[str] = []  # folders about which the user does not want to be asked again


MAX_TRUST_FILE_BYTES = 16 << 20  # bytes: it grows with every folder, and is the user's own
ApprovalState = Literal["approved", "new", "changed"]


class TrustStore:
    """The user's trust, in one private file (`~/.treadle/trust.json`)."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._data = _read_trust_file(file)

    def is_trusted(self, folder: str | Path) -> bool:
        """Whether this very folder, or one above it, was trusted by its real path."""
        return _is_within(folder, self._data.folders)

    def trust(self, folder: str | Path) -> None:
        """The user said yes."""
        real = os.path.realpath(folder)
        if real not in self._data.folders or real in self._data.declined:
            self._data.folders = [*(kept for kept in self._data.folders if kept != real), real]
            self._data.declined = [kept for kept in self._data.declined if kept != real]
            self._save()

    def is_declined(self, folder: str | Path) -> bool:
        """Whether the user said no for good, about this very folder or one above it."""
        return _is_within(folder, self._data.declined)

    def decline(self, folder: str | Path) -> None:
        """The user said no, and does not want to be asked again."""
        self.distrust(folder)
        self._data.declined.append(os.path.realpath(folder))
        self._save()

    def distrust(self, folder: str | Path) -> None:
        """The user took back what was said; approvals in the folder go with it."""
        real = os.path.realpath(folder)
        self._data.folders = [kept for kept in self._data.folders if kept != real]
        self._data.declined = [kept for kept in self._data.declined if kept != real]
        self._data.approvals = {
            key: value
            for key, value in self._data.approvals.items()
            if key.partition("\n")[0] != real
        }
        self._save()

    def get_approval_state(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> ApprovalState:
        """Whether this server or hook was approved as it is now."""
        kept = self._data.approvals.get(_make_approval_key(folder, kind, name))
        if kept is None:
            return "new"
        return "approved" if kept == hash_definition(definition) else "changed"

    def approve(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> None:
        """The user approved it, as it is now."""
        self._data.approvals[_make_approval_key(folder, kind, name)] = hash_definition(definition)
        self._save()

    def has_accepted_rules(self, folder: str | Path, rules: RuleSet) -> bool:
        """Whether the user accepted the allow rules that a trusted folder brings, as they are."""
        definition = _define_allow_rules(rules)
        return self.is_trusted(folder) and (
            self.get_approval_state(folder, "rules", "allow", definition) == "approved"
        )

    def accept_rules(self, folder: str | Path, rules: RuleSet) -> None:
        """The user was shown the allow rules of a folder and accepted them."""
        self.approve(folder, "rules", "allow", _define_allow_rules(rules))

    def _save(self) -> None:
        content = msgspec.json.format(msgspec.json.encode(self._data), indent=2)
        write_private_file(self.file, content + b"\n")


def hash_definition(definition: Mapping[str, Any]) -> str:
    """A hash of a definition that does not depend on the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()


def filter_project_rules(rules: RuleSet, *, is_accepted: bool) -> RuleSet:
    """The rules of a project that may take effect: until accepted, only those that narrow."""
    return rules if is_accepted else RuleSet((), rules.ask, rules.deny)


def filter_project_settings(settings: Mapping[str, Any], *, is_trusted: bool) -> dict[str, Any]:
    """A project's settings that may take effect; mode and further roots are the user's alone.

    Hooks, servers, environment, endpoints and the rest wait for trust. Allow rules are left out
    in any case: they come through `rules_of_folder`, accepted by their hash.
    """
    kept = {k: v for k, v in settings.items() if k not in ("mode", "additionalDirectories")}
    permissions = settings.get("permissions")
    if isinstance(permissions, Mapping):
        kept["permissions"] = {k: v for k, v in permissions.items() if k in _NARROWING_LISTS}
    if is_trusted:
        return kept
    return {k: v for k, v in kept.items() if k == "permissions"}


def filter_project_front_matter(front: Mapping[str, Any], *, is_trusted: bool) -> dict[str, Any]:
    """An agent definition's front matter: modes and hooks never, tools and servers with trust."""
    never = {"hooks", "permissionmode", "mode", "permissions"}
    kept = {k: v for k, v in front.items() if k.casefold().replace("_", "") not in never}
    return kept if is_trusted else {k: v for k, v in kept.items() if k in ("name", "description")}


def _is_within(folder: str | Path, folders: list[str]) -> bool:
    real = os.path.realpath(folder)
    return any(real == kept or real.startswith(kept.rstrip("/") + "/")
               for kept in folders if kept != "/")  # fmt: skip


def _define_allow_rules(rules: RuleSet) -> dict[str, Any]:
    return {"allow": sorted(rule.text for rule in rules.allow)}


def _make_approval_key(folder: str | Path, kind: str, name: str) -> str:
    return "\n".join((os.path.realpath(folder), kind, name))


def _read_trust_file(file: Path) -> _TrustFile:
    try:
        content = read_text(file, MAX_TRUST_FILE_BYTES, within=None)
    except FileNotFoundError:
        return _TrustFile()
    try:
        return msgspec.json.decode(content, type=_TrustFile)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}:1: not a list of trusted folders ({error})") from error
