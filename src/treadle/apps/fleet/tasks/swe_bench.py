"""Tasks of the SWE-bench form: a repository at a commit, a problem statement, tests.

    {"instance_id": …, "repo": "owner/name", "base_commit": …, "problem_statement": …,
     "test_patch": …, "FAIL_TO_PASS": […], "PASS_TO_PASS": […], "test_command": …}

The check of such a task resets the files of the test patch, applies it, and runs the tests. The
agent does not see them. Used by task_files.py. Fetches nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from treadle.core.errors import ConfigError

DEFAULT_REPOSITORIES = "https://github.com/"
TEST_COMMAND_FIELDS = ("test_command", "test_cmd", "check")
END_OF_PATCH = "END_OF_TEST_PATCH"
_LABELS = ("version", "difficulty")
_OWN_FIELDS = ("model", "max_cost", "max_turns", "permission_mode", "timeout", "labels")
_PATCHED_FILES = re.compile(r"^--- ([^\t\n]+).*\n\+\+\+ ([^\t\n]+)", re.MULTILINE)
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_swe_bench(fields: Mapping[str, object]) -> bool:
    return "problem_statement" in fields and "base_commit" in fields


def convert_swe_bench(fields: Mapping[str, object], repositories: str = "") -> dict[str, object]:
    """The fields of a fleet task. `repositories` is a folder of local copies, or a URL."""
    repository = _read_text(fields, "repo")
    labels = {"repository": repository}
    labels |= {name: str(fields[name]) for name in _LABELS if fields.get(name)}
    own = {name: fields[name] for name in _OWN_FIELDS if fields.get(name) is not None}
    given = own.pop("labels", {})
    if not isinstance(given, Mapping):
        raise ConfigError("labels must be texts by their names")
    return {
        **own,
        "id": _read_text(fields, "instance_id"),
        "prompt": _read_text(fields, "problem_statement"),
        "repository": find_repository(repository, repositories),
        "commit": _read_text(fields, "base_commit"),
        "check": make_check(fields),
        "labels": {**labels, **given},
    }


def find_repository(name: str, repositories: str) -> str:
    """Where `owner/name` is: a local copy if there is one, else a URL. A path or URL stays."""
    if not _REPOSITORY.fullmatch(name):
        return name
    if not repositories or "://" in repositories:
        return f"{(repositories or DEFAULT_REPOSITORIES).rstrip('/')}/{name}.git"
    folder = Path(repositories).expanduser()
    flat = name.replace("/", "__")
    for form in (name, f"{name}.git", flat, f"{flat}.git", name.partition("/")[2]):
        if (folder / form).is_dir():
            return str((folder / form).resolve())
    raise ConfigError(f"{folder} has no copy of {name}; clone it there as {flat}")


def make_check(fields: Mapping[str, object]) -> str | None:
    """Apply the test patch, then run the tests; None if there is neither."""
    command = next((fields[name] for name in TEST_COMMAND_FIELDS if fields.get(name)), None)
    if command is not None and not isinstance(command, str):
        raise ConfigError("test_command must be a text: one command line")
    if command is None:
        command = _make_pytest_command(fields)
    patch = fields.get("test_patch")
    if command is None or not isinstance(patch, str) or not patch.strip():
        return command
    if END_OF_PATCH in patch:
        raise ConfigError(f"the test patch contains the text {END_OF_PATCH}; remove it")
    text = patch if patch.endswith("\n") else f"{patch}\n"
    apply = f"git apply --whitespace=nowarn - <<'{END_OF_PATCH}' || exit 1\n{text}{END_OF_PATCH}\n"
    return _make_reset(patch, _read_text(fields, "base_commit")) + apply + command


def _make_reset(patch: str, commit: str) -> str:
    """Commands that bring the files of the patch back to the commit: the agent may have written
    tests of its own there, and the patch must apply."""
    lines = []
    for old, new in _PATCHED_FILES.findall(patch):
        if old == "/dev/null":
            lines.append(f"rm -f -- {shlex.quote(new.removeprefix('b/'))}\n")
        else:
            path = shlex.quote(old.removeprefix("a/"))
            lines.append(f"git checkout -q {shlex.quote(commit)} -- {path} || exit 1\n")
    return "".join(lines)


def _make_pytest_command(fields: Mapping[str, object]) -> str | None:
    """The tests that have to pass, if their names are those of pytest."""
    tests = [*_read_names(fields, "FAIL_TO_PASS"), *_read_names(fields, "PASS_TO_PASS")]
    if not tests or not all("::" in name or name.endswith(".py") for name in tests):
        return None
    return shlex.join(["python3", "-m", "pytest", "-q", *tests])


def _read_names(fields: Mapping[str, object], name: str) -> list[str]:
    """A list of names; published files have it as a list or as JSON in a text."""
    value = fields.get(name) or []
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"{name} must be a list of the names of tests") from error
    if not isinstance(value, list) or not all(isinstance(test, str) for test in value):
        raise ConfigError(f"{name} must be a list of the names of tests")
    return value


def _read_text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"the field {name} is missing; a SWE-bench line needs it")
    return value
