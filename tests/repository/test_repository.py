"""Locks, documents and scripts of the repository are consistent."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = [
    "requirements.lock",
    "requirements-dev.lock",
    "scripts/installer.lock",
    "scripts/ray.lock",
    "scripts/weights.lock",
]


def locked(name: str) -> dict[str, set[Version]]:
    """Package to versions: several where platforms or Pythons differ."""
    versions: dict[str, set[Version]] = {}
    for package, version in re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE
    ):
        versions.setdefault(package, set()).add(Version(version))
    return versions


BASE = PROJECT["project"]["dependencies"]
OPTIONAL = PROJECT["project"]["optional-dependencies"]
EXTRAS = [need for extra in OPTIONAL if extra not in ("all", "ray") for need in OPTIONAL[extra]]
RAY = [need for need in OPTIONAL["ray"] if need != "treadle[fleet]"]  # has a lock of its own


@pytest.mark.parametrize(
    ("lock", "needs"),
    [
        ("requirements.lock", [*BASE, *EXTRAS]),
        ("requirements-dev.lock", [*BASE, *EXTRAS]),
        ("requirements-dev.lock", PROJECT["dependency-groups"]["dev"]),
        ("scripts/ray.lock", [*BASE, *OPTIONAL["fleet"], *RAY]),
    ],
)
def test_the_lock_holds_what_the_project_asks_for(lock: str, needs: list[str]):
    versions = locked(lock)
    for need in map(Requirement, needs):
        assert need.name in versions, f"{need.name} is not in {lock}: run scripts/lock"
        assert all(version in need.specifier for version in versions[need.name]), need


def test_the_two_locks_agree():
    dev = locked("requirements-dev.lock")
    for package, versions in locked("requirements.lock").items():
        assert dev[package] == versions, f"{package}: run scripts/lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_hash_for_everything_and_names_no_place(lock: str):
    text = (ROOT / lock).read_text()
    for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text
    assert "index" not in text


def test_the_readme_s_example_is_python():
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    ast.parse(example)


def test_ci_runs_check_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["exec ./check"]


@pytest.mark.parametrize(
    "script",
    [
        "treadle",
        "check",
        ".ci/run",
        "scripts/environment",
        "scripts/lock",
        "scripts/debian-packages",
    ],
)
def test_a_script_is_plain_shell_and_may_be_run(script: str):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/bin/sh\n")
    subprocess.run(["sh", "-n", path], check=True)


def test_no_large_file_is_part_of_the_project():
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    large = [str(file) for file in files if file.is_file() and file.stat().st_size > 1_000_000]
    assert not large


def test_the_workflow_runs_the_check_and_every_supported_python_is_tested():
    names = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert "- run: ./check\n" in workflow
    assert re.findall(r"^ +(3\.\d+)$", workflow, re.MULTILINE) == names[::-1]
    assert f"for version in {' '.join(names)}; do" in (ROOT / "scripts" / "pythons").read_text()
