"""Whether the files of a folder take effect, and which programs of it may run.

What trust allows is defined in permissions/trust.py; trust_questions.py asks the user.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps.settings import extensions
from treadle.apps.settings import folder_rules as rules
from treadle.core.errors import ConfigError


class SessionTrust:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_given(self) -> bool:
        return rules.is_trusted(self._folder)

    @property
    def is_declined(self) -> bool:
        """Whether the user asked not to be asked about trust again."""
        return rules.is_trust_declined(self._folder)

    def give(self) -> None:
        store, found = rules.open_trust_store(), rules.read_project_rules(self._folder)
        store.trust(self._folder)
        store.accept_rules(self._folder, found)

    def decline(self) -> None:
        rules.open_trust_store().decline(self._folder)

    def list_files(self) -> list[str]:
        """The files and folders here that take effect with trust."""
        return extensions.list_extension_files(self._folder)

    def list_rules(self) -> list[str]:
        """The allow rules here that trust accepts, the widest first, a line each."""
        try:
            return rules.describe_project_rules(self._folder)
        except ConfigError:
            return []  # the session does not start with such a file, and says why

    def list_unapproved_programs(self) -> list[str]:
        """Hooks and servers of the folder that are new or changed since approval, a line each."""
        programs = extensions.discover_extensions(self._folder).unapproved
        return [line for program in programs for line in program.detail_lines]

    def approve_programs(self) -> None:
        """Approve the programs that `list_unapproved_programs` lists."""
        extensions.approve_extensions(self._folder)
