"""Searches and plain reads of a project in which some files are denied."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator
from treadle.tools.builtin import describe_access

PLAIN_READS = """
    rg TODO
    rg -n 'def main' src
    rg -g '!.env' TODO
    rg --hidden -g '!.env' TODO
    rg --files
    rg -t py import
    rg foo . | wc -l
    grep -rn foo . --exclude=.env
    grep -rn TODO . --include='*.py'
    grep -rn TODO src
    git grep x
    git grep -n x -- src
    git status
    git diff
    git log --oneline -5
    ls -la
    ls -R
    find . -name '*.py'
    tree -L 2
    cat README.md src/a.py
    head -20 src/a.py | wc -l
    du -sh .
    wc -l src/*.py
"""
SEARCHES_OF_DENIED_FILES = """
    rg --hidden KEY
    rg -uu KEY
    rg -uuu KEY
    rg -. KEY
    rg -g .env KEY
    rg -g '.e*' KEY
    rg -g '!.env' -g .env KEY
    rg -t all KEY
    rg --type-add 'x:.env' -t x KEY
    grep -r KEY .
    grep -rn KEY
    grep -d recurse KEY .
    grep -r KEY . --exclude='*.py'
    grep -r KEY . --include='.e*'
    grep -r KEY . --exclude=.env --include=.env
    git grep --untracked KEY
    git grep KEY -- . ':!src'
"""


def split(lines: str) -> list[str]:
    return [line.strip() for line in lines.strip().splitlines()]


@pytest.fixture
def context(tmp_path: Path) -> PolicyContext:
    """A repository with a `.env`, in which `sub/.env` is tracked."""
    for name in ("src/a.py", "README.md", ".env", "tests/t.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("KEY=1\n")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "src", "README.md"], cwd=tmp_path, check=True)
    root = str(tmp_path)
    return build_policy_context(root, parse_rules({"deny": ["Read(.env)"]}, root=root, home="/h"))


def evaluate(context: PolicyContext, command: str) -> str:
    call = PolicyCall("bash", Access(command=command, cwd=context.root))
    return PermissionEvaluator(context).evaluate(call).outcome


@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_plain_reads_of_a_project_run_although_a_file_in_it_is_denied(context, is_sandboxed):
    context = replace(context, sandbox_hides_denied=is_sandboxed)
    asked = [c for c in split(PLAIN_READS) if evaluate(context, c) != "allow"]
    assert asked == []


def test_the_name_of_a_denied_file_is_shown_and_the_content_of_a_denied_folder_is_not(context):
    rules = parse_rules({"deny": ["Read(.env)", "Read(src/**)"]}, root=context.root, home="/h")
    context = replace(context, rules=rules)
    names = ["ls .env", "ls -la .env README.md", "stat .env", "du -h .e*", "ls -l src/a.py"]
    assert {c: o for c in names if (o := evaluate(context, c)) != "allow"} == {}
    reads = ["cat .env", "ls src", "ls -R src", "wc -l .env", "ls src/", "stat src", "ls /etc/.env"]
    assert {c: o for c in reads if (o := evaluate(context, c)) == "allow"} == {}
    assert evaluate(context, "cd $x && ls .env") == "ask"


def test_a_search_that_would_read_a_denied_file_asks_without_a_sandbox(context):
    track(context, ".env")
    commands = [*split(SEARCHES_OF_DENIED_FILES), "git grep KEY", "git grep KEY HEAD"]
    assert {c: o for c in commands if (o := evaluate(context, c)) != "ask"} == {}


def test_a_search_that_would_read_a_denied_file_runs_where_the_sandbox_hides_the_file(context):
    context = replace(context, sandbox_hides_denied=True)
    outcomes = {c: evaluate(context, c) for c in split(SEARCHES_OF_DENIED_FILES)}
    assert "deny" not in outcomes.values()
    assert {c for c, o in outcomes.items() if o == "ask"} == {c for c in outcomes if named(c)}
    assert evaluate(context, "cat .env") == "deny"


def test_a_denied_file_in_a_deeper_folder_is_found(context):
    Path(context.root, "src/.env").write_text("KEY=2")
    assert evaluate(context, "grep -r KEY src") == "ask"
    assert evaluate(context, "grep -r KEY tests") == "allow"


def test_a_search_in_a_large_project_that_leaves_the_file_out_is_not_asked_about(context):
    for number in range(6):
        folder = Path(context.root, f"many{number}")
        folder.mkdir()
        for name in range(1000):
            (folder / f"f{name}").touch()
    commands = [
        "rg TODO",
        "grep -rn x . --exclude=.env",
        "git grep x",
        "grep -r x . --include=*.py",
    ]
    assert {c: o for c in commands if (o := evaluate(context, c)) != "allow"} == {}
    assert evaluate(context, "grep -rn x .") == "ask"


def test_git_grep_of_a_tracked_denied_file_asks_and_leaves_out_what_the_pathspec_excludes(context):
    assert evaluate(context, "git grep KEY") == "allow"
    track(context, ".env")
    assert evaluate(context, "git grep KEY") == "ask"
    assert evaluate(context, "git grep KEY -- ':!.env'") == "allow"
    assert evaluate(context, "git grep KEY -- src") == "allow"


@pytest.mark.parametrize("denied", ["Read(.env)", "Read(src/notes.txt)", "Read(**/*.tx*)"])
def test_another_name_of_a_denied_file_is_not_read(context, denied):
    root = Path(context.root)
    name = ".env" if denied == "Read(.env)" else "src/notes.txt"
    (root / name).write_text("KEY=1\n")
    rules = parse_rules({"deny": [denied]}, root=context.root, home="/h")
    context = replace(context, rules=rules)
    lines = [
        "cat tests/other", "grep -r KEY .", "rg KEY", "rg KEY tests", "cat tests/o*",
        f"grep -r KEY --exclude={Path(name).name} .", "git grep KEY", "git diff --cached",
    ]  # fmt: skip
    (root / "tests/other").write_text("plain\n")
    track(context, "tests/other")
    assert evaluate(context, "cat tests/other") == "allow"
    assert evaluate(context, "rg KEY tests") == "allow"
    assert evaluate(context, "git grep KEY") == "allow"
    (root / "tests/other").unlink()
    (root / "tests/other").hardlink_to(root / name)
    assert {c: o for c in lines if (o := evaluate(context, c)) == "allow"} == {}
    assert evaluate(context, "rg KEY -g '!other' -g '!n*'") == "allow"
    assert RulePolicy(context).find_denied([f"{root}/tests/other", f"{root}/README.md"]) == [
        f"{root}/tests/other"
    ]


def test_files_with_other_names_elsewhere_are_searched(context, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    for name in (".env", "README.md"):
        (copy / name).hardlink_to(Path(context.root, name))
    assert evaluate(context, "rg KEY") == "allow"
    assert evaluate(context, "cat README.md") == "allow"


@pytest.mark.parametrize("mode", ["plan", "ask", "accept-edits", "auto"])
def test_the_grep_tool_runs_although_a_file_is_denied(context, mode):
    context = replace(context, tools_skip_denied=True)
    access = describe_access("grep", {"pattern": "KEY"}, context.root)
    assert RulePolicy(context, mode=mode).evaluate(PolicyCall("grep", access)).outcome == "allow"
    direct = describe_access("grep", {"pattern": "KEY", "path": ".env"}, context.root)
    assert RulePolicy(context, mode=mode).evaluate(PolicyCall("grep", direct)).outcome == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "git log -p -- '*.env'", "git diff HEAD -- '.e*'", "git grep -h . ':(top).env'",
        "git show ':/.env'", "git log -p -- ':(glob)**/.env'",
    ],
)  # fmt: skip
def test_a_pattern_of_git_that_matches_a_denied_file_asks(context, command):
    assert evaluate(context, command) == "ask"
    assert evaluate(context, "git diff -- '*.py' ':!.env'") == "allow"


def test_the_grep_tool_asks_where_it_would_not_leave_the_file_out(context):
    access = describe_access("grep", {"pattern": "KEY"}, context.root)
    assert PermissionEvaluator(context).evaluate(PolicyCall("grep", access)).outcome == "ask"


def named(command: str) -> bool:
    """Whether the command names the denied file itself, except to leave it out."""
    return " .env" in command or ":.env" in command


def track(context: PolicyContext, name: str) -> None:
    subprocess.run(["git", "add", "-f", name], cwd=context.root, check=True)
