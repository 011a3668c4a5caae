"""git commands that print a file which may not be read, because git tracks it."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.core.contracts.tool import Access
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.modes import PermissionMode
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.verdict import PermissionEvaluator

PRINTING = """
    git diff HEAD
    git diff --cached
    git diff --staged
    git diff HEAD~1 HEAD
    git diff HEAD~1..HEAD
    git diff :0:.env :README.md
    git diff-index -p HEAD
    git diff-tree -p HEAD
    git diff-tree --cc -p HEAD
    git status -v
    git status -vv
    git status --verbose
    git status --verb
    git log -p
    git log -u
    git log -wp
    git log -U0
    git log --patch
    git log --stat --unified=1
    git log --oneline -p -3
    git log -p --author n
    git log -p --color-words
    git log -L1,1:.env
    git log -L:KEY:.env
    git log --full-diff -p src
    git log --full-diff -p -- src
    git show --full-diff HEAD -- src
    git whatchanged -p
    git reflog -p
    git show
    git show HEAD
    git show HEAD~1
    git show :0:.env
    git show :.env
    git show HEAD:.env
    git show HEAD:./.env
    git show {blob}
    git show -s {blob}
    git show --stat {blob}
    git cat-file -p {blob}
    git cat-file blob {blob}
    git cat-file -p :0:.env
    git blame .env
    git annotate .env
    git blame HEAD -- .env
    git grep --cached SECRET
    git grep --ca SECRET
    git grep SECRET HEAD
    git grep -e SECRET HEAD
    git grep -e HEAD -e SECRET HEAD
    git grep SECRET HEAD -- .
    git -C src show HEAD:.env
    git -C src log -p
    git stash show -p
    git stash show --patch-with-stat
    git stash list -p
    cd src && git show HEAD~1
    git log -p -- .
    git log -p -- ':!src'
    git diff HEAD -- ':(top)'
    git diff HEAD -- . ':(exclude)src/.env'
"""
# The sandbox hides the file from these: they do not look into the index or a commit for it.
OF_WORK_TREE = """
    git diff
    git diff -w
    git diff -q
    git diff --check
    git diff --stat -p
    git diff -U1 --stat
    git diff --numstat --patch-with-stat
    git diff --binary --stat
    git diff -- .
    git diff-files -p
    git grep SECRET
    git grep -e SECRET -- .
    cd src && git grep SECRET -- ..
"""
HARMLESS = """
    git status
    git status -sb
    git diff --stat
    git diff --name-only HEAD~1
    git diff --cached --name-status
    git diff -- src
    git diff src
    git diff HEAD~1 -- src README.md
    git diff HEAD -- . ':(exclude).env'
    git diff HEAD -- ':!.env'
    git diff HEAD -- ':!*.env'
    git log --oneline -20 --graph --decorate --all
    git log --since='2 weeks ago' --format='%h %an %s'
    git log -n 5 --stat
    git log -p -- src
    git log -p src
    git log --oneline -- .env
    git log --follow --oneline -- src/a.py
    git show HEAD --stat
    git show -s HEAD
    git show HEAD:src/a.py
    git show HEAD~1:README.md :README.md
    git blame src/a.py
    git blame -L 1,1 src/a.py
    git grep SECRET -- src
    git grep SECRET -- ':!.env'
    git ls-files
    git ls-files -s
    git ls-tree -r HEAD
    git branch -a
    git stash list
    git stash show --stat
    git rev-parse HEAD
    git cat-file -t HEAD
    git cat-file -p HEAD
    git check-ignore .env
    git reflog
    git -C src status
    git diff-files
    git diff-tree --stat HEAD
"""


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=n", "-c", "user.email=e"]
    done = subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def split(lines: str) -> list[str]:
    return [line.strip() for line in lines.strip().splitlines()]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that tracks a `.env`, with changes of it in commits, the index and the file."""
    for name in ("src", "n"):
        (tmp_path / name).mkdir()
    git(tmp_path, "init", "-q", "-b", "master", ".")
    for number in range(3):
        for name in ("src/a.py", "README.md"):
            (tmp_path / name).write_text(f"x = {number}\n")
        (tmp_path / ".env").write_text(f"KEY=SECRET{number} \n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", f"commit {number}")
    (tmp_path / ".env").write_text("KEY=SECRET8 \n")
    git(tmp_path, "stash")
    (tmp_path / ".env").write_text("KEY=SECRET9 \n")
    git(tmp_path, "add", ".")
    (tmp_path / ".env").write_text("KEY=SECRET10 \n")
    return tmp_path


def make_context(root: Path, *denied: str, is_sandboxed: bool = False) -> PolicyContext:
    rules = parse_rules({"deny": list(denied)}, root=str(root), home="/h")
    return replace(build_policy_context(root, rules), sandbox_hides_denied=is_sandboxed)


def evaluate(context: PolicyContext, command: str, is_sandboxed: bool = False) -> str:
    access = Access(command=command, cwd=context.root)
    call = PolicyCall("bash", access, is_sandboxed=is_sandboxed)
    return PermissionEvaluator(context).evaluate(call).outcome


@pytest.mark.parametrize("is_sandboxed", [False, True])
def test_a_command_that_prints_a_tracked_denied_file_asks(repository, is_sandboxed):
    context = make_context(repository, "Read(.env)", is_sandboxed=is_sandboxed)
    blob = git(repository, "rev-parse", "HEAD:.env")
    wrong = {}
    for line in [*split(PRINTING), *split(OF_WORK_TREE)]:
        command = line.format(blob=blob)
        done = subprocess.run(
            ["bash", "-c", command], cwd=repository, capture_output=True, text=True, check=False
        )
        outcome = evaluate(context, command, is_sandboxed)
        is_hidden = is_sandboxed and line in split(OF_WORK_TREE)
        if (outcome == "allow") != is_hidden:
            wrong[command] = outcome
        if "SECRET" not in done.stdout:
            wrong[command] = done.stdout + done.stderr
    assert wrong == {}


def test_a_tracked_denied_file_that_is_deleted_is_not_hidden_by_the_sandbox(repository):
    context = make_context(repository, "Read(.env)", is_sandboxed=True)
    assert evaluate(context, "git diff", is_sandboxed=True) == "allow"
    (repository / ".env").unlink()
    assert "SECRET" in git(repository, "diff")
    assert evaluate(context, "git diff", is_sandboxed=True) == "ask"


@pytest.mark.parametrize("is_sandboxed", [False, True])
@pytest.mark.parametrize("mode", ["plan", "ask"])
def test_a_command_that_prints_no_denied_file_runs(
    repository, mode: PermissionMode, is_sandboxed: bool
):
    context = make_context(repository, "Read(.env)", is_sandboxed=is_sandboxed)
    policy = RulePolicy(context, mode=mode, sandboxed=is_sandboxed)
    wrong = {}
    for command in split(HARMLESS):
        done = subprocess.run(
            ["bash", "-c", command], cwd=repository, capture_output=True, text=True, check=False
        )
        assert (done.returncode in (0, 1), "SECRET" in done.stdout) == (True, False), command
        access = Access(command=command, cwd=context.root)
        ruling = policy.evaluate(PolicyCall("bash", access, is_sandboxed=is_sandboxed))
        if ruling.outcome != "allow":
            wrong[command] = ruling.reason
    assert wrong == {}


def test_everyday_git_runs_where_no_denied_file_is_tracked(repository):
    git(repository, "rm", "-qf", "--cached", ".env")
    context = make_context(repository, "Read(.env)")
    lines = ["git diff", "git log -p", "git show HEAD", "git grep x", "git status -v"]
    assert {c: o for c in lines if (o := evaluate(context, c)) != "allow"} == {}


def test_a_denied_path_is_found_from_another_folder(repository):
    (repository / "conf").mkdir()
    (repository / "conf/secret.txt").write_text("SECRET\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "secret")
    context = make_context(repository, "Read(conf/secret.txt)")
    lines = [
        "git -C conf blame secret.txt",
        "cd src && git show HEAD:conf/secret.txt",
        "git -C src show HEAD:conf/secret.txt",
        "git -C conf show HEAD:./secret.txt",
        "git -C conf log -p -- secret.txt",
        "git -C src log -p",
        "cd src && git diff HEAD~1 -- ../conf",
    ]
    assert {c: o for c in lines if (o := evaluate(context, c)) == "allow"} == {}
    assert evaluate(context, "git diff HEAD~1 -- src") == "allow"


@pytest.mark.parametrize("denied", ["Read(**/*.{env,pem})", "Read({.env,x})", "Read(**/.e*)"])
def test_a_pattern_of_names_is_looked_up_in_the_index(repository, denied):
    context = make_context(repository, denied)
    assert evaluate(context, "git log -p") == "ask"
    git(repository, "rm", "-qf", "--cached", ".env")
    assert evaluate(context, "git log -p") == "allow"


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_format_of_the_index_is_read(repository, version):
    for name in (".en", ".envy", "a/.env.sample"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("x\n")
    git(repository, "add", "-N", ".")
    git(repository, "update-index", "--index-version", version)
    context = make_context(repository, "Read(.env)")
    assert evaluate(context, "git diff") == "ask"
    git(repository, "rm", "-qf", "--cached", ".env")
    assert evaluate(context, "git diff") == "allow"


def test_the_index_of_a_repository_with_longer_hashes_is_read(tmp_path):
    git(tmp_path, "init", "-q", "--object-format=sha256", ".")
    (tmp_path / "a").write_text("x\n")
    git(tmp_path, "add", ".")
    context = make_context(tmp_path, "Read(*.env)")
    assert evaluate(context, "git diff") == "allow"
    (tmp_path / "x.env").write_text("SECRET\n")
    git(tmp_path, "add", ".")
    assert evaluate(context, "git diff") == "ask"


def test_a_denied_file_of_a_submodule_or_a_linked_worktree_counts(repository, tmp_path_factory):
    outer = tmp_path_factory.mktemp("outer")
    git(outer, "init", "-q", ".")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository), "sub")
    assert evaluate(make_context(outer, "Read(.env)"), "git diff --submodule=diff") == "ask"
    linked = outer / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    assert evaluate(make_context(linked, "Read(.env)"), "git log -p") == "ask"


def test_a_conflict_in_a_denied_file_is_printed_from_the_index(repository):
    context = make_context(repository, "Read(.env)", is_sandboxed=True)
    git(repository, "commit", "-qam", "ours")
    git(repository, "checkout", "-q", "HEAD~1")
    (repository / ".env").write_text("KEY=SECRET11\n")
    git(repository, "commit", "-qam", "theirs")
    merge = ["git", "-c", "user.name=n", "-c", "user.email=e", "merge", "master"]
    subprocess.run(merge, cwd=repository, check=False, capture_output=True)
    assert "U .env" in git(repository, "status", "--short")
    assert evaluate(context, "git diff", is_sandboxed=True) == "ask"


def test_a_search_that_reads_the_index_instead_of_a_hidden_file_asks(repository):
    context = make_context(repository, "Read(.env)", is_sandboxed=True)
    assert evaluate(context, "git grep SECRET", is_sandboxed=True) == "allow"
    git(repository, "update-index", "--assume-unchanged", ".env")
    assert evaluate(context, "git grep SECRET", is_sandboxed=True) == "ask"


def test_a_rule_for_every_git_command_does_not_cover_a_denied_file(repository):
    rules = {"allow": ["Bash(git:*)"], "deny": ["Read(.env)"]}
    context = build_policy_context(repository, parse_rules(rules, root=str(repository), home="/h"))
    lines = ["git archive HEAD", "git format-patch --stdout HEAD~1", "git commit --dry-run -v"]
    assert {c: o for c in lines if (o := evaluate(context, c)) == "allow"} == {}
    assert evaluate(context, "git commit -m x") == "allow"


def test_the_verdicts_leave_no_file_open(repository):
    context = make_context(repository, "Read(.env)")
    before = sorted(Path("/proc/self/fd").iterdir())
    for command in ("git diff HEAD", "git log -p", "git status", "git show HEAD:src"):
        evaluate(context, command)
    assert sorted(Path("/proc/self/fd").iterdir()) == before
