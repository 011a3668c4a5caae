"""Repositories whose configuration makes git run a program while it only reads."""

import os
import subprocess
from pathlib import Path

import pytest

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall
from treadle.permissions.modes import PermissionMode
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules

READS = [
    "git status", "git status -s", "git diff", "git diff --stat", "git log -p", "git show",
    "git ls-files", "git blame src/a.py", "git stash list", "git branch", "git describe --dirty",
    "git status | head", "cd src && git status", "git -C src diff", "git remote -v",
    "git submodule status", "bash -c 'git diff'", "git diff-index HEAD", "git grep x",
]  # fmt: skip
PROGRAMS = {
    "core.fsmonitor": "[core]\n\tfsmonitor = {run}\n",
    "core.fsmonitor on one line": "[core] fsmonitor = {run}\n",
    "core.fsmonitor after a comment": "# a \\\n[core]\n# b \\\nfsmonitor = {run}\n",
    "CORE.FSMonitor": "[CORE]\nFSMonitor = {run}\n",
    "diff.external": "[diff]\n\texternal = {run}\n",
    "diff.x.textconv": '[diff "x"]\n\ttextconv = {run}\n',
    "diff.x.command": '[diff "x"]\n\tcommand = {run}\n',
    "filter.x.clean": '[filter "x"]\n\tclean = {run}\n',
    "filter.x.process": '[filter "x"]\n\tprocess = {run}\n',
    "gpg.program": "[gpg]\n\tprogram = {run}\n",
    "gpg.ssh.program": '[gpg "ssh"]\n\tprogram = {run}\n',
    "include.path": "[include]\n\tpath = ../evil\n",
    "includeIf": '[includeIf "gitdir:/"]\n\tpath = ../evil\n',
    "value on the next line": "[core]\n\tfsmonitor = \\\n{run}\n",
    "an extension of lfs": '[lfs "extension.foo"]\n\tclean = {run}\n',
    "partial clone": '[remote "o"]\n\tpromisor = true\n\tuploadpack = {run}\n',
    "not a config": "[core\n",
}


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit and one change."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "src/a.py").write_text("x = 2\n")
    return tmp_path


def evaluate(
    root: Path,
    command: str,
    mode: PermissionMode = "ask",
    *,
    sandboxed: bool = False,
    allow: str = "",
) -> str:
    rules = parse_rules({"allow": [allow] if allow else []}, root=str(root), home="/h")
    policy = RulePolicy(build_policy_context(root, rules), mode=mode, sandboxed=sandboxed)
    call = PolicyCall("bash", Access(command=command, cwd=str(root)), is_sandboxed=sandboxed)
    return policy.evaluate(call).outcome


def configure(root: Path, text: str) -> None:
    file = root / ".git/config"
    file.write_text(file.read_text() + text.format(run="./evil"))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_reading_asks_where_the_repository_makes_git_run_a_program(repository, kind):
    assert {c: o for c in READS if (o := evaluate(repository, c)) != "allow"} == {}
    configure(repository, PROGRAMS[kind])
    assert {c: o for c in READS if (o := evaluate(repository, c)) != "ask"} == {}
    assert evaluate(repository, "git status", "plan") == "deny"
    assert evaluate(repository, "git status", "auto") == "ask"
    assert evaluate(repository, "git status", allow="Bash(git status:*)") == "ask"
    assert evaluate(repository, "git status", allow="Bash(git status)") == "allow"
    assert evaluate(repository, "git status", sandboxed=True) == "ask"
    assert evaluate(repository, "git status", "plan", sandboxed=True) == "deny"
    assert evaluate(repository, "git status", "auto", sandboxed=True) == "allow"


def test_the_configuration_that_is_asked_about_runs_programs_indeed(repository):
    marker = repository / "ran"
    (repository / "evil").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (repository / "evil").chmod(0o755)
    configure(repository, PROGRAMS["core.fsmonitor"])
    subprocess.run(["git", "status"], cwd=repository, check=False, capture_output=True)
    assert marker.exists()


def test_a_hook_that_reading_runs_is_asked_about(repository):
    (repository / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    assert evaluate(repository, "git status") == "allow"
    (repository / ".git/hooks/post-index-change").write_text("#!/bin/sh\n")
    assert evaluate(repository, "git status") == "ask"


def test_the_hooks_folder_of_the_configuration_counts(repository):
    configure(repository, "[core]\n\thooksPath = .husky\n")
    assert evaluate(repository, "git status") == "allow"
    (repository / ".husky").mkdir()
    (repository / ".husky/post-index-change").write_text("#!/bin/sh\n")
    assert evaluate(repository, "git status") == "ask"


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = true\n\tuntrackedCache = true\n",
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tprocess = git-lfs filter-process\n',
        '[remote "origin"]\n\turl = https://x.example/a.git\n\tfetch = +refs/*:refs/*\n',
        '[branch "main"]\n\tremote = origin\n[user]\n\tname = Ä ö # comment\n; more\n',
        "[alias]\n\tst = status\n\tx = !id\n[gpg]\n\tprogram = gpg2\n[core]\n\tpager = less\n",
    ],
)
def test_ordinary_configuration_is_not_asked_about(repository, config):
    configure(repository, config)
    assert {c: o for c in READS if (o := evaluate(repository, c)) != "allow"} == {}


def test_the_configuration_of_a_submodule_counts(repository):
    git(repository, "submodule", "add", "-q", str(repository), "sub")
    assert evaluate(repository, "git status") == "allow"
    config = repository / ".git/modules/sub/config"
    config.write_text(config.read_text() + "[core]\n\tfsmonitor = ./evil\n")
    assert evaluate(repository, "git status") == "ask"


def test_a_folder_in_the_index_with_its_own_repository_counts(repository):
    git(repository, "clone", "-q", str(repository), "inner")
    git(repository, "add", "inner")
    assert evaluate(repository, "git diff") == "allow"
    (repository / "inner/.git/config").write_text("[core]\n\tfsmonitor = ./evil\n")
    assert evaluate(repository, "git diff") == "ask"


def test_the_configuration_behind_a_linked_worktree_counts(repository):
    git(repository, "worktree", "add", "-q", "../linked")
    linked = repository.parent / "linked"
    assert evaluate(linked, "git status") == "allow"
    configure(repository, PROGRAMS["diff.external"])
    assert evaluate(linked, "git status") == "ask"


def test_a_config_that_is_a_pipe_does_not_block(repository):
    (repository / ".git/config").unlink()
    os.mkfifo(repository / ".git/config")
    assert evaluate(repository, "git status") == "ask"


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_no_spelling_of_a_folder_hides_the_configuration_of_its_repository(repository, mode):
    git(repository, "init", "-q", "in")
    git(repository / "in", "config", "core.fsmonitor", "./evil")
    commands = [
        "git -C in status", "git -C i* status", "git -C ./i* diff", "git -C src -C ../i* status",
        "git -C i? -C . status", "git -C [i]n ls-files", "git -C {in,in} status",
        "git -C src/../i* status", "for d in i*; do git -C $d status; done",
        "for d in in; do git -C \"$d\" status; done", "cd i* && git status",
        "git --no-pager -C i* log", "bash -c 'git -C i* status'", "git -C i* -C . -C . status",
    ]  # fmt: skip
    assert {c: o for c in commands if (o := evaluate(repository, c, mode)) == "allow"} == {}
    assert evaluate(repository, "git -C src status", mode) == "allow"
