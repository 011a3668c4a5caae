"""The build hook of hatchling: writes the commit of the checkout into the package, and compresses
the price list of a wheel, which has a line for each of a thousand models.

A wheel that is built from an sdist has the file of the sdist. Used by pyproject.toml.
"""

from __future__ import annotations

import subprocess
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PRICE_LIST = "treadle/models/price_list.json"
COMMIT = ("git", "rev-parse", "--short=12", "HEAD")


class MadeFiles(BuildHookInterface):  # type: ignore[type-arg] # no use of its types
    """Adds `_commit.txt`, which `treadle --version` reads, and in a wheel the price list."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if self.target_name == "wheel":
            self._add_price_list(build_data)
        self._add_commit(build_data)

    def _add_price_list(self, build_data: dict[str, Any]) -> None:
        file = Path(self.directory, "price_list")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(zlib.compress(Path(self.root, "src", PRICE_LIST).read_bytes(), level=9))
        build_data["force_include"][str(file)] = PRICE_LIST

    def _add_commit(self, build_data: dict[str, Any]) -> None:
        if not Path(self.root, ".git").exists():
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
        for name in ("_commit.txt", "price_list"):
            Path(self.directory, name).unlink(missing_ok=True)
