"""The import rules hold now, and a planted violation is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PLANTED = {
    "a plain tool imports the core": ("lib/text/planted.py", "import treadle.core.errors"),
    "a plain tool imports an agent": ("lib/planted.py", "import treadle.agents.agent"),
    "a sibling imports a sibling": ("models/planted.py", "import treadle.tools.planted"),
    "a sibling imports the loop": ("permissions/planted.py", "import treadle.core.loop.planted"),
    "the core looks up": ("core/contracts/planted.py", "import treadle.models.planted"),
    "values look up": ("core/transcript/planted.py", "import treadle.core.errors"),
    "an agent imports a host": ("agents/planted.py", "import treadle.apps.cli.main"),
    "a host imports a host": ("apps/web/planted.py", "import treadle.apps.cli.main"),
    "an import inside a function": (
        "models/planted.py",
        "def later() -> None:\n    import treadle.tools.planted",
    ),
    "a folder without a layer": ("helpers/planted.py", "x = 1"),
}


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--no-logo"],
        cwd=checkout,
        env={"PYTHONPATH": str(checkout / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the source, with a module `planted` in each folder that the cases import from."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for target in ("models", "tools", "core/loop"):
        plant(tmp_path, f"{target}/planted.py", "")
    if not (errors := tmp_path / "src/treadle/core/errors.py").exists():
        errors.touch()
    return tmp_path


def plant(checkout: Path, path: str, code: str) -> None:
    module = checkout / "src" / "treadle" / path
    module.parent.mkdir(parents=True, exist_ok=True)
    (module.parent / "__init__.py").touch()
    module.write_text(f"{code}\n")


def test_the_code_keeps_its_layers(checkout: Path):
    done = lint_imports(checkout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("path", "code"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_caught(checkout: Path, path: str, code: str):
    plant(checkout, path, code)
    done = lint_imports(checkout)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout
    assert Path(path).parent.name in done.stdout
