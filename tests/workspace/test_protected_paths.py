# ruff: noqa: ASYNC240 - real files
"""What a command cannot change or leave: protected paths, and git around and inside the folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import until
from tests.workspace.helpers import (
    gone,
    inside,
    marker,
    needs_bubblewrap,
    not_for_root,
    opened,
    seen,
)
from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import find_protected_part
from treadle.workspace.sandbox import mounts, tree_scan
from treadle.workspace.sandbox.mounts import make_mount_options
from treadle.workspace.sandbox.protected_paths import ProtectedPaths
from treadle.workspace.sandbox.stand_ins import StandIns
from treadle.workspace.supervisor.process_tree import list_descendants
from treadle.workspace.supervisor.set_aside import set_aside

pytestmark = needs_bubblewrap

BROUGHT = "came with a checkout or clone: look at it before programs use it"


@pytest.fixture
def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".git/hooks").mkdir(exist_ok=True)
    return folder


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def make_commit(folder: Path, files: dict[str, str]) -> None:
    """A commit `one` with these files; its objects are older than any later session."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")


@pytest.mark.parametrize(
    "command",
    [
        "mkdir -p .treadle; echo '{}' > .treadle/settings.json",  # P217
        "echo x > .treadle",
        "ln -s /tmp .treadle; echo x > .treadle/settings.json",
        "mkdir t2; echo x > t2/settings.json; cp -r t2 t3; mv t3 .treadle",
        "echo x > .mcp.json",
        "mkdir .vscode; echo x > .vscode/tasks.json",
        "mkdir .Husky; echo x > .Husky/pre-commit",
        "echo x > .npmrc & disown; until [ -e .npmrc ]; do :; done",
    ],
)
async def test_settings_that_a_command_makes_are_moved_away_and_named(
    folder: Path, own_place: Path, command: str
) -> None:
    done = await inside(folder, command, state_dir=own_place / "state")
    assert [path.name for path in folder.iterdir() if path.name != "t2"] == []
    assert "was moved to" in done.note
    assert list((own_place / "state/set_aside/1").iterdir())


@pytest.mark.parametrize(
    "command",
    [
        "echo x >> .git/config",
        "git config core.fsmonitor evil",
        "echo x > .git/hooks/pre-commit",
        "rm -rf .git/hooks && mkdir .git/hooks",
        "mv .git g2; mkdir .git; echo x > .git/config",  # P218
        "mv .git/hooks .git/h2",
        "true; rm -rf .git",  # as a command of its own it is asked about, and removes all
        "mount --bind /tmp .git",
    ],
)
async def test_hooks_and_config_of_git_cannot_be_changed(repository: Path, command: str) -> None:
    config = (repository / ".git/config").read_bytes()
    done = await inside(repository, command)
    assert done.exit_code != 0
    assert (repository / ".git/config").read_bytes() == config
    assert not (repository / ".git/hooks/pre-commit").exists()


ASKED_FOR = (
    ".husky/pre-commit", ".npmrc", ".pre-commit-config.yaml", ".gitmodules", ".cargo/config.toml",
    ".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json", ".envrc",
    ".devcontainer/devcontainer.json", ".git/info/attributes", "a.code-workspace",
    ".config/mise/config.toml", ".bundle/config", ".ghci", ".ocamlinit", ".roo/mcp.json",
    ".vs/tasks.vs.json", ".lvimrc", ".helix/languages.toml", "mise/config.toml", "mise.dev.toml",
    ".mise.dev.toml", ".rtx.toml", ".qwen/settings.json", ".crush.json", "crush.json",
    ".factory/mcp.json", ".lazy.lua", ".pnpmfile.mjs", ".autoenv.zsh",
)  # fmt: skip


@pytest.mark.parametrize("where", [".", "packages/app"])
@pytest.mark.parametrize("exists", [True, False], ids=["existing", "missing"])
async def test_what_the_write_tool_asks_about_no_command_changes(
    repository: Path, where: str, exists: bool
) -> None:
    git(repository, "init", "-q", where)
    (repository / where / ".git/info/attributes").unlink(missing_ok=True)
    files = {name: repository / where / name for name in ASKED_FOR}
    for file in files.values() if exists else ():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("ours")
    assert all(find_protected_part(str(file)) for file in files.values())
    evil = "mkdir -p $(dirname $f); rm -rf $f; echo evil > $f"
    done = await inside(repository, f"cd {where}; for f in {' '.join(files)}; do {evil}; done")
    for name, file in files.items():
        assert (file.read_text() if file.exists() else "") == ("ours" if exists else "")
        named = "/".join(find_protected_part(name)) if not name.startswith(".git/") else name
        assert exists or named in done.note


async def test_a_folder_cannot_be_swapped_to_plant_settings(folder: Path) -> None:
    (folder / "app/.vscode").mkdir(parents=True)
    (folder / "app/.vscode/tasks.json").write_text("ours")
    done = await inside(folder, "mv app b; mkdir -p app/.vscode; echo x > app/.vscode/tasks.json")
    assert "app/.vscode" in done.note
    assert not (folder / "app/.vscode").exists()
    assert (folder / "b/.vscode/tasks.json").read_text() == "ours"


@pytest.mark.parametrize(
    "command",
    [
        "mkdir .vscode; echo x > .vscode/tasks.json; chmod 0 .vscode",
        "mkdir -p a/.vscode; echo x > a/.vscode/tasks.json; chmod 555 a/.vscode a .",
        "mkfifo .npmrc",
        "truncate -s 1T .npmrc",
        "mkdir e; echo x > e/config.toml; ln -s e .cargo",
        "ln -s /dev/zero .envrc; ln -s .envrc .npmrc",
        "python3 -c 'import os; os.makedirs(b\"a\\n\\xff/.vscode\")'",
        "mkdir .GIT; echo x > .GIT/config",
    ],
)
async def test_no_trick_keeps_settings_in_the_folder(folder: Path, command: str) -> None:
    done = await inside(folder, command)
    left = [path for path in folder.rglob("*") if find_protected_part(path.name)]
    assert [path.name for path in left if path.name != ".GIT"] == []
    assert not (folder / ".GIT/config").exists()
    assert not (folder / ".cargo").is_symlink()
    assert "was moved to" in done.note
    done.note.encode()
    assert done.note.isprintable()


@pytest.mark.parametrize("name", ["app/.cargo/config.toml", "tools/hooks/pre-commit"])
async def test_settings_that_are_known_by_their_folder_are_not_renamed_with_it(
    repository: Path, name: str
) -> None:
    git(repository, "config", "core.hooksPath", "tools/hooks")
    (repository / name).parent.mkdir(parents=True)
    (repository / name).write_text("ours\n")
    folder = name.rpartition("/")[0]
    async with opened(repository, sandbox=True) as workspace:
        for parent in (folder, name.partition("/")[0]):
            await workspace.run(f"mv {parent} {parent}2")
            await workspace.run(f"find . -name {Path(name).name} -exec sh -c 'echo x >> {{}}' ';'")
            await workspace.run(f"mv {parent}2 {parent}")
    assert (repository / name).read_text() == "ours\n"


@not_for_root
@pytest.mark.parametrize("mode", ["311", "644", "0"])
async def test_settings_in_a_folder_that_a_command_made_unreadable_are_moved_away(
    folder: Path, mode: str
) -> None:
    made = "mkdir -p tools/.vscode; echo x > tools/.npmrc; echo x > tools/.vscode/tasks.json"
    done = await inside(folder, f"{made}; chmod {mode} tools")
    assert list((folder / "tools").iterdir()) == []
    assert "tools/.npmrc" in done.note
    assert "tools got the permissions u+rwx again" in done.note


@not_for_root
@pytest.mark.parametrize("name", [".git", ".git/info", ".git/hooks", "."])
async def test_an_unreadable_folder_opens_no_way_to_the_settings_of_git(
    repository: Path, name: str
) -> None:
    (repository / ".git/info/attributes").write_text("ours\n")
    config = (repository / ".git/config").read_text()
    evil = "for f in config info/attributes hooks/pre-commit; do echo x >> .git/$f; done"
    async with opened(repository, sandbox=True) as workspace:
        await workspace.run(f"chmod 0 {name}")
        await workspace.run(f"chmod 755 {name}; {evil}")
        loop = await workspace.start(f"while :; do chmod 311 {name}; done; chmod 755 {name}")
        for _ in range(5):
            with contextlib.suppress(WorkspaceError):
                await workspace.run(f"chmod 755 {name}; {evil}")
        await loop.kill()
        (repository / name).chmod(0o755)
    assert (repository / ".git/config").read_text() == config
    assert (repository / ".git/info/attributes").read_text() == "ours\n"
    assert not (repository / ".git/hooks/pre-commit").exists()


@not_for_root
async def test_a_folder_that_the_user_made_unreadable_stays_so_and_is_hidden(folder: Path) -> None:
    (folder / "locked").mkdir()
    (folder / "locked/.npmrc").write_text("ours")
    (folder / "locked").chmod(0o311)
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("chmod 755 locked; echo x > locked/.npmrc; mkdir locked/a")
        again = await workspace.run("true")
    assert (folder / "locked").stat().st_mode & 0o777 == 0o311
    assert (folder / "locked/.npmrc").read_text() == "ours"
    assert not (folder / "locked/a").exists()
    assert "locked cannot be listed, so it is hidden from commands" in done.note
    assert again.note == ""


@not_for_root
async def test_in_a_folder_that_cannot_be_listed_no_command_runs(folder: Path) -> None:
    async with opened(folder, sandbox=True) as workspace:
        folder.chmod(0o311)
        with pytest.raises(WorkspaceError, match=r"cannot be listed.*chmod u\+rx"):
            await workspace.run("true")
        folder.chmod(0o755)
        assert (await workspace.run("true")).exit_code == 0


async def test_a_path_that_is_too_long_to_be_checked_is_hidden(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_scan, "RACY_NS", -(10**18))  # no folder is listed twice in doubt
    deep = (
        "n=$(printf 'a%.0s' {1..200}); for i in {1..25}; do mkdir $n; cd $n; done; echo x > .npmrc"
    )
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run(deep)
        done = await workspace.run("echo still")
    assert done.output == "still\n"
    assert "cannot be listed" in done.note


async def test_moving_away_follows_no_symlink_out_of_the_folder(
    folder: Path, own_place: Path
) -> None:
    (own_place / "theirs/.vscode").mkdir(parents=True)
    (folder / "a/.vscode").mkdir(parents=True)
    (folder / "a/.vscode").rename(folder / "b")
    (folder / "a").rmdir()
    (folder / "a").symlink_to(own_place / "theirs")
    with pytest.raises(OSError, match="Not a directory"):
        set_aside(f"{folder}/a/.vscode", str(folder), str(own_place / "aside"))
    assert (own_place / "theirs/.vscode").is_dir()


async def test_protected_files_stay_readable_and_unchanged_while_another_command_runs(
    repository: Path,
) -> None:
    git(repository, "init", "-q", "app")
    for name in (".npmrc", ".vscode/tasks.json", "app/.npmrc", "app/.vscode/tasks.json"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("ours\n")
    evil = "for f in .npmrc .vscode/tasks.json .git/config; do echo x >> $f; echo x >> app/$f; done"
    async with opened(repository, sandbox=True) as workspace:
        running = await workspace.start("sleep 60")
        await workspace.write("app/.envrc", b"ours\n")
        done = await workspace.run(f"cat .npmrc .vscode/* app/.npmrc; {evil}; echo x >> app/.envrc")
        status = await workspace.run("cd app && git status --short; git -C .. log 2>&1 | head -1")
        await running.kill()
    assert done.output.startswith("ours\n" * 3)
    for name in (".npmrc", ".vscode/tasks.json", "app/.npmrc", "app/.vscode/tasks.json"):
        assert (repository / name).read_text() == "ours\n"
    assert (repository / "app/.envrc").read_text() == "ours\n"
    assert "x" not in (repository / "app/.git/config").read_text()
    assert "?? .npmrc" in status.output


def test_a_folder_that_is_swapped_for_a_symlink_shows_nothing_else(
    folder: Path, own_place: Path
) -> None:
    for place in (folder / "a", own_place / "home"):
        (place / ".ssh").mkdir(parents=True)
        (place / ".npmrc").write_text("secret")
    protection = ProtectedPaths(folder, own_place / "aside")
    entries = protection.begin(is_first=True)
    copies = own_place / "copies"
    copies.mkdir()
    stand_ins = StandIns(own_place / "stand_ins")
    assert len(make_mount_options(entries, [folder], stand_ins, copies)) == 9
    (folder / "a").rename(folder / "b")
    (folder / "a").symlink_to(own_place / "home")
    assert make_mount_options(entries, [folder], stand_ins, copies) == []


async def test_a_command_makes_nothing_that_others_can_see(repository: Path) -> None:
    async with opened(repository, sandbox=True) as workspace:
        done = await workspace.run("ls -A . .git")
        running = await workspace.start("sleep 60")
        during = sorted(path.name for path in repository.iterdir())
        await running.kill()
    assert ".vscode" not in done.output
    assert "modules" not in done.output
    assert during == [".git"]


AGENT = (
    "import asyncio, pathlib, sys; from treadle.workspace.local import *\n"
    "async def main():\n"
    "    w = await LocalWorkspace.open(pathlib.Path(sys.argv[1]), WorkspaceOptions())\n"
    "    await w.run(sys.argv[2])\n"
    "asyncio.run(main())"
)
EVERYWHERE = (
    "for d in . a/b; do mkdir -p $d/.vscode $d/.cargo; touch $d/.npmrc $d/.vscode/tasks.json "
    "$d/.cargo/config.toml $d/x.code-workspace; done; git init -q a/r; chmod 311 a/b; "
)


async def start_agent(folder: Path, mark: str) -> asyncio.subprocess.Process:
    """An agent whose command has made settings and sleeps."""
    (folder / "a/ours").mkdir(parents=True)
    (folder / "a/ours/.npmrc").write_text("ours")
    argv = (sys.executable, "-c", AGENT, str(folder), f"{EVERYWHERE} sleep {mark}")
    agent = await asyncio.create_subprocess_exec(*argv)
    await seen(mark)
    return agent


def list_settings(folder: Path) -> list[str]:
    """What is there while another process moves it; `os.walk` passes over what is just gone."""
    found = [Path(top, name) for top, folders, files in os.walk(folder) for name in folders + files]
    names = [str(path.relative_to(folder)) for path in found]
    return sorted(name for name in names if find_protected_part(name) and ".git" not in name)


async def test_a_killed_agent_leaves_no_settings_that_its_command_made(folder: Path) -> None:
    """The agent is killed with -9; what its command made is gone as soon as the command is."""
    mark = marker()
    agent = await start_agent(folder, mark)
    agent.kill()
    await agent.wait()
    await gone(mark)
    await until(lambda: list_settings(folder) == ["a/ours/.npmrc"])  # as below
    await until(lambda: not (folder / "a/r/.git/config").exists())  # another process moves it
    done = await inside(folder, "true")
    assert done.note == ""


async def test_the_next_session_names_what_a_command_made_that_was_killed_with_everything(
    folder: Path,
) -> None:
    mark = marker()
    agent = await start_agent(folder, mark)
    pids = (agent.pid, *(pid for pid, _ in list_descendants(agent.pid)))
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none may act on the end of another
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    await agent.wait()
    await gone(mark)
    (folder / "a/b").chmod(0o755)
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("true")
        again = await workspace.run("true")
    assert "a session was killed here while a command ran, and .cargo/config.toml" in done.note
    assert "a/b/.npmrc" in done.note
    assert "ours" not in done.note
    assert (folder / "a/b/.npmrc").exists()
    assert again.note == ""


@pytest.mark.parametrize("place", [".", "dst"])
@pytest.mark.parametrize("option", ["", "--shared"])
async def test_a_clone_of_a_repository_of_the_user_is_whole(
    folder: Path, own_place: Path, place: str, option: str
) -> None:
    other = own_place / "other"
    files = {".husky/pre-commit": "x\n", ".vscode/a.json": "{}", "web/.npmrc": "a=b\n", "b": "c\n"}
    make_commit(other, files)
    async with opened(folder, sandbox=True, readable=(other,)) as workspace:
        done = await workspace.run(f"git clone -q {option} {other} {place}")
        status = await workspace.run(f"git -C {place} status --short")
        evil = await workspace.run(f"cd {place}; cp b .npmrc; echo x > web/.envrc")
    assert BROUGHT in done.note  # a clone is named, whatever it was made from
    assert status.output == ""
    assert [name for name in files if not (folder / place / name).exists()] == []
    assert ".npmrc" in evil.note
    assert not (folder / place / "web/.envrc").exists()


EVIL_CLONE = (
    "git init -q {0}; cd {0}; echo x > .npmrc; git add -A; "
    "git -c user.name=a -c user.email=b commit -qm evil; git remote add origin {1}"
)


@pytest.mark.parametrize("network", [False, True])
async def test_a_repository_that_a_command_made_up_is_no_clone(
    folder: Path, own_place: Path, network: bool
) -> None:
    make_commit(own_place / "other", {".npmrc": "ours\n"})
    for name, url in (("a", own_place / "other"), ("b", "/tmp/x"), ("c", "https://a.example/x")):
        (folder / name).mkdir()
        (folder / name / "file").touch()
        command = EVIL_CLONE.format(name, url)
        done = await inside(folder, command, readable=(own_place / "other",), network=network)
        assert f"{name}/.npmrc was moved to" in done.note
    command = "git init -q --bare /tmp/x; " + EVIL_CLONE.format("new", "/tmp/x")
    done = await inside(folder, f"{command}; git push -q origin HEAD")
    assert "new/.npmrc was moved to" in done.note


async def test_a_clone_from_the_network_stays_and_the_result_names_its_settings(
    folder: Path,
) -> None:
    done = await inside(folder, EVIL_CLONE.format("new", "https://a.example/x"), network=True)
    assert done.note == f"new/.npmrc {BROUGHT}"
    assert (folder / "new/.npmrc").exists()


async def test_git_init_and_clone_work_in_an_empty_folder(folder: Path, own_place: Path) -> None:
    other = own_place / "other"
    make_commit(other, {"README": "hello\n"})
    done = await inside(folder, f"git clone -q {other} . && git log --format=%s", readable=(other,))
    assert (done.exit_code, done.output) == (0, "one\n")
    assert (folder / ".git/config").exists()
    done = await inside(
        folder, "git init -q new && cd new && git config user.name me && git status"
    )
    assert done.exit_code == 0
    assert done.note == ""
    assert (folder / "new/.git/config").exists()


@pytest.mark.parametrize(
    "evil",
    [
        "git config core.fsmonitor ./x",
        "git config alias.status '!./x'",
        "printf '[include]\n\tpath=../x\n' >> .git/config",
        "echo ./x > .git/hooks/pre-commit",
        "mkdir e; mv .git e/g; echo 'gitdir: e/g' > .git",
        "mkdir -p .git/modules/m; echo ref > .git/modules/m/HEAD; "
        "printf '[core]\n\tfsmonitor=./x\n' > .git/modules/m/config",
        "mkdir -p .git/modules/m; printf '[core]\n\tfsmonitor=./x\n' > .git/modules/m/config",
        "mkdir -p .git/modules/m/hooks; echo ./x > .git/modules/m/hooks/post-checkout",
    ],
)
async def test_a_repository_that_a_command_makes_runs_nothing(folder: Path, evil: str) -> None:
    done = await inside(folder, f"git init -q . && {{ {evil}; }}")
    assert "was moved to" in done.note
    config = folder / ".git/config"
    assert not config.exists() or "x" not in config.read_text()
    assert not (folder / ".git/hooks/pre-commit").exists()
    assert not (folder / ".git/modules/m/config").exists()
    assert not (folder / ".git/modules/m/hooks/post-checkout").exists()
    assert not (folder / ".git").is_file()


@pytest.mark.parametrize(
    "text",
    [
        '[pager]\\n#\\r[branch "x"]\\n\\tremote = touch x; cat\\n',
        '[pager]\\n#\\r[branch "x"]\\r\\n\\tremote = touch x; cat\\n',
        "[alias]\\n;\\f[user]\\n\\tname = !x\\n",
        "[alias]\\n;\\302\\205[user]\\n\\tname = !x\\n",
        '[remote "o"]\\n\\turl = ext:":"sh -c x\\n',
        '[remote "o"]\\n\\turl = "ext:":"sh -c x"\\n',
        '[remote "o"]\\n\\turl = ext:\\\\\\n:sh -c x\\n',
        "[core]\\n\\tbare = false\\n[user] name = a\\n[include] path = x\\n",
    ],
)
async def test_settings_of_git_are_read_as_git_reads_them(folder: Path, text: str) -> None:
    done = await inside(folder, f"git init -q .; printf '{text}' >> .git/config")
    assert ".git/config was moved to" in done.note
    done = await inside(folder, "git init -q a; git -C a remote add o 'a b/c#d'; git -C a status")
    assert (done.exit_code, done.note) == (0, "")


@pytest.mark.parametrize("packed", [False, True])
async def test_a_checkout_brings_the_settings_that_the_repository_had(
    folder: Path, packed: bool
) -> None:
    make_commit(folder, {"README": "x"})
    git(folder, "checkout", "-q", "-b", "feature")
    make_commit(folder, {".vscode/settings.json": "{}", ".npmrc": "a=b\n"})
    git(folder, "checkout", "-q", "-")
    if packed:
        git(folder, "gc", "-q")
    done = await inside(folder, "git checkout -q feature && git status --short")
    assert (done.exit_code, done.output) == (0, "")
    assert done.note.endswith(BROUGHT)
    assert all(name in done.note for name in (".vscode/settings.json", ".npmrc"))
    assert (folder / ".vscode/settings.json").read_text() == "{}"


async def test_a_commit_of_this_session_is_no_way_to_settings(folder: Path) -> None:
    make_commit(folder, {"README": "x"})
    async with opened(folder, sandbox=True) as workspace:
        blob = "$(echo evil | git hash-object -w --stdin)"
        index = f"git update-index --add --cacheinfo 100644,{blob},.npmrc"
        await workspace.run(f"{index}; git -c user.name=a -c user.email=b commit -qm evil")
        done = await workspace.run("git checkout -q -f HEAD; ls -A")
    assert ".npmrc" in done.note
    assert not (folder / ".npmrc").exists()


@pytest.mark.parametrize("packed", [False, True])
async def test_a_copy_of_a_tracked_file_is_no_way_to_settings(folder: Path, packed: bool) -> None:
    make_commit(folder, {"docs/sample.txt": "x\n", "web/.npmrc": "x\n"})
    if packed:
        git(folder, "gc", "-q")
    names = (
        ".vscode/tasks.json",
        ".mcp.json",
        ".npmrc",
        ".husky/pre-commit",
        "s/.cargo/config.toml",
    )
    copy = "mkdir -p $(dirname $f); cp docs/sample.txt $f"
    done = await inside(folder, f"for f in {' '.join(names)}; do {copy}; done")
    assert [name for name in names if (folder / name).exists()] == []
    assert all(name in done.note for name in (".vscode", ".mcp.json", ".npmrc", ".cargo"))
    assert (folder / "web/.npmrc").exists()


async def test_a_symlink_with_the_text_of_a_tracked_file_is_no_way_to_settings(
    folder: Path,
) -> None:
    make_commit(folder, {"README": "x", ".npmrc": "../evil"})
    git(folder, "rm", "-q", ".npmrc")
    git(folder, "commit", "-qm", "two")
    done = await inside(folder, "ln -s ../evil .npmrc")
    assert ".npmrc was moved to" in done.note


async def test_a_forged_object_is_no_way_to_settings(folder: Path) -> None:
    """Commands can write to the object files, but not choose their hashes."""
    make_commit(folder, {"README": "x\n", ".npmrc": "ours\n"})
    git(folder, "rm", "-q", ".npmrc")
    git(folder, "commit", "-qm", "two")
    forge = (
        "t=$(git rev-parse HEAD~^{tree}); f=.git/objects/${t:0:2}/${t:2}; echo evil > .npmrc; "
        "git add .npmrc README; e=$(git write-tree); chmod u+w $f; "
        "cat .git/objects/${e:0:2}/${e:2} > $f"
    )
    done = await inside(folder, forge)
    assert ".npmrc was moved to" in done.note
    assert not (folder / ".npmrc").exists()


async def test_settings_of_old_commits_come_back_after_the_objects_were_repacked(
    folder: Path,
) -> None:
    for number in range(12):
        text = "".join(f"{number * (line % 3)} {line}\n" for line in range(200))
        make_commit(folder, {f"{number}.txt": text, ".vscode/settings.json": text})
    git(folder, "rm", "-q", "-r", ".vscode")
    git(folder, "commit", "-qm", "removed")
    done = await inside(folder, "git gc -q && git checkout -q HEAD~7 && git status --short")
    assert (done.exit_code, done.output) == (0, "")
    assert done.note == f".vscode/settings.json {BROUGHT}"
    assert (folder / ".vscode/settings.json").exists()


async def test_a_checkout_in_an_inner_repository_brings_its_settings(folder: Path) -> None:
    make_commit(folder / "app", {"README": "x"})
    git(folder / "app", "checkout", "-q", "-b", "feature")
    make_commit(folder / "app", {".npmrc": "a=b\n"})
    git(folder / "app", "checkout", "-q", "-")
    done = await inside(folder, "cd app && git checkout -q feature && git status --short")
    assert (done.exit_code, done.output) == (0, "")
    assert done.note == f"app/.npmrc {BROUGHT}"
    assert (folder / "app/.npmrc").exists()


async def test_settings_that_a_tool_wrote_with_approval_stay(folder: Path) -> None:
    async with opened(folder, sandbox=True) as workspace:
        running = await workspace.start("sleep 60")
        await workspace.write(".vscode/settings.json", b"{}")
        await workspace.run("true")
        await running.kill()
    assert (folder / ".vscode/settings.json").read_text() == "{}"


async def test_a_command_may_change_the_memory_files_and_its_result_says_so(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("old\n")
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("echo new >> AGENTS.md; mkdir a; echo x > a/CLAUDE.md")
        rules = await workspace.run(
            "mkdir .github; touch .cursorrules .github/copilot-instructions.md"
        )
        quiet = await workspace.run("cat AGENTS.md")
    assert (folder / "AGENTS.md").read_text() == "old\nnew\n"
    assert "AGENTS.md, a/CLAUDE.md was changed" in done.note
    assert ".cursorrules, .github/copilot-instructions.md was changed" in rules.note
    assert quiet.note == ""


async def test_git_reads_the_repository_above_a_subfolder(own_place: Path) -> None:
    top = own_place / "home/project"
    make_commit(top, {"sub/a": "1\n", "secret": "outside"})
    command = "git log --format=%s; echo 2 > a; git diff --stat -- .; ls -A ..; git add a"
    done = await inside(top / "sub", command)
    lines = done.output.splitlines()
    assert lines[0] == "one"
    assert "1 insertion" in done.output
    assert "secret" not in done.output
    assert "Read-only file system" in done.output


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("linked", [False, True])
async def test_in_a_subfolder_git_calls_no_file_above_it_deleted(
    own_place: Path, version: str, linked: bool
) -> None:
    top = own_place / "home/project"
    make_commit(top, {"sub/a": "1\n", "sub/b": "1\n", "README": "x\n", "other/c": "1\n"})
    if linked:
        git(top, "worktree", "add", "-q", "../linked")
        top = own_place / "home/linked"
    git(top, "update-index", "--index-version", version)
    async with opened(top / "sub", sandbox=True) as workspace:
        clean = await workspace.run("git status --short; git diff --stat")
        changed = await workspace.run("echo 2 > a; rm b; git status --short")
        make_commit(top, {"other/d": "1\n"})
        later = await workspace.run("git status --short; git ls-files ../other")
        inner = await workspace.run("git init -q new; cd new; touch x; git add x; git status -s")
    assert clean.output == ""
    assert changed.output == " M a\n D b\n"
    assert inner.output == "A  x\n"
    assert later.output.splitlines() == ["../other/c", "../other/d"]


async def test_git_reads_the_repository_of_a_linked_worktree(own_place: Path) -> None:
    main, linked = own_place / "home/main", own_place / "home/linked"
    make_commit(main, {"a": "1\n"})
    git(main, "worktree", "add", "-q", str(linked))
    done = await inside(linked, "git status --short; git log --format=%s; echo evil > .git")
    assert done.output.splitlines()[0] == "one"
    assert (linked / ".git").read_text().startswith("gitdir:")
    done = await inside(linked, f"echo x > {main}/.git/hooks/pre-commit; ls -A {main}")
    assert done.output.splitlines()[-1] == ".git"
    assert not (main / ".git/hooks/pre-commit").exists()


async def test_no_command_forgets_a_linked_worktree_that_it_does_not_see(own_place: Path) -> None:
    main, linked, gone = (own_place / "home" / name for name in ("main", "linked", "gone"))
    make_commit(main, {"a": "1\n"})
    git(main, "worktree", "add", "-q", str(linked))
    git(main, "worktree", "add", "-q", str(gone))
    shutil.rmtree(gone)
    (linked / "secret").write_text("secret")
    done = await inside(main, f"git worktree prune; git worktree list; ls -A {linked}")
    assert [path.name for path in (main / ".git/worktrees").iterdir()] == ["linked"]
    assert done.output.splitlines()[-1] == ".git"
    private = own_place / "home/private"
    private.mkdir()
    (private / ".git").write_text("secret")
    lie = f"echo {private}/.git > .git/worktrees/linked/gitdir"
    async with opened(main, sandbox=True) as workspace:
        await workspace.run(lie)
        assert "No such file" in (await workspace.run(f"cat {private}/.git")).output


async def test_a_git_file_of_a_project_shows_no_other_folder(own_place: Path) -> None:
    home = own_place / "home"
    make_commit(home / "private", {"a": "secret\n"})
    evil = home / "evil"
    (evil / "g").mkdir(parents=True)
    (evil / ".git").write_text(f"gitdir: {home}/private/.git\n")
    done = await inside(evil, f"ls {home}/private/.git")
    assert "No such file" in done.output
    (evil / ".git").write_text("gitdir: g\n")
    (evil / "g/gitdir").write_text(f"{evil}/.git\n")
    (evil / "g/commondir").write_text(f"{home}/private/.git\n")
    done = await inside(evil, f"ls {home}/private/.git")
    assert "No such file" in done.output


async def test_git_works_inside(repository: Path) -> None:
    who = "-c user.name=a -c user.email=a@b.c"
    done = await inside(
        repository,
        f"echo 1 > f && git add f && git {who} commit -qm one ; git status -s; git log --format=%s",
    )
    assert done.exit_code == 0
    assert done.output.endswith("one\n")
    assert sorted(p.name for p in repository.iterdir()) == [".git", "f"]


async def test_a_common_dir_that_would_redirect_git_is_removed(repository: Path) -> None:
    done = await inside(repository, "mkdir evil; echo ../evil > .git/commondir")
    assert not (repository / ".git/commondir").exists()
    assert "commondir" in done.note


async def test_hooks_and_submodules_of_a_repository_are_protected_wherever_they_are(
    repository: Path,
) -> None:
    with (repository / ".git/config").open("a") as config:
        config.write("[core] hooksPath = .githooks # ours\n")
    (repository / ".githooks").mkdir()
    (repository / ".git/commondir").write_text("../left-by-a-killed-agent")
    done = await inside(repository, "echo x > .githooks/pre-commit")
    assert done.output.count("Read-only file system") == 1
    assert not (repository / ".githooks/pre-commit").exists()
    assert not (repository / ".git/commondir").exists()
    assert "commondir" in done.note


async def test_what_a_command_in_the_background_makes_does_not_become_the_users(
    repository: Path,
) -> None:
    again = "while :; do [ -e .git/commondir ] || echo ../evil > .git/commondir; sleep 0.01; done"
    async with opened(repository, sandbox=True) as workspace:
        running = await workspace.start(again)
        await until(lambda: (repository / ".git/commondir").exists())  # a real process
        for _ in range(3):
            await workspace.run("true")
        await running.kill()
        assert not (repository / ".git/commondir").exists()


async def test_a_protected_path_that_is_a_symlink_stays_what_it_is(folder: Path) -> None:
    (folder / "shared").mkdir()
    (folder / "shared/settings.json").write_text("ours")
    (folder / ".treadle").symlink_to("shared")
    evil = "echo x > shared/settings.json; rm .treadle; mkdir .treadle; echo x > .treadle/a"
    done = await inside(folder, evil)
    assert "Read-only file system" in done.output
    assert ".treadle" in done.note
    assert (folder / ".treadle/settings.json").read_text() == "ours"
    assert (folder / ".treadle").readlink() == Path("shared")


async def test_many_new_repositories_take_no_protection_from_what_was_there(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "MAX_MOUNTS", 12)
    (repository / "deep/er/.vscode").mkdir(parents=True)
    for name in (".npmrc", "deep/er/.vscode/tasks.json"):
        (repository / name).write_text("ours")
    config = (repository / ".git/config").read_bytes()
    async with opened(repository, sandbox=True) as workspace:
        await workspace.run("for i in {1..20}; do git init -q z$i; done")
        done = await workspace.run(
            "for f in .git/config .npmrc deep/er/.vscode/tasks.json z{1..20}/.git/config; do"
            " printf '[core]\\n\\tfsmonitor = evil\\n' >> $f; done"
        )
    assert (repository / ".git/config").read_bytes() == config
    assert (repository / ".npmrc").read_text() == "ours"
    assert (repository / "deep/er/.vscode/tasks.json").read_text() == "ours"
    made = [repository / f"z{number}/.git/config" for number in range(1, 21)]
    assert not any("evil" in path.read_text() for path in made if path.exists())
    assert "was moved to" in done.note


@pytest.mark.parametrize(
    "command",
    [
        "echo evil > AGENTS.md; mv AGENTS.md .mcp.json",
        "echo evil > a/CLAUDE.md/tasks.json; mv a/CLAUDE.md .vscode",
        "echo evil > GEMINI.md; mv GEMINI.md .envrc",
    ],
)
async def test_a_memory_file_under_a_protected_name_is_moved_away(
    folder: Path, command: str
) -> None:
    (folder / "AGENTS.md").write_text("ours")
    (folder / "a/CLAUDE.md").mkdir(parents=True)
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run("echo x > GEMINI.md")
        done = await workspace.run(command)
    named = command.rpartition(" ")[2]
    assert f"{named} was moved to" in done.note
    assert not (folder / named).exists()


async def test_a_rename_by_a_running_command_makes_no_settings_writable(folder: Path) -> None:
    (folder / "tools/.vscode").mkdir(parents=True)
    (folder / "tools/.npmrc").write_text("ours")
    (folder / "tools/.vscode/tasks.json").write_text("ours")
    git(folder, "init", "-q", "tools/repo")
    config = (folder / "tools/repo/.git/config").read_bytes()
    async with opened(folder, sandbox=True) as workspace:
        await workspace.start(
            "mv tools t2; touch moved; until [ -e go ]; do sleep 0.01; done;"
            " rm -rf tools; mv t2 tools; touch done; sleep 100"
        )
        await until(lambda: (folder / "moved").exists())  # a real process
        await workspace.run(
            "for f in .npmrc .vscode/tasks.json repo/.git/config repo/.git/hooks/pre-commit; do"
            " echo evil >> t2/$f; done; touch go; until [ -e done ]; do sleep 0.01; done"
        )
        await workspace.run("true")
    assert (folder / "tools/.npmrc").read_text() == "ours"
    assert (folder / "tools/.vscode/tasks.json").read_text() == "ours"
    assert (folder / "tools/repo/.git/config").read_bytes() == config
    assert not (folder / "tools/repo/.git/hooks/pre-commit").exists()


async def test_settings_in_a_folder_that_is_renamed_to_a_generated_one_stay_the_users(
    folder: Path,
) -> None:
    (folder / "tools/.vscode").mkdir(parents=True)
    (folder / "tools/.npmrc").write_text("ours")
    (folder / "tools/.vscode/tasks.json").write_text("ours")
    async with opened(folder, sandbox=True) as workspace:
        notes = [
            (await workspace.run(command)).note
            for command in (
                "mv tools node_modules",
                "echo evil > node_modules/.npmrc; echo evil > node_modules/.vscode/tasks.json",
                "mv node_modules tools",
            )
        ]
    assert not any("was moved to" in note for note in notes)
    assert (folder / "tools/.npmrc").read_text() == "ours"
    assert (folder / "tools/.vscode/tasks.json").read_text() == "ours"


async def test_what_a_tool_installs_into_a_generated_folder_stays(folder: Path) -> None:
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run("mkdir build")
        done = await workspace.run(
            "rmdir build; mkdir -p node_modules/p/.vscode; echo x > node_modules/p/.npmrc"
        )
        done = await workspace.run("touch node_modules/p/more")
    assert done.note == ""
    assert (folder / "node_modules/p/.npmrc").exists()


@pytest.mark.parametrize(
    "evil",
    [
        "echo $PWD/ev > .git/worktrees/tree/commondir",
        "rm .git/worktrees/tree/commondir; ln -s ../../../ev .git/worktrees/tree/commondir",
        "mv .git/worktrees .git/w2; cp -r .git/w2 .git/worktrees;"
        " echo $PWD/ev > .git/worktrees/tree/commondir",
        "cp -r .git/worktrees w2; echo $PWD/ev > w2/tree/commondir; mv .git/worktrees .git/w2;"
        " ln -s ../w2 .git/worktrees",
        "cp -r .git/worktrees/tree w2; echo $PWD/ev > w2/commondir;"
        " mv .git/worktrees/tree .git/worktrees/t2; ln -s ../../w2 .git/worktrees/tree",
        "git config -f .git/worktrees/tree/config.worktree core.fsmonitor $PWD/evil",
    ],
)
async def test_a_linked_worktree_runs_nothing_that_a_command_wrote(
    folder: Path, own_place: Path, evil: str
) -> None:
    make_commit(folder, {"f": "1"})
    git(folder, "config", "extensions.worktreeConfig", "true")
    git(folder, "worktree", "add", "-q", str(own_place / "tree"))
    (folder / "evil").write_text(f"#!/bin/sh\ntouch {own_place}/ran\n")
    (folder / "evil").chmod(0o755)
    copy = "mkdir ev; cp -r .git/objects .git/refs .git/HEAD .git/worktrees ev"
    config = "git config -f ev/config core.repositoryformatversion 0"
    done = await inside(
        folder, f"{copy}; {config}; git config -f ev/config core.fsmonitor $PWD/evil; {evil}"
    )
    assert "was moved to" in done.note
    words = ["git", "status"]
    await asyncio.to_thread(subprocess.run, words, cwd=own_place / "tree", check=False)
    assert not (own_place / "ran").exists()


async def test_a_linked_worktree_can_be_made_used_and_removed(folder: Path) -> None:
    make_commit(folder, {"f": "1"})
    who = "git -c user.name=a -c user.email=a@b.c"
    async with opened(folder, sandbox=True) as workspace:
        for command in (
            "git worktree add -q wt -b nb",
            f"cd wt && echo 2 > f && {who} commit -qam two && git status",
            "git worktree remove wt && git worktree list",
        ):
            done = await workspace.run(command)
            assert (done.exit_code, done.note) == (0, ""), done.output
    assert not (folder / ".git/worktrees/wt").exists()


async def test_what_a_protected_symlink_names_is_protected_too(repository: Path) -> None:
    for name in ("conf", "scripts", "skills", ".vscode", ".claude", "src"):
        (repository / name).mkdir()
    (repository / "conf/tasks.json").write_text("ours")
    (repository / "scripts/check").write_text("ours")
    (repository / "skills/one.md").write_text("ours")
    (repository / "AGENTS.md").write_text("ours")
    links = {
        ".vscode/tasks.json": "../conf/tasks.json",
        ".envrc": "conf/envrc",
        ".idea": "conf/none",
        ".git/hooks/pre-commit": "../../scripts/check",
        ".claude/skills": "../skills",
        ".claude/CLAUDE.md": "../AGENTS.md",
        ".claude/top": "..",
    }
    for link, target in links.items():
        (repository / link).symlink_to(target)
    async with opened(repository, sandbox=True) as workspace:
        done = await workspace.run(
            "echo evil > conf/tasks.json; echo evil > scripts/check; echo evil > skills/one.md;"
            "mv conf c2; echo evil > conf/envrc; mkdir conf/none; echo evil > conf/none/a.xml;"
            "echo new > AGENTS.md; echo new > src/a.py"
        )
        last = await workspace.run("true")
    for name in ("conf/tasks.json", "scripts/check", "skills/one.md"):
        assert (repository / name).read_text() == "ours"
    for name in ("conf/envrc", "conf/none"):
        assert name in done.note
        assert not (repository / name).exists()
    for name in ("AGENTS.md", "src/a.py"):
        assert (repository / name).read_text() == "new\n"
    assert last.note == ""


async def test_a_symlink_that_a_command_makes_protects_and_moves_nothing_else(
    folder: Path,
) -> None:
    (folder / "src").mkdir()
    (folder / "src/a.py").write_text("ours")
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("ln -s src .vscode; mkdir .idea; ln -s ../src .idea/src")
        again = await workspace.run("echo new > src/a.py")
    assert ".vscode" in done.note
    assert ".idea" in done.note
    assert (again.exit_code, again.note) == (0, "")
    assert (folder / "src/a.py").read_text() == "new\n"


@pytest.mark.parametrize("command", ["git worktree add -q wt -b nb", "git clone -q . wt"])
async def test_a_worktree_or_clone_inside_keeps_the_settings_that_the_repository_had(
    folder: Path, command: str
) -> None:
    make_commit(folder, {".vscode/tasks.json": "ours", ".husky/pre-commit": "ours", "f": "1"})
    git(folder, "branch", "feat")
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run(command)
        assert (done.exit_code, "was moved to" in done.note) == (0, False), done.output
        done = await workspace.run("git -C wt status --short")
        assert (done.output, done.note) == ("", "")
        evil = "mkdir wt/.idea; echo evil > wt/.idea/a.xml; echo evil > wt/.vscode/tasks.json"
        done = await workspace.run(f"{evil}; rm -rf wt/.vscode; cp -r wt/.idea wt/.vscode")
    assert "wt/.idea" in done.note
    assert not (folder / "wt/.idea").exists()
    assert (folder / "wt/.vscode/tasks.json").read_text() == "ours"


async def test_a_made_up_worktree_or_clone_brings_no_settings(folder: Path) -> None:
    make_commit(folder, {".vscode/tasks.json": "ours", "f": "1"})
    evil = (
        "git clone -q . cl; cd cl; echo evil > .vscode/tasks.json; git add -A;"
        "git -c user.name=a -c user.email=b commit -qm evil; git checkout -q .; cd ..;"
        "mkdir wt; echo gitdir: $PWD/.git/worktrees/x > wt/.git; cp -r cl/.vscode wt"
    )
    done = await inside(folder, evil)
    assert not (folder / "cl/.vscode/tasks.json").exists()
    assert not (folder / "wt/.vscode/tasks.json").exists()
    assert "was moved to" in done.note


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("git config user.name x", ".git/config"),
        ("git remote add up /x", ".git/config"),
        ("git checkout -q feat", ".husky"),
        ("echo x > web/.npmrc", "web/.npmrc"),
        ("rm -rf .husky; echo", ".husky"),
        ("rm -rf web; echo", "web/.git, web/.npmrc"),
        ("echo x > /usr/x; ls .husky", ""),
    ],
)
async def test_the_result_says_why_a_protected_file_could_not_be_changed(
    folder: Path, command: str, named: str
) -> None:
    make_commit(folder, {".husky/pre-commit": "one", "f": "1", "web/.npmrc": "ours"})
    git(folder, "checkout", "-qb", "feat")
    make_commit(folder, {".husky/pre-commit": "two"})
    git(folder, "checkout", "-q", "-")
    (folder / "web/.git").mkdir()
    done = await inside(folder, command)
    expected = f"the sandbox keeps {named} as it is" if named else ""
    assert expected in done.note
    assert bool(done.note) == bool(named)


async def test_a_rebase_that_a_command_leaves_runs_no_command_of_it(repository: Path) -> None:
    make_commit(repository, {"f": "1"})
    make_commit(repository, {"f": "2"})
    git(repository, "config", "user.name", "a")
    git(repository, "config", "user.email", "b")
    start = "git -c sequence.editor='sed -i s/^pick/edit/' rebase -q -i HEAD~1"
    todo = ".git/rebase-merge/git-rebase-todo"
    async with opened(repository, sandbox=True) as workspace:
        done = await workspace.run(f"{start}; git status; git rebase -q --abort; {start}")
        assert done.note == ""
        done = await workspace.run(f"echo 'exec touch ran' > {todo}")
        assert f"{todo} was moved to" in done.note
        assert not (repository / todo).exists()
        (repository / todo).write_text("exec touch users\nexec true\n")
        done = await workspace.run(f"sed -i 1d {todo}")
        assert done.note == ""
        done = await workspace.run(f"echo '  x touch ran' >> {todo}")
        assert f"{todo} was moved to" in done.note


async def test_a_state_that_a_command_leaves_names_no_program_as_strategy(
    repository: Path,
) -> None:
    files = {
        ".git/rebase-merge/strategy": ("../../x", "ort"),
        ".git/sequencer/opts": ("[options]\n\tstrategy = ../../x ; y", "[options]\n\tedit = true"),
    }
    async with opened(repository, sandbox=True) as workspace:
        for name, (evil, usual) in files.items():
            done = await workspace.run(f"mkdir -p {Path(name).parent}; echo '{evil}' > {name}")
            assert f"{name} was moved to" in done.note
            assert not (repository / name).exists()
            done = await workspace.run(f"echo '{usual}' > {name}")
            assert done.note == ""
            assert (repository / name).exists()


async def test_a_lock_that_a_command_leaves_does_not_keep_git_from_its_settings(
    repository: Path,
) -> None:
    users = repository / ".git/config.worktree.lock"
    users.touch()
    async with opened(repository, sandbox=True) as workspace:
        done = await workspace.run("git config a.b c; git status")
        assert "was moved" not in done.note  # git removes its own lock
        done = await workspace.run("cp .git/config .git/config.lock; echo x > .gitmodules.lock")
    for name in (".git/config.lock", ".gitmodules.lock"):
        assert name in done.note
        assert not (repository / name).exists()
    assert users.exists()
    git(repository, "config", "user.name", "a")


async def test_a_commit_of_an_earlier_session_does_not_bring_settings_unnamed(
    folder: Path,
) -> None:
    make_commit(folder, {"f": "1"})
    who = "-c user.name=a -c user.email=b"
    made = await inside(
        folder,
        "echo evil > .npmrc; git add .npmrc; git checkout -q -b evil;"
        f" git {who} commit -qm x; git checkout -q -; ls -A",
    )
    assert ".npmrc" not in made.output
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("git checkout -q evil")
        again = await workspace.run("git checkout -q -; git checkout -q evil")
    assert done.note == f".npmrc {BROUGHT}"
    assert BROUGHT not in again.note


async def test_a_protected_file_that_changes_while_several_commands_run_is_named(
    folder: Path,
) -> None:
    (folder / "a/.vscode").mkdir(parents=True)
    (folder / "a/.npmrc").write_text("ours")
    (folder / "a/.vscode/tasks.json").write_text("ours")
    async with opened(folder, sandbox=True) as workspace:
        await workspace.start("sleep 100")
        quiet = await workspace.run("true")
        wait = "touch started; until [ -e go ]; do sleep 0.01; done"
        running = asyncio.create_task(workspace.run(wait))
        await until(lambda: (folder / "started").exists())  # a real process
        for name in ("a/.npmrc", "a/.vscode/tasks.json", "a/.vscode/new.json"):
            (folder / name).write_text("by the user, or by a command that was faster")
        (folder / "go").touch()
        done = await running
        again = await workspace.run("true")
    for name in ("a/.npmrc", "a/.vscode/tasks.json", "a/.vscode/new.json"):
        assert name in done.note
    assert "although it is protected" in done.note
    assert (quiet.note, again.note) == ("", "")


@pytest.mark.parametrize(
    ("setting", "value", "name"),
    [
        ("include.path", "../incl.cfg", "incl.cfg"),
        ("includeIf.gitdir:/.path", "../sub/more.cfg", "sub/more.cfg"),
        ("core.fsmonitor", "./tools/watch.sh --fast", "tools/watch.sh"),
        ("core.hooksPath", "our hooks", "our hooks/pre-commit"),
        ("core.sshCommand", "tools/ssh.sh -v", "tools/ssh.sh"),
        ("filter.lfs2.clean", "./tools/clean.sh %f", "tools/clean.sh"),
        ("diff.pdf.textconv", "tools/text.sh", "tools/text.sh"),
        ("alias.deploy", "!sh tools/deploy.sh", "tools/deploy.sh"),
        ("credential.helper", "!'tools/login.sh'", "tools/login.sh"),
    ],
)
async def test_what_the_configuration_of_git_reads_or_runs_in_the_folder_is_protected(
    repository: Path, setting: str, value: str, name: str
) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("")
    git(repository, "config", setting, value)
    await inside(repository, f"echo '[core] fsmonitor = touch pwned' > '{name}'")
    assert (repository / name).read_text() == ""


@pytest.mark.parametrize("place", ["worktree", "worktree inside", "nested", "below", "included"])
async def test_the_configuration_of_repositories_around_and_inside_counts(
    repository: Path, place: str
) -> None:
    work = {"worktree inside": "wt", "nested": "n"}.get(place, ".")
    config = "[core]\n\tsshCommand = ./tools/ssh\n\thooksPath = our/hooks\n"
    if place == "included":
        (repository / "more").write_text(config)
        config = "[include]\n\tpath = ../more\n"
    opened_folder = repository
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    if place == "worktree":
        git(repository, "worktree", "add", "-q", "../wt")
        opened_folder = repository.parent / "wt"
    elif place == "worktree inside":
        git(repository, "worktree", "add", "-q", "wt")
    with (repository / ".git/config").open("a") as file:
        file.write(config if place != "nested" else "")
    if place == "nested":
        git(repository, "init", "-q", "n")
        with (repository / "n/.git/config").open("a") as file:
            file.write(config)
    elif place == "below":
        text = (repository / ".git/config").read_text()
        text = text.replace("./tools", "sub/tools").replace("our/hooks", "sub/our/hooks")
        (repository / ".git/config").write_text(text)
        opened_folder = repository / "sub"
    (opened_folder / work / "tools").mkdir(parents=True)
    (opened_folder / work / "tools/ssh").write_text("ours")
    await inside(
        opened_folder,
        f"cd {work}; echo evil > tools/ssh; mkdir -p our/hooks; echo evil > our/hooks/pre-commit",
    )
    assert (opened_folder / work / "tools/ssh").read_text() == "ours"
    assert not (opened_folder / work / "our/hooks/pre-commit").exists()


@pytest.mark.parametrize(
    "make",
    ["git init -q made", "git clone -q . made", "git init -q made; git -C made worktree list"],
)
async def test_a_repository_that_a_command_made_can_be_removed_by_a_later_one(
    folder: Path, make: str
) -> None:
    git(folder, "init", "-q")
    async with opened(folder, sandbox=True) as workspace:
        assert (await workspace.run(make)).exit_code == 0
        assert (folder / "made/.git/config").exists()
        done = await workspace.run("rm -rf made")
    assert (done.exit_code, (folder / "made").exists()) == (0, False), done.output


async def test_settings_of_a_repository_that_a_command_made_are_looked_at_after_each_command(
    folder: Path,
) -> None:
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run("git init -q made")
        await workspace.run("git -C made config core.fsmonitor ./run")
        await workspace.run("echo true > made/.git/hooks/pre-commit; chmod +x made/.git/hooks/*")
    assert not (folder / "made/.git/config").exists()
    assert not (folder / "made/.git/hooks/pre-commit").exists()
