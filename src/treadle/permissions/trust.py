"""Which folders the user trusts, and which hooks and servers in them are approved.

A folder is identified by its real path, not by git metadata or symlinks. Until it is trusted,
nothing in it runs or adds permissions: its settings may only remove some. A server or hook is
approved by the hash of its definition, so a changed one needs a new approval.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.contracts.approval_store import ApprovalState
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.files.file_view import is_inside
from treadle.lib.files.flock import hold_lock
from treadle.lib.files.private_files import locked_update, make_private_folder

if TYPE_CHECKING:
    from treadle.permissions.ruleset.rules import Rule, RuleSet

# The permissions of a project that apply without trust: those that only restrict the agent.
_NARROWING_LISTS = frozenset({"deny", "ask"})


class _TrustFile(msgspec.Struct):
    folders: list[str] = []
    approvals: dict[str, str] = {}  # "folder\nkind\nname" -> hash of the definition
    declined: list[str] = []  # folders for which the user declined trust


MAX_TRUST_FILE_BYTES = 16 << 20


class TrustStore:
    """The user's trust, in one private file (`~/.treadle/trust.json`)."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._data = _read_trust_file(file)

    def is_trusted(self, folder: str | Path) -> bool:
        """Whether the user trusts this folder or a parent of it."""
        return _is_within(folder, self._data.folders)

    def trust(self, folder: str | Path) -> None:
        """Trust a folder."""
        real = os.path.realpath(folder)
        if real not in self._data.folders or real in self._data.declined:

            def trust(data: _TrustFile) -> None:
                _forget(data, real)
                data.folders.append(real)

            self._change(trust)

    def copy_decision(self, folder: str | Path, worktree: str | Path) -> None:
        """Trust a worktree of a trusted folder: what is approved in the folder is approved in it,
        beside what the user approved there."""
        real, copy = os.path.realpath(folder), os.path.realpath(worktree)

        def decide(data: _TrustFile) -> None:
            _forget(data, copy)
            data.folders.append(copy)
            for key, definition in list(data.approvals.items()):
                if key.startswith(f"{real}\n"):
                    data.approvals.setdefault(copy + key.removeprefix(real), definition)

        self._change(decide)

    def is_declined(self, folder: str | Path) -> bool:
        """Whether the user declined trust for this folder or a parent of it."""
        return _is_within(folder, self._data.declined)

    def decline(self, folder: str | Path) -> None:
        """Decline trust, so that the user is not asked again."""
        real = os.path.realpath(folder)

        def decline(data: _TrustFile) -> None:
            _forget(data, real, with_approvals=True)
            data.declined.append(real)

        self._change(decline)

    def distrust(self, folder: str | Path) -> None:
        """Forget the decision about a folder, and the approvals in it."""
        real = os.path.realpath(folder)
        self._change(lambda data: _forget(data, real, with_approvals=True))

    def get_approval_state(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> ApprovalState:
        """Whether this server or hook is approved with its present definition."""
        approved = self._data.approvals.get(_make_approval_key(folder, kind, name))
        if approved is None:
            return "new"
        return "approved" if approved == hash_definition(definition) else "changed"

    def approve(
        self, folder: str | Path, kind: str, name: str, definition: Mapping[str, Any]
    ) -> None:
        """Approve it with its present definition."""
        approved = {_make_approval_key(folder, kind, name): hash_definition(definition)}
        self._change(lambda data: data.approvals.update(approved))

    def has_accepted_rules(self, folder: str | Path, rules: RuleSet) -> bool:
        """Whether the user accepted all allow rules of a trusted folder."""
        brought = filter(may_project_allow, rules.allow)
        return self.is_trusted(folder) and all(self.is_accepted(folder, r, rules) for r in brought)

    def accept_rules(self, folder: str | Path, rules: RuleSet) -> None:
        """Accept the allow rules of a folder, which the user was shown."""
        self._accept(folder, [rule.text for rule in filter(may_project_allow, rules.allow)])

    def is_accepted(self, folder: str | Path, rule: Rule, rules: RuleSet) -> bool:
        """Whether the user accepted this allow rule of a folder; `rules` are all of its rules,
        which version 0.2 accepted as a whole."""
        if self.has_accepted_rule(folder, rule.text):
            return True
        whole = {"allow": sorted(rule.text for rule in rules.allow)}
        state = self.get_approval_state(folder, "rules", "allow", whole)
        return state == "approved" and self.is_trusted(folder) and may_project_allow(rule)

    def has_accepted_rule(self, folder: str | Path, text: str) -> bool:
        """Whether the user chose "always allow" for this rule here, in a trusted folder or not."""
        return self.get_approval_state(folder, "rule", text, {"allow": text}) == "approved"

    def accept_rule(self, folder: str | Path, text: str) -> None:
        """Accept an allow rule that the user chose in an approval."""
        self._accept(folder, [text])

    def _accept(self, folder: str | Path, rules: list[str]) -> None:
        keys = {text: _make_approval_key(folder, "rule", text) for text in rules}
        accepted = {key: hash_definition({"allow": text}) for text, key in keys.items()}
        self._change(lambda data: data.approvals.update(accepted))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Around several changes that belong together: other programs wait with theirs."""
        make_private_folder(self.file.parent)
        with hold_lock(self.file.with_name(".trust.lock")):
            self._data = _read_trust_file(self.file)
            yield

    def _change(self, change: Callable[[_TrustFile], object]) -> None:
        """Change what is in the file now: another program may have written it."""

        def update() -> bytes:
            self._data = _read_trust_file(self.file)
            change(self._data)
            return msgspec.json.format(msgspec.json.encode(self._data), indent=2) + b"\n"

        locked_update(self.file, update)


class TemporaryTrust(TrustStore):
    """Trust that is never saved: that of a program, for as long as it runs."""

    def __init__(self, folder: Path | None = None) -> None:
        self._data = _TrustFile()
        if folder is not None:
            self.trust(folder)

    @contextmanager
    def hold(self) -> Iterator[None]:
        yield

    def _change(self, change: Callable[[_TrustFile], object]) -> None:
        change(self._data)


def hash_definition(definition: Mapping[str, Any]) -> str:
    """The hash of a definition, independent of the order of its keys."""
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()


def filter_project_rules(rules: RuleSet, store: TrustStore, folder: str | Path) -> RuleSet:
    """The rules of a project that apply: ask and deny rules, and the allow rules that the user
    accepted, with trust or in an approval. A new one does not end the others."""
    from treadle.permissions.ruleset.rules import RuleSet  # trust is known before there are rules

    accepted = (rule for rule in rules.allow if store.is_accepted(folder, rule, rules))
    return RuleSet(tuple(accepted), rules.ask, rules.deny)


def may_project_allow(rule: Rule) -> bool:
    """Whether an allow rule counts if a project brings it along. The sandbox of the user's machine
    is the user's: a project can only ask for less than it permits."""
    return rule.tool != "sandbox"


def filter_project_settings(settings: Mapping[str, Any], *, is_trusted: bool) -> dict[str, Any]:
    """The settings of a project that apply; mode and added folders never do.

    Hooks, servers, environment, endpoints and the rest need trust. Allow rules are always removed
    here: `filter_project_rules` returns them once the user has accepted them.
    """
    kept = {k: v for k, v in settings.items() if k not in ("mode", "additionalDirectories")}
    permissions = settings.get("permissions")
    if isinstance(permissions, Mapping):
        kept["permissions"] = {k: v for k, v in permissions.items() if k in _NARROWING_LISTS}
    return kept if is_trusted else {k: v for k, v in kept.items() if k == "permissions"}


def filter_project_front_matter(front: Mapping[str, Any], *, is_trusted: bool) -> dict[str, Any]:
    """The front matter of an agent file: never modes and hooks; tools and servers with trust."""
    never = {"hooks", "permissionmode", "mode", "permissions"}
    kept = {k: v for k, v in front.items() if k.casefold().replace("_", "") not in never}
    return kept if is_trusted else {k: v for k, v in kept.items() if k in ("name", "description")}


def _is_within(folder: str | Path, folders: list[str]) -> bool:
    return is_inside(os.path.realpath(folder), [f for f in folders if f != "/"])


def _make_approval_key(folder: str | Path, kind: str, name: str) -> str:
    return "\n".join((os.path.realpath(folder), kind, name))


def _forget(data: _TrustFile, folder: str, *, with_approvals: bool = False) -> None:
    """Remove the decision about a folder."""
    data.folders = [one for one in data.folders if one != folder]
    data.declined = [one for one in data.declined if one != folder]
    if with_approvals:
        of_folder = f"{folder}\n"
        kept = {key: v for key, v in data.approvals.items() if not key.startswith(of_folder)}
        data.approvals = kept


def _read_trust_file(file: Path) -> _TrustFile:
    try:
        content = read_text(file, MAX_TRUST_FILE_BYTES, within=None)
    except FileNotFoundError:
        return _TrustFile()
    try:
        return msgspec.json.decode(content, type=_TrustFile)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file}:1: not a list of trusted folders ({error})") from error
