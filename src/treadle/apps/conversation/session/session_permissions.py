"""The permission mode of a session, and what the user allows until another one is opened."""

from __future__ import annotations

import msgspec

from treadle.apps.conversation.session.lifecycle import SessionLifecycle, list_flag_rules
from treadle.apps.settings.claude_settings import PERMISSION_MODES
from treadle.apps.settings.folder_rules import LoadedRules, load_rules
from treadle.apps.settings.managed_policy import read_policy
from treadle.core.errors import ConfigError
from treadle.core.steps import PendingApproval
from treadle.permissions.modes import PermissionMode, choose_narrower

SELECTABLE_MODES: tuple[PermissionMode, ...] = ("ask", "accept-edits", "plan", "auto")
MODE_DESCRIPTIONS = {
    "plan": "reads and plans, changes nothing",
    "ask": "asks before every action that no rule allows",
    "accept-edits": "changes files of this folder without asking",
    "auto": "changes files of this folder and runs commands in the sandbox without asking",
    "bypass": "does everything without asking, except what a rule denies",
}


def describe_mode(mode: str) -> str:
    return f"{mode}: {MODE_DESCRIPTIONS.get(mode, '')}"


class SessionPermissions:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    @property
    def mode(self) -> str:
        """Also before a session is open."""
        session = self._session
        if not session.is_open:
            return session.choices.mode or session.load_settings().permission_mode
        return session.agent_session.policy.mode

    @property
    def modes(self) -> tuple[str, ...]:
        """Those that can be chosen: as far as the managed policy goes, bypass only by its flag."""
        is_bypass = self._session.choices.flags.get("permission_mode") == "bypass"
        modes = (*SELECTABLE_MODES, "bypass") if is_bypass else SELECTABLE_MODES
        widest = read_policy().widest_mode
        return tuple(mode for mode in modes if choose_narrower(mode, widest) == mode)

    def load_rules(self) -> LoadedRules:
        """Those of the files and of flags."""
        return load_rules(self._session.folder, *list_flag_rules(self._session))

    def change_mode(self, mode: str) -> None:
        mode = PERMISSION_MODES.get(mode, mode)
        limit = read_policy().limits.get("permission_mode")
        if limit is not None and mode in SELECTABLE_MODES and mode not in self.modes:
            raise ConfigError(f"the mode {mode} is not allowed: {limit.origin} says {limit.value}")
        if mode not in self.modes:
            raise ConfigError(f"unknown mode {mode!r}; the modes are {', '.join(self.modes)}")
        session = self._session
        session.choices = msgspec.structs.replace(session.choices, mode=mode)
        session.agent_session.policy.change_mode(msgspec.convert(mode, PermissionMode))
        session.callbacks.show_mode()

    def allow_for_session(self, approval: PendingApproval) -> None:
        """Allow what the approval offers until another session is opened: its wider mode, or else
        its rules. Nothing is saved."""
        if approval.wider_mode:
            self.change_mode(approval.wider_mode)
            return
        session = self._session
        rules = (*session.choices.rules, *approval.rules)
        session.choices = msgspec.structs.replace(session.choices, rules=rules)
        session.agent_session.policy.allow_for_session(approval.rules)
