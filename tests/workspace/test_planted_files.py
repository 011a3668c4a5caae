"""Ways in which one command could plant code that the user runs later, or read secrets."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.workspace.helpers import inside, needs_bubblewrap, opened
from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import find_read_only_part
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions
from treadle.workspace.sandbox import line_kinds, mounts

pytestmark = needs_bubblewrap

PLANTED = ("tasks.json", "settings.json", "pre-commit", "config.toml")
PLANT_HOOK = (
    "echo evil > .git/hooks/pre-commit; git config core.fsmonitor ./evil; "
    "printf '[core]\\n\\tfsmonitor = ./evil\\n' >> .git/config"
)


@pytest.fixture
def repository(folder: Path) -> Path:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for name in PLANTED:
        (folder / name).write_text("evil")
    (folder / ".npmrc").write_text("ours")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "echo {} > ,$n.code-workspace",
        "echo x > d$n.sublime-project",
        "mkdir -p p$n/.vscode",
        "mkdir -p p$n/.github/workflows",
        "git init -q r$n",
        "git init -q --bare b$n.git",
        "git worktree add -q --detach w$n; echo '[core]' > .git/worktrees/w$n/config.worktree",
        "git -c protocol.file.allow=always submodule add -q ./ s$n; echo {} > s$n/.mcp.json",
    ],
)
async def test_more_protected_paths_than_the_sandbox_can_mount_leave_no_sandbox(
    repository: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(mounts, "MAX_MOUNTS", 30)
    async with opened(repository) as workspace:  # without a sandbox
        done = await workspace.run(f"set -e; for n in $(seq 40); do {command}; done")
    assert done.exit_code == 0, done.output
    workspace = await LocalWorkspace.open(repository, WorkspaceOptions(sandbox="auto"))
    try:
        assert not workspace.sandboxed
        assert "the sandbox can protect 30" in workspace.sandbox_problem
    finally:
        await workspace.aclose()


async def test_a_command_is_refused_if_protected_paths_no_longer_fit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "MAX_MOUNTS", 30)
    config = (repository / ".git/config").read_bytes()
    async with opened(repository, sandbox=True) as workspace:
        for number in range(40):
            # A tool writes it: no command made it.
            await workspace.write(f",{number}.code-workspace", b"{}")
        with pytest.raises(WorkspaceError, match="the sandbox can protect 30"):
            await workspace.run(PLANT_HOOK)
    assert (repository / ".git/config").read_bytes() == config
    assert not (repository / ".git/hooks/pre-commit").exists()


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("git clone -q . .vscode", ".vscode"),
        ("git clone -q . x; mv x .claude", ".claude"),
        ("git worktree add -q --detach .treadle", ".treadle"),
        ("git worktree add -q --detach wt; git -C wt worktree add -q --detach .vscode",
         "wt/.vscode"),
        ("git clone -q . .cargo", ".cargo"),
        ("git clone -q . a; git clone -q a a/.husky", "a/.husky"),
        ("git init -q .cursor; git -C .cursor pull -q ..", ".cursor"),
        ("git clone -q . .Vscode/deep", ".Vscode"),
        ("git -c protocol.file.allow=always submodule add -q ./ .zed", ".zed"),
    ],
)  # fmt: skip
async def test_a_work_tree_in_a_protected_folder_brings_nothing(
    repository: Path, command: str, place: str
) -> None:
    done = await inside(repository, command)
    left = [path for path in (repository / place).rglob("*") if path.name in PLANTED]
    names = [str(path.relative_to(repository)) for path in left if ".git" not in path.parts]
    assert [name for name in names if find_read_only_part(name)] == [], done.note


EVIL = "[core]\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = ./evil\\n"
FAKE = "mkdir -p src; cd src; echo ref: refs/heads/a > HEAD; mkdir -p wt objects refs"


@pytest.mark.parametrize(
    "command",
    [
        f"{FAKE}; printf '{EVIL}' > config",
        f"{FAKE}; mkdir hooks; echo evil > hooks/post-checkout; git init -q --bare x",
        f"{FAKE}; printf '{EVIL}' > config.worktree; rmdir objects; echo ../x > commondir; "
        "mkdir -p ../x/objects ../x/refs; git config -f ../x/config extensions.worktreeConfig 1",
        f"git init -q --bare src; printf '{EVIL}' >> src/config",
        "git init -q --bare b; mv b src; git -C src config core.sshCommand ./evil",
        f"{FAKE}; ln -s ../tasks.json config",
    ],
)
async def test_a_folder_that_looks_like_a_git_folder_runs_nothing(
    repository: Path, command: str
) -> None:
    """The user changes into it, and git takes it for a bare repository."""
    done = await inside(repository, command)
    assert not (repository / "src/HEAD").exists()
    assert "src/HEAD was moved" in done.note


async def test_a_bare_repository_can_be_made_used_and_removed(repository: Path) -> None:
    async with opened(repository, sandbox=True) as workspace:
        made = await workspace.run(
            "git clone -q --bare . b.git && git push -q b.git HEAD:refs/heads/x"
        )
        evil = await workspace.run("git -C b.git config core.pager ./evil")
        again = await workspace.run("git init -q --bare c.git")
        gone = await workspace.run("rm -rf b.git c.git")
    assert [(d.exit_code, d.note) for d in (made, again, gone)] == [(0, "")] * 3
    assert "b.git/HEAD was moved" in evil.note


async def test_the_settings_of_a_bare_repository_of_the_user_are_read_only(
    repository: Path,
) -> None:
    shutil.copytree(repository / ".git", repository / "b.git")
    config = (repository / "b.git/config").read_bytes()
    done = await inside(
        repository,
        "git -C b.git config core.pager ./evil; echo evil > b.git/hooks/update; mv b.git c; "
        "git push -q b.git HEAD:refs/heads/x; echo evil > b.git/config.worktree",
    )
    assert (repository / "b.git/config").read_bytes() == config
    assert not (repository / "b.git/hooks/update").exists()
    assert "b.git/config.worktree was moved" in done.note
    assert (repository / "b.git/refs/heads/x").exists()


async def test_what_a_clone_brings_stays_only_where_its_repository_has_it_and_is_named(
    repository: Path,
) -> None:
    done = await inside(repository, "git clone -q . inner")
    assert (repository / "inner/.npmrc").read_text() == "ours"
    assert "inner/.npmrc came with a checkout or clone" in done.note


SEARCHES = [
    "grep -rh '' .", "rg -uu ''", "rg --hidden -g .env ''", "grep -r KEY . | head",
    "git grep --untracked ''", "cd src && grep -r KEY ..",
    "find . -type f -exec grep KEY {} +", "find . -path './.e*' -exec grep -H KEY {} \\;",
    "find . -type f | xargs grep KEY", "find . -type f -print0 | xargs -0 cat",
    "git ls-files -o | xargs grep KEY", "cat $(git ls-files -o)", "git ls-files -o | xargs cat",
]  # fmt: skip


async def test_a_search_in_the_sandbox_sees_no_secrets_and_names_them(folder: Path) -> None:
    (folder / "src").mkdir()
    for name in (".env", "id_rsa", "src/server.pem", ".npmrc"):
        (folder / name).write_text("KEY=topsecret")
    (folder / "a.txt").write_text("KEY=plain")
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run("git init -q")
        found = [await workspace.run(line) for line in SEARCHES]
        named = await workspace.run("cat .env && grep -r KEY id_rsa")
        background = await workspace.start("grep -rh '' .")
        found.append(await background.wait())
    assert [done.output for done in found if "topsecret" in done.output] == []
    assert all("may contain secrets: .env, .npmrc, id_rsa" in done.note for done in found)
    assert "KEY=plain" in found[0].output
    assert named.output.count("topsecret") == 2  # the policy asked about these


async def test_a_folder_with_very_many_keys_is_hidden_from_a_search_as_a_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_kinds, "MAX_DENIED", 5)
    (folder / "certs").mkdir()
    for number in range(10):
        (folder / f"certs/{number}.pem").write_text("topsecret")
    done = await inside(folder, "grep -r topsecret .")
    assert "topsecret" not in done.output
    assert "may contain secrets: certs" in done.note


async def test_nothing_is_writable_for_a_line_that_only_reads(folder: Path) -> None:
    done = await inside(folder, "mount | grep ' /' >/dev/null; cat /proc/mounts")
    assert f" {folder} " in done.output
    reading = await inside(folder, "cat /proc/self/mounts")
    line = next(line for line in reading.output.splitlines() if f" {folder} " in line)
    assert " ro," in line


PLANT_SUBMODULE = """
set -e; place=PLACE; git=$place/.git; head=$(git rev-parse HEAD)
mkdir -p $git/objects $git/refs/heads; cp -r .git/objects/* $git/objects/
echo 'ref: refs/heads/main' > $git/HEAD; echo $head > $git/refs/heads/main
printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = %s/evil\n' $PWD > $git/config
"""
ADD_SUBMODULE = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),PLACE"


@pytest.mark.parametrize(
    ("commands", "place"),
    [
        ([PLANT_SUBMODULE + ADD_SUBMODULE], "node_modules/sub"),
        ([PLANT_SUBMODULE, ADD_SUBMODULE], ".venv/lib/sub"),
        ([ADD_SUBMODULE, PLANT_SUBMODULE], "node_modules/sub"),
        # Of a repository of the user, which no index named so far.
        (["mkdir -p PLACE", "git init -q PLACE", PLANT_SUBMODULE, ADD_SUBMODULE], "venv/sub"),
        (
            [
                "git init -q one; cp -r .git/objects/* one/.git/objects; cp .git/HEAD one/.git",
                PLANT_SUBMODULE.replace("PLACE", "one/node_modules/PLACE"),
                "H=$(git rev-parse HEAD); git update-index --add --cacheinfo 160000,$H,one; "
                "cd one; git update-index --add --cacheinfo 160000,$H,node_modules/PLACE",
            ],
            "sub",
        ),
    ],
)
async def test_git_runs_nothing_of_a_submodule_in_a_folder_that_is_not_looked_into(
    repository: Path, commands: list[str], place: str
) -> None:
    (repository / "evil").write_text(f"#!/bin/sh\ntouch {repository}/ran\n")
    (repository / "evil").chmod(0o755)
    said = ""
    async with opened(repository, sandbox=True) as workspace:
        for command in commands:
            done = await workspace.run(command.replace("PLACE", place))
            said += done.note
    await asyncio.to_thread(
        subprocess.run, ["git", "status", "--short"], cwd=repository, check=True
    )
    assert f"{place}/.git/config was moved" in said
    assert not (repository / "ran").exists()
