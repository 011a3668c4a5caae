"""The workflows of CI, read by actionlint, and what they promise; and the other files that code
hosts read, by their published schemas."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from check_jsonschema.builtin_schemas import get_builtin_schema  # type: ignore[import-untyped]
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from tests.node_programs import PACKAGES, ROOT, find_node

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
LINT = """
import { createLinter } from "PACKAGE";
import { readFileSync } from "node:fs";
const lint = await createLinter();
const found = process.argv.slice(2).flatMap(path => lint(readFileSync(path, "utf8"), path));
console.log(JSON.stringify(found));
process.exit(0);
"""


def lint(folder: Path, *paths: Path) -> list[dict[str, Any]]:
    package = PACKAGES / "actionlint/node.mjs"
    if not package.exists():
        pytest.skip("actionlint is not installed: scripts/node-packages installs it")
    script = folder / "lint.mjs"
    script.write_text(LINT.replace("PACKAGE", str(package)))
    command = [find_node(), str(script), *map(str, paths)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return [one for one in found if one["kind"] != "runner-label"]  # its list is from before these


def read(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / name).read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path):
    assert lint(tmp_path, *WORKFLOWS) == []


def test_actionlint_finds_a_planted_mistake(tmp_path: Path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-at:"))
    assert lint(tmp_path, wrong)


SCHEMAS = {
    "dependabot.yml": "dependabot",
    "bug.yml": "github-issue-forms",
    "feature.yml": "github-issue-forms",
    "config.yml": "github-issue-config",
    "action.yml": "github-actions",
    "review.gitlab-ci.yml": "gitlab-ci",
}
FILES_OF_HOSTS = sorted(
    file
    for folder in (".github", "examples/workflows")
    for file in (ROOT / folder).rglob("*.yml")
    if file.name in SCHEMAS or "workflows" not in file.parts
)


def find_faults(kind: str, text: str) -> list[str]:
    schema = get_builtin_schema(f"vendor.{kind}")
    validator = validator_for(schema)(schema)
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("file", FILES_OF_HOSTS, ids=lambda file: file.name)
def test_each_other_file_of_a_code_host_fits_its_published_schema(file: Path):
    assert find_faults(SCHEMAS[file.name], file.read_text()) == []


def test_the_schema_of_dependabot_finds_a_planted_mistake():
    text = (ROOT / ".github/dependabot.yml").read_text()
    wrong = text.replace("interval: monthly", "interval: sometimes")
    assert "'sometimes' is not one of" in find_faults("dependabot", wrong)[0]


def test_each_python_of_the_package_is_in_the_matrix_with_the_lowest_versions():
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    matrix = read("workflows/check.yml")["jobs"]["unit-tests"]["strategy"]["matrix"]
    assert matrix["versions"] == [*classifiers, "lowest"]
    assert any(runner.startswith("macos") for runner in matrix["runner"])


def test_only_the_job_that_publishes_may_ask_for_an_identity():
    release = read("workflows/release.yml")
    asking = {name for name, job in release["jobs"].items() if "permissions" in job}
    assert (asking, release["permissions"]) == ({"publish"}, {"contents": "read"})
