"""The workspaces of a coding agent whose commands run in containers: its own, and those of its
children in worktrees. Made by coding_agent.py only if a container is wanted."""

from __future__ import annotations

from pathlib import Path

from treadle.core.contracts.workspace import Workspace
from treadle.workspace.container import ContainerOptions, ContainerWorkspace


class Containers:
    """Makes the workspaces of one agent; `aclose` closes them all."""

    def __init__(
        self, options: ContainerOptions, outputs_dir: Path, secrets: tuple[str, ...]
    ) -> None:
        self._options = options
        self._outputs_dir, self._secrets = outputs_dir, secrets
        self._made: list[ContainerWorkspace] = []

    def make_workspace(self, files: Workspace) -> ContainerWorkspace:
        """Commands in containers; files as in the workspace that is given."""
        made = ContainerWorkspace(
            files.root,
            self._options,
            files=files,
            outputs_dir=self._outputs_dir,
            secrets=self._secrets,
        )
        self._made.append(made)
        return made

    async def aclose(self) -> None:
        for workspace in self._made:
            await workspace.aclose()
