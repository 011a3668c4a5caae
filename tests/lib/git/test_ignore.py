"""Ignore files mean what they mean to the real git, and cost little whatever is in them."""

import subprocess
from pathlib import Path

import pytest

from treadle.lib.git.ignore import IgnoreRules


@pytest.mark.parametrize("pattern", ["a*" * 60 + "b", "**/a/" * 30 + "b", "*a?" * 80 + "/b"])
def test_a_pattern_of_many_stars_does_not_take_its_time(pattern: str) -> None:
    rules = IgnoreRules().with_gitignore("", pattern)
    assert not rules.is_ignored("a" * 250, False)
    assert not rules.is_ignored("a/" * 120 + "a", False)


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("*.o", "a/b.o", True),
        ("*.o", "a/b.c", False),
        ("/*.o", "a/b.o", False),
        ("build/", "build", False),  # a file of that name
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", False),
        ("**/b", "x/a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a/x/y", True),
        ("[ab].c", "a.c", True),
        ("[!ab].c", "a.c", False),
        ("\\#x", "#x", True),
        ("# x", "# x", False),
        ("*.o\n!keep.o", "keep.o", False),
        ("trailing   ", "trailing", True),
        ("a?c", "a/c", False),
        ("[[:digit:]x].c", "3.c", True),
        ("[[:digit:]x].c", "[.c", False),
        ("[[:unknown:]].c", "3.c", False),
        ("[]a].c", "].c", True),
        ("[a\\]b].c", "].c", True),
        ("//a", "a", False),
    ],
)
def test_patterns_mean_what_they_mean_to_git(
    tmp_path: Path, pattern: str, path: str, ignored: bool
) -> None:
    assert IgnoreRules().with_gitignore("", pattern).is_ignored(path, False) is ignored
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    check = ["git", "check-ignore", "--no-index", "-q", path]
    assert (subprocess.run(check, cwd=tmp_path, check=False).returncode == 0) is ignored
