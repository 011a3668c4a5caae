"""The settings that are only for this user do not get into a commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.apps.settings.git_exclude import exclude_from_git
from treadle.apps.settings.rule_changes import (
    change_rules,
    describe_rule_change,
    parse_rule_change,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
LOCAL = ".treadle/settings.local.json"


def git(folder: Path, *arguments: str) -> str:
    run = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return run.stdout


def test_a_rule_for_this_user_is_not_added_to_git(tmp_path: Path):
    folder = tmp_path / "repository" / "part"
    folder.mkdir(parents=True)
    git(folder.parent, "init", "--quiet")
    change = parse_rule_change("add Bash(touch:*)")
    told = describe_rule_change(folder, change, change_rules(folder, change))
    assert "info/exclude keeps settings.local.json out of git in this clone" in told
    assert (folder / LOCAL).is_file()
    assert git(folder, "status", "--porcelain") == ""
    change = parse_rule_change("add Bash(ls:*)")
    assert "info/exclude" not in describe_rule_change(folder, change, change_rules(folder, change))
    exclude = folder.parent / ".git" / "info" / "exclude"
    assert exclude.read_text().endswith(f"\n/part/{LOCAL}\n")


@pytest.mark.parametrize("pattern", ["*.local.json", ".treadle/", LOCAL])
def test_a_file_that_is_ignored_already_is_not_excluded_again(tmp_path: Path, pattern: str):
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    assert exclude_from_git(tmp_path / LOCAL) is None


def test_a_link_to_the_repository_of_another_folder_is_not_followed(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    git(tmp_path / "mine", "init", "--quiet")
    (tmp_path / "other" / ".git").write_text(f"gitdir: {tmp_path / 'mine' / '.git'}\n")
    assert exclude_from_git(tmp_path / "other" / LOCAL) is None
    assert exclude_from_git(tmp_path / "mine" / LOCAL) is not None
