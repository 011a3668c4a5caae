"""The build hook of hatchling: writes the commit of the checkout into the package.

A wheel that is built from an sdist has the file of the sdist. Used by pyproject.toml.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMMIT = ("git", "rev-parse", "--short=12", "HEAD")


class CommitFile(BuildHookInterface):  # type: ignore[type-arg] # no use of its types
    """Adds `_commit.txt`, which `treadle --version` reads."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not Path(self.root, ".git").exists():
            return
        try:
            done = subprocess.run(COMMIT, cwd=self.root, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return  # no git, or a folder that it does not trust
        file = Path(self.directory, "_commit.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(done.stdout)
        folder = "treadle" if self.target_name == "wheel" else "src/treadle"
        build_data["force_include"][str(file)] = f"{folder}/_commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        Path(self.directory, "_commit.txt").unlink(missing_ok=True)
