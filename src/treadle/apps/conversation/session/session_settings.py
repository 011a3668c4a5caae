"""The settings as a session sees and changes them."""

from __future__ import annotations

from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.apps.settings import changes as settings_changes
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import SETTINGS
from treadle.core.errors import ConfigError, TreadleError


class SessionSettings:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    def list_settings(self) -> list[tuple[str, str, str]]:
        """Name, value, origin."""
        settings = self._session.load_settings()
        names = [setting.name for setting in SETTINGS]
        return [(name, settings.format(name), settings.origin(name)) for name in names]

    def list_written(self) -> set[str]:
        """The names of those that are in the user's file."""
        from treadle.apps.settings.writer import read_written_value

        names = [setting.name for setting in SETTINGS]
        return {name for name in names if read_written_value(name) is not None}

    def format_values(self) -> dict[str, str]:
        return {name: value for name, value, _ in self.list_settings()}

    def describe(self, name: str) -> str:
        """The value of a setting, its origin and what it means."""
        return settings_changes.describe_setting(self._session.load_settings(), name)

    async def change(self, arguments: str) -> str:
        """Write `NAME VALUE`, or remove it by `NAME --unset`, in the user's file, for
        this session, too; a message about it. If that fails, the file is as it was."""
        session = self._session
        session.require_idle("/config NAME VALUE")
        change = settings_changes.plan_setting_change(session.load_settings(), arguments)
        file = settings_changes.write_change(change)
        try:
            await session.reconfigure()
        except TreadleError as error:
            settings_changes.revert_change(change)
            raise ConfigError(f"{change.name} is not changed: {error}") from error
        return settings_changes.describe_change(change, file, session.load_settings)

    def save(self, name: str, value: bool | str) -> str:
        """Write a setting of the user, which needs no other session; a message about it."""
        from treadle.apps.settings.writer import write_setting

        file = write_setting(name, value)
        settings = load_settings(self._session.folder)
        overridden = f", but {settings.origin(name)} sets {settings.format(name)}"
        return f"saved in {file}{'' if getattr(settings, name) == value else overridden}"
