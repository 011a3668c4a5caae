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
from treadle.core.textfile import read_text
from treadle.policy.rules import RuleSet
from treadle.policy.rulesfile import write_private

# What of a project's settings takes effect without trust: only what makes the agent do less.
_NARROWING = frozenset({"deny", "ask"})


class _Kept(msgspec.Struct):
    folders: list[str] = []
    approvals: dict[str, str] = {}  # "folder\nkind\nname" -> hash of the definition
    declined: list[str] = []  # folders about which the user does not want to be asked again


MOST_KEPT = 16 << 20  # bytes: it grows with every folder, and is the user's own
Approval = Literal["approved", "new", "changed"]


class TrustStore:
    """The user's trust, in one private file (`~/.treadle/trust.json`)."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._kept = _read(file)

    def trusts(self, folder: str | Path) -> bool:
        """Whether this very folder, or one above it, was trusted by its real path."""
        return _is_within(folder, self._kept.folders)

    def trust(self, folder: str | Path) -> None:
        """The user said yes."""
        real = os.path.realpath(folder)
        if real not in self._kept.folders or real in self._kept.declined:
            self._kept.folders = [*(kept for kept in self._kept.folders if kept != real), real]
            self._kept.declined = [kept for kept in self._kept.declined if kept != real]
            self._save()

    def declines(self, folder: str | Path) -> bool:
        """Whether the user said no for good, about this very folder or one above it."""
        return _is_within(folder, self._kept.declined)

    def decline(self, folder: str | Path) -> None:
        """The user said no, and does not want to be asked again."""
        self.distrust(folder)
        self._kept.declined.append(os.path.realpath(folder))
        self._save()

    def distrust(self, folder: str | Path) -> None:
        """The user took back what was said; approvals in the folder go with it."""
        real = os.path.realpath(folder)
        self._kept.folders = [kept for kept in self._kept.folders if kept != real]
        self._kept.declined = [kept for kept in self._kept.declined if kept != real]
        self._kept.approvals = {
            key: value
            for key, value in self._kept.approvals.items()
            if key.partition("\n")[0] != real
        }
        self._save()

    def approval(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> Approval:
        """Whether this server or hook was approved as it is now."""
        kept = self._kept.approvals.get(_key(folder, kind, name))
        if kept is None:
            return "new"
        return "approved" if kept == fingerprint(definition) else "changed"

    def approve(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> None:
        """The user approved it, as it is now."""
        self._kept.approvals[_key(folder, kind, name)] = fingerprint(definition)
        self._save()

    def accepts_rules(self, folder: str | Path, rules: RuleSet) -> bool:
        """Whether the user accepted the allow rules that a trusted folder brings, as they are."""
        definition = _allow_rules(rules)
        return self.trusts(folder) and (
            self.approval(folder, "rules", "allow", definition) == "approved"
        )

    def accept_rules(self, folder: str | Path, rules: RuleSet) -> None:
        """The user was shown the allow rules of a folder and accepted them."""
        self.approve(folder, "rules", "allow", _allow_rules(rules))

    def _save(self) -> None:
        content = msgspec.json.format(msgspec.json.encode(self._kept), indent=2)
        write_private(self.file, content + b"\n")


def fingerprint(definition: Mapping[str, Any]) -> str:
    """A hash of a definition that does not depend on the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()


def rules_of_folder(rules: RuleSet, *, accepted: bool) -> RuleSet:
    """The rules of a project that may take effect: until accepted, only those that narrow."""
    return rules if accepted else RuleSet((), rules.ask, rules.deny)


def settings_of_folder(settings: Mapping[str, Any], *, trusted: bool) -> dict[str, Any]:
    """A project's settings that may take effect; mode and further roots are the user's alone.

    Hooks, servers, environment, endpoints and the rest wait for trust. Allow rules are left out
    in any case: they come through `rules_of_folder`, accepted by their hash.
    """
    kept = {k: v for k, v in settings.items() if k not in ("mode", "additionalDirectories")}
    permissions = settings.get("permissions")
    if isinstance(permissions, Mapping):
        kept["permissions"] = {k: v for k, v in permissions.items() if k in _NARROWING}
    if trusted:
        return kept
    return {k: v for k, v in kept.items() if k == "permissions"}


def front_matter_of_folder(front: Mapping[str, Any], *, trusted: bool) -> dict[str, Any]:
    """An agent definition's front matter: modes and hooks never, tools and servers with trust."""
    never = {"hooks", "permissionmode", "mode", "permissions"}
    kept = {k: v for k, v in front.items() if k.casefold().replace("_", "") not in never}
    return kept if trusted else {k: v for k, v in kept.items() if k in ("name", "description")}


def _is_within(folder: str | Path, folders: list[str]) -> bool:
    real = os.path.realpath(folder)
    return any(real == kept or real.startswith(kept.rstrip("/") + "/")
               for kept in folders if kept != "/")  # fmt: skip


def _allow_rules(rules: RuleSet) -> dict[str, Any]:
    return {"allow": sorted(rule.text for rule in rules.allow)}


def _key(folder: str | Path, kind: str, name: str) -> str:
    return "\n".join((os.path.realpath(folder), kind, name))


def _read(file: Path) -> _Kept:
    try:
        content = read_text(file, MOST_KEPT, within=None)
    except FileNotFoundError:
        return _Kept()
    try:
        return msgspec.json.decode(content, type=_Kept)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}:1: not a list of trusted folders ({error})") from error
