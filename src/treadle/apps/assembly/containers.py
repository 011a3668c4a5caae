"""The workspaces of a coding agent whose commands run in containers: its own, and those of its
children in worktrees. Made by coding_agent.py only if a container is wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.rules import make_file_denials
from treadle.core.contracts.workspace import Workspace
from treadle.permissions.ruleset.rules import RuleSet
from treadle.workspace.container import (
    ContainerOptions,
    ContainerWorkspace,
    make_client_options,
)


class Containers:
    """Makes the workspaces of one agent."""

    def __init__(
        self,
        options: ContainerOptions,
        outputs_dir: Path,
        secrets: tuple[str, ...],
        rules: Callable[[], RuleSet],
    ) -> None:
        self._options, self._rules = options, rules
        self._outputs_dir, self._secrets = outputs_dir, secrets
        self._clients: list[LazyWorkspace] = []

    def make_workspace(self, files: Workspace) -> ContainerWorkspace:
        """Commands in containers; files as in the workspace that is given."""
        client = LazyWorkspace(
            files.root, lambda: make_client_options(self._outputs_dir, self._secrets)
        )
        self._clients.append(client)
        return ContainerWorkspace(
            files.root,
            self._options,
            files=files,
            client=client,
            get_denials=lambda: make_file_denials(self._rules()),
        )

    async def release(self) -> None:
        """Close what is open; it opens again when it is used."""
        for client in self._clients:
            await client.release()
