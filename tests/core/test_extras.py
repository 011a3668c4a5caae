from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from treadle.core.errors import ConfigError, MissingExtra
from treadle.core.extras import (
    ALL_EXTRAS,
    EXTRA_FEATURES,
    format_install_command,
    is_installed,
    require_extra,
)

ROOT = Path(__file__).resolve().parents[2]


def test_the_project_defines_the_extras_and_all_brings_each_of_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {*EXTRA_FEATURES, "all"}
    assert extras["all"] == [f"treadle[{','.join(ALL_EXTRAS)}]"]
    assert set(EXTRA_FEATURES) - set(ALL_EXTRAS) == {"ray"}


@pytest.mark.parametrize("extra", ALL_EXTRAS)
def test_an_installed_extra_is_found_without_an_import(extra: str):
    program = (
        "import sys; from treadle.core.extras import is_installed;"
        f"before = set(sys.modules); found = is_installed({extra!r});"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "sys.exit(not found or bool(loaded - set(sys.stdlib_module_names)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_missing_extra_is_a_config_error_with_the_command_and_the_addition(
    monkeypatch: pytest.MonkeyPatch,
):
    require_extra("tui")
    monkeypatch.setitem(sys.modules, "textual", None)
    assert not is_installed("tui")
    with pytest.raises(MissingExtra) as raised:
        require_extra("tui", "--plain works without it")
    assert isinstance(raised.value, ConfigError)
    assert raised.value.extra == "tui"
    assert str(raised.value) == (
        "the extra 'tui' (the full screen) is not installed: "
        "pip install 'treadle[tui]'; --plain works without it"
    )


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("pyvenv.cfg", "pip install 'treadle[mcp]'"),
        ("pipx_metadata.json", "pipx install --force 'treadle[tui,mcp]'"),
        ("uv-receipt.toml", "uv tool install 'treadle[tui,mcp]'"),
    ],
)
def test_the_command_fits_the_installer_and_keeps_the_extras_that_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, command: str
):
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for module in (
        "uvicorn",
        "mcp",
        "acp",
        "xllamacpp",
        "opentelemetry",
        "dbos",
        "PIL",
        "ag_ui",
        "a2a",
    ):
        monkeypatch.setitem(sys.modules, module, None)
    assert format_install_command(["mcp"]) == command
