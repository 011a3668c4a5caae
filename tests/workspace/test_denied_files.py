# ruff: noqa: ASYNC240 - real files
"""Deny rules about files hold for sandboxed commands, whatever a command does."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.patience import until
from tests.workspace.helpers import needs_bubblewrap, not_for_root, opened
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.permissions.ruleset.path_patterns import compile_path_pattern
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions
from treadle.workspace.sandbox.mounts import MAX_DENIED
from treadle.workspace.sandbox.protected_paths import ProtectedPaths
from treadle.workspace.sandbox.tree_scan import HIDDEN, TreeScanner

pytestmark = needs_bubblewrap


async def run(
    root: Path, command: str, *, read: tuple[str, ...] = (), edit: tuple[str, ...] = ()
) -> CommandResult:
    async with opened(root, sandbox=True, denials=deny(root, read, edit)) as workspace:
        return await workspace.run(command)


def deny(root: Path, read: tuple[str, ...] = (), edit: tuple[str, ...] = ()) -> FileDenials:
    return FileDenials(
        tuple(compile_path_pattern(text, str(root), str(Path.home())) for text in read),
        tuple(compile_path_pattern(text, str(root), str(Path.home())) for text in edit),
    )


def put(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    "command",
    [
        "ls -a | xargs cat",
        "cat $(echo LmVudg== | base64 -d)",
        "cp .env x; cat x",
        "mv .env x; cat x",
        "ln .env x; cat x",
        "ln -s .env x; cat x",
        "tar c . | cat",
        "cat .env < .env; dd if=.env",
        "rm -f .env; git init -q; git add -A; git show :.env",
        "mv a b; cat b/.env",
        "cat /proc/self/cwd/.env /proc/self/root$PWD/.env",
        "python3 -c 'print(open(\".env\").read())'",
        "cat other/alias",
    ],
)
async def test_a_file_that_may_not_be_read_is_not_read_by_any_command(
    folder: Path, command: str
) -> None:
    put(folder, _env="KEY=secret", a___env="secret", main_py="TODO\n")
    (folder / "other").mkdir()
    os.link(folder / ".env", folder / "other/alias")
    done = await run(folder, command, read=(".env",))
    assert "secret" not in done.output
    assert ".env" in done.note
    assert (folder / ".env").read_text() == "KEY=secret"


@not_for_root
@pytest.mark.parametrize("mode", [0o311, 0o644, 0])
async def test_an_unreadable_folder_opens_no_way_to_what_may_not_be_read(
    folder: Path, mode: int
) -> None:
    put(folder, web__conf___env="secret", web__main_py="x", infra__main_tf="ours")
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",), ("*.tf",))) as space:
        for name in ("web", "web/conf", "infra"):
            await space.run(f"python3 -c 'import os; os.chmod(\"{name}\", {mode})'")
            evil = f"chmod 755 {name}; cat web/conf/.env; echo x > infra/main.tf"
            assert "secret" not in (await space.run(evil)).output
            hold = await space.start(f"chmod {mode:o} {name}; touch held; sleep 60")
            await until(lambda: (folder / "held").exists())  # a real process
            assert "secret" not in (await space.run(evil)).output
            await hold.kill()
            (folder / name).chmod(0o755)
            (folder / "held").unlink()
    assert (folder / "infra/main.tf").read_text() == "ours"


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "user.name=a", "-c", "user.email=b", *words]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    """A commit of all files; they are older than the index, so git need not read them again."""
    for path in folder.rglob("*"):
        os.utime(path, (10**9, 10**9))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")


@pytest.mark.parametrize("version", ["2", "4"])
async def test_git_works_with_a_tracked_file_that_may_not_be_read(
    folder: Path, version: str
) -> None:
    put(folder, _env="KEY=secret", a__b___env="secret", main_py="x\n")
    git(folder, "init", "-q")
    git(folder, "config", "index.version", version)
    commit(folder)
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    work = (
        "git status --short; git diff; echo y > main.py; git add -A; git commit -qm two; "
        "echo z > main.py; git stash -q; git stash pop -q; git commit -qam three; "
        "git checkout -q HEAD~1; git checkout -q -; git show --stat --format=%s; cat .env"
    )
    done = await run(folder, f"{who}; {work}", read=(".env",))
    lines = done.output.splitlines()
    assert lines[0] == "three"
    assert [line for line in lines if "|" in line] == [" main.py | 2 +-"]
    assert lines[-1] == "cat: .env: Permission denied"
    assert (folder / ".env").read_text() == "KEY=secret"
    assert git(folder, "status", "--short") == ""


async def test_git_commits_neither_a_changed_nor_a_new_file_that_may_not_be_read(
    folder: Path,
) -> None:
    put(folder, _env="KEY=old", main_py="x\n", keys__a_txt="secret")
    git(folder, "init", "-q")
    commit(folder)
    put(folder, _env="KEY=newer secret", a___env="secret")
    command = "echo y > main.py; git diff; git add -A; git add main.py; git status --short"
    done = await run(folder, command, read=(".env", "keys/**"))
    assert "secret" not in done.output
    assert git(folder, "diff", "--cached", "--name-status").split() == ["M", "main.py"]


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("is_changed", [False, True], ids=["unchanged", "changed"])
async def test_git_works_in_a_fresh_clone_with_a_file_that_may_not_be_read(
    folder: Path, version: str, is_changed: bool
) -> None:
    put(folder, _env="KEY=secret", main_py="x\n", sub__other_py="y\n")
    git(folder, "init", "-q")
    git(folder, "config", "index.version", version)
    commit(folder)
    os.utime(folder / ".git/index", (10**9, 10**9))  # written in the second of the files
    if is_changed:
        put(folder, _env="KEY=newer secret")
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    work = (
        "set -e; git status --short; git diff; echo y > main.py; git add -A; git commit -qam two; "
        "echo z > main.py; git stash -q; git stash pop -q; git reset -q --hard; git show --stat"
    )
    done = await run(folder, f"{who}; {work}", read=(".env",))
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if "|" in line] == [" main.py | 2 +-"]
    assert git(folder, "status", "--short") == (" M .env\n" if is_changed else "")


@pytest.mark.parametrize("version", ["2", "4"])
async def test_git_works_after_git_itself_has_doubted_a_changed_file_that_may_not_be_read(
    folder: Path, version: str
) -> None:
    """The user changed a file of a fresh clone, and ran git: its index has the size 0 for it."""
    put(folder, _env="KEY=secret", main_py="x\n", sub__other_py="y\n")
    git(folder, "init", "-q")
    git(folder, "config", "index.version", version)
    commit(folder)
    os.utime(folder / ".git/index", (10**9, 10**9))  # written in the second of the files
    put(folder, _env="KEY=newer secret", main_py="y\n")
    git(folder, "add", "main.py")
    command = "set -e; git status --short; git diff; git stash -q; git stash pop -q; git add -A"
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=b"
    done = await run(folder, f"{who}; {command}", read=(".env",))
    assert (done.exit_code, done.output) == (0, "M  main.py\n")
    assert git(folder, "status", "--short") == " M .env\nM  main.py\n"
    assert git(folder, "fsck", "--no-dangling") == ""


@pytest.mark.parametrize("new", ["KEY=secret", "KEY=SECRET", "KEY=newer secret"])
async def test_git_works_in_the_second_in_which_a_file_that_may_not_be_read_was_committed(
    folder: Path, new: str
) -> None:
    put(folder, _env="KEY=secret", a___env="KEY=secret", main_py="x\n")
    git(folder, "init", "-q")
    now = int(time.time())
    for path in (".env", "a/.env", "main.py"):
        os.utime(folder / path, (now, now))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    put(folder, _env=new)
    for path in (".env", ".git/index"):
        os.utime(folder / path, (now, now))
    command = (
        "set -e; git status --short; git diff; echo y > main.py; git add -A; git diff --cached"
    )
    done = await run(folder, command, read=(".env",))
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if line[:1] in "+- M?"] == [
        "--- a/main.py",
        "+++ b/main.py",
        "-x",
        "+y",
    ]
    changed = "" if new == "KEY=secret" else " M .env\n"
    assert git(folder, "status", "--short") == f"{changed}M  main.py\n"


async def test_git_still_sees_a_change_that_it_can_only_see_by_reading(folder: Path) -> None:
    put(folder, _env="KEY=secret", main_py="x\n")
    git(folder, "init", "-q")
    commit(folder)
    (folder / "main.py").write_text("y\n")
    for path in (folder / ".git/index", folder / "main.py"):
        os.utime(path, (10**9, 10**9))
    await run(folder, "git status", read=(".env",))
    assert " M main.py" in git(folder, "status", "--short")


async def test_a_folder_with_hidden_and_protected_files_is_removed_as_a_whole(folder: Path) -> None:
    put(folder, clone___env="KEY=secret", clone___husky__x="x", clone__a="a", b="b")
    git(folder / "clone", "init", "-q")
    commit(folder / "clone")
    done = await run(folder, "rm -rf clone; echo", read=(".env",))
    assert (folder / "clone/.env").exists()
    assert "run `rm -r PATH` as a command of its own" in done.note
    done = await run(folder, "rm -rf 'clone' ./b", read=(".env",))
    assert (done.exit_code, done.output, [*folder.iterdir()]) == (0, "", [])


@pytest.mark.parametrize("command", ["rm -rf keys", "rm -rf infra", "rm -rf a/../keys"])
async def test_a_removal_takes_nothing_that_only_a_rule_hides_or_keeps(
    folder: Path, command: str
) -> None:
    put(folder, keys__a="secret", infra__b="x")
    await run(folder, command, read=("keys/**",), edit=("infra/**",))
    assert (folder / "keys/a").read_text() == "secret"
    assert (folder / "infra/b").exists()


async def test_no_program_of_the_folder_sees_what_a_removal_uncovers(folder: Path) -> None:
    put(folder, _env="secret", bin__rm="#!/bin/sh\ncat .env\n")
    (folder / "bin/rm").chmod(0o755)
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",))) as workspace:
        env = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        done = await workspace.run("rm .env", env=env)
    assert (done.output, (folder / ".env").exists()) == ("", False)


async def test_a_search_runs_and_its_result_says_what_was_left_out(folder: Path) -> None:
    put(folder, _env="TODO secret", main_py="TODO\n", a___env="TODO secret")
    done = await run(folder, "grep -rn TODO . | sort; ls -A", read=(".env",))
    assert "./main.py:1:TODO" in done.output
    assert "secret" not in done.output
    assert done.note == "deny rules hide from commands: .env, a/.env"


async def test_outside_of_the_sandbox_nothing_is_hidden_and_the_result_says_nothing_else(
    folder: Path,
) -> None:
    put(folder, _env="secret")
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",))) as workspace:
        inside = await workspace.run("true")
        outside = await workspace.run("true", sandboxed=False)
    assert (inside.note, inside.hidden_files) == ("deny rules hide from commands: .env", (".env",))
    assert (outside.note, outside.hidden_files) == ("", ())


@pytest.mark.parametrize("rule", ["keys/**", "keys", "/keys/*", "*.pem", "link/one.pem"])
async def test_rules_with_patterns_and_folders_hold(folder: Path, rule: str) -> None:
    put(folder, keys__one_pem="secret")
    (folder / "link").symlink_to("keys")
    done = await run(folder, "cat keys/*.pem link/*; find . -type f | xargs cat", read=(rule,))
    assert "secret" not in done.output
    assert "Permission denied" in done.output


@pytest.mark.parametrize(
    "rule",
    [
        ".env", "*.pem", "**.pem", "keys", "keys/", "keys/**", "keys/**/", "/keys", "a/keys/*",
        "a/**", "**/keys/*.PEM", "KEYS/One.pem", "./a", "a/../keys", "*", "**", "{a,b}/keys",
        "k?ys", "[k]eys", ".", "a/.", "//tmp/**", "~/**", "ﬁle.txt", "a\\b",
    ],
)  # fmt: skip
def test_a_scan_finds_what_a_rule_forbids(folder: Path, own_place: Path, rule: str) -> None:
    put(folder, keys__one_pem="", a__keys__one_pem="", a__b__keys__two_Pem="", b__keys="", _env="")
    put(folder, a__b___env="", file_txt="", node_modules__x__one_pem="")
    denials = deny(folder, (rule,))
    scan = ProtectedPaths(folder, own_place / "aside", (), denials).scan()
    found = {entry.path for entry in scan if entry.kind == HIDDEN}
    forbidden = {str(path) for path in folder.rglob("*") if denials.classify(str(path)) == HIDDEN}
    assert found == {path for path in forbidden if str(Path(path).parent) not in forbidden}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "count"), [("before", 22100), ("by a command", 2100), ("in the background", 2100)]
)
async def test_however_many_folders_there_are_the_rules_hold(
    folder: Path, where: str, count: int
) -> None:
    put(folder, a__b__c__d___env="secret", a__b__c___npmrc="ours", a__b__infra__m_tf="ours")
    many = f"import os\nfor n in range({count}): os.makedirs(f'0/{{n // 20}}/{{n}}', exist_ok=True)"
    (folder / "many.py").write_text(many)
    if where == "before":
        await asyncio.to_thread(subprocess.run, ["python3", "many.py"], cwd=folder, check=True)
    rules = deny(folder, (".env",), ("a/b/infra/**",))
    async with opened(folder, sandbox=True, denials=rules) as space:
        if where == "by a command":
            await space.run("python3 many.py")
        elif where == "in the background":
            await space.start("python3 many.py; touch done; sleep 60")
            await until(lambda: (folder / "done").exists())  # a real process
        done = await space.run(
            "grep -r secret .; echo x > a/b/c/.npmrc; echo x > a/b/infra/m.tf; echo x > 0/99/.npmrc"
        )
        again = await space.run("rm -rf 0")
    assert "secret" not in done.output
    assert "a/b/c/d/.env" in done.note
    assert "0/99/.npmrc was moved to" in done.note
    assert "was moved to" not in again.note
    assert (folder / "a/b/c/.npmrc").read_text() == "ours"
    assert (folder / "a/b/infra/m.tf").read_text() == "ours"


async def test_with_too_many_folders_no_command_runs_until_some_are_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, a__b___env="secret")
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",))) as space:
        for scanner in find_scanners(space):
            monkeypatch.setattr(scanner, "_max_folders", 20)
        done = await space.run("mkdir -p 0/{1..30}")
        assert "not all were checked" in done.note
        with pytest.raises(WorkspaceError, match="remove folders that are not needed"):
            await space.run("cat a/b/.env")
        shutil.rmtree(folder / "0")
        assert "secret" not in (await space.run("cat a/b/.env")).output


def find_scanners(space: LocalWorkspace) -> list[TreeScanner]:
    assert space._sandbox is not None
    return [p._scanner for p in space._sandbox._protections]


async def test_a_rule_about_a_file_outside_the_folder_holds(folder: Path) -> None:
    done = await run(folder, "cat /etc/passwd /etc/hostname; ls /etc/ssl", read=("//etc/p*d",))
    assert "root:" not in done.output
    hidden = tuple(f"//etc/{name}" for name in os.listdir("/etc"))  # noqa: PTH208 - the names
    done = await run(folder, "cat /etc/hostname /etc/passwd; echo ran", read=hidden)
    assert (done.output.count("Permission denied"), "ran" in done.output) == (2, True)
    done = await run(folder, "ls /usr/share/doc", read=("//usr/share/doc/**",))
    assert "Permission denied" in done.output


@pytest.mark.parametrize(
    "command",
    [
        "echo evil > infra/main.tf",
        "rm -rf infra; mkdir infra; echo evil > infra/main.tf",
        "mv infra x; mkdir infra; echo evil > infra/main.tf",
        "sed -i s/ours/evil/ infra/main.tf",
        "echo evil > infra/new.tf",
        "ln -s infra x; echo evil > x/main.tf",
    ],
)
async def test_a_folder_that_may_not_be_edited_stays_as_it_is(folder: Path, command: str) -> None:
    put(folder, infra__main_tf="ours", main_py="x")
    done = await run(folder, f"{command}; echo y > main.py", edit=("infra/**",))
    assert "Read-only" in done.output or "busy" in done.output
    assert [(p.name, p.read_text()) for p in (folder / "infra").iterdir()] == [("main.tf", "ours")]
    assert (folder / "main.py").read_text() == "y\n"


@pytest.mark.parametrize("with_background", [False, True])
async def test_no_rename_takes_a_path_out_of_a_rule(folder: Path, with_background: bool) -> None:
    put(folder, conf__a_txt="secret", deploy__infra__m_tf="ours", a__b__keys__x_txt="secret")
    put(folder, keys__one_pem="secret", web__main_py="x")
    (folder / "link").symlink_to("keys")
    read, edit = ("conf/a.txt", "a/**/keys/*", "link/one.pem"), ("deploy/infra/**",)
    async with opened(folder, sandbox=True, denials=deny(folder, read, edit)) as space:
        names = ("conf", "deploy", "a", "a/b", "a/b/keys", "keys", "link")
        moves = "".join(f"mv {name} {name}2; " for name in names)
        background = await space.start(f"{moves} sleep 60") if with_background else None
        await space.run(moves)
        done = await space.run(
            "find . -type f | xargs cat; for f in */infra; do echo x > $f/m.tf; done"
        )
        await space.run("for f in *2; do mv $f ${f%2}; done")
        if background is not None:
            await background.kill()
    assert "secret" not in done.output
    assert (folder / "deploy/infra/m.tf").read_text() == "ours"


async def test_what_the_user_made_and_a_command_renames_is_not_moved_away(folder: Path) -> None:
    put(folder, d2__infra__m_tf="ours", build__a_txt="ours")
    rules = deny(folder, (), ("deploy/infra/**", "dist/**"))
    async with opened(folder, sandbox=True, denials=rules) as space:
        done = await space.run("mv d2 deploy; mv build dist; mkdir new; mv new deploy/infra/x")
        again = await space.run("echo evil > deploy/infra/m.tf; echo evil > dist/a.txt")
    assert (done.note, "moved" in again.note) == ("", False)
    assert (folder / "deploy/infra/m.tf").read_text() == "ours"
    assert (folder / "dist/a.txt").read_text() == "ours"


async def test_what_a_command_makes_against_a_rule_is_moved_away(folder: Path) -> None:
    put(folder, main_py="x")
    done = await run(folder, "mkdir -p infra/a; echo x > infra/a/b; echo y > z", edit=("infra/**",))
    assert "infra was moved to" in done.note
    assert sorted(path.name for path in folder.iterdir()) == ["main.py", "z"]


async def test_a_rule_about_everything_makes_the_folder_read_only(folder: Path) -> None:
    put(folder, main_py="x")
    done = await run(folder, "echo y > main.py; mkdir new; cat main.py", edit=("**",))
    assert done.output.count("Read-only file system") == 2
    assert done.output.endswith("x")


async def test_with_more_files_than_can_be_hidden_there_is_no_sandbox_and_a_reason(
    folder: Path,
) -> None:
    for number in range(MAX_DENIED + 1):
        (folder / f"{number}.pem").touch()
    rule = compile_path_pattern("*.pem", str(folder), "")
    options = WorkspaceOptions(denials=FileDenials((rule,)))
    workspace = await LocalWorkspace.open(folder, options)
    done = await workspace.run("true")
    await workspace.aclose()
    assert "write the rules for folders" in workspace.sandbox_problem
    assert (done.note, done.hidden_files) == ("", ())


async def test_a_command_that_makes_many_denied_files_stops_no_other_command(folder: Path) -> None:
    put(folder, _env="secret")
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",))) as space:
        await space.run(f"for i in {{0..{MAX_DENIED}}}; do mkdir d$i; touch d$i/.env; done")
        done = await space.run("cat .env; rm -rf d*; echo removed")
    assert "secret" not in done.output
    assert "removed" in done.output
    assert [path.name for path in folder.iterdir()] == [".env"]


@pytest.mark.parametrize("with_background", [False, True], ids=["alone", "with background"])
async def test_rules_hold_in_folders_that_are_protected_themselves(
    folder: Path, with_background: bool
) -> None:
    for place in (".", "sub/r"):
        subprocess.run(["git", "init", "-q", place], cwd=folder, check=True)  # noqa: ASYNC221
    names = (
        ".devcontainer/.env", ".docker/dev/.env", ".vscode/.env", "web/.claude/.env", ".git/my.key",
        "sub/r/.git/x.key", ".kube/prod/a.key", ".vscode/in/secrets.json", "infra/.env",
        "AGENTS.md/.env",
    )  # fmt: skip
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("TOP")
    rules = deny(
        folder,
        (".env", "*.key", ".vscode/in/secrets.json", "sub/r/.git/config"),
        ("infra/**", ".git/HEAD2"),
    )
    async with opened(folder, sandbox=True, denials=rules) as space:
        if with_background:
            await space.start("sleep 100")
        done = await space.run(
            "grep -r TOP .; cat sub/r/.git/config; echo x > .vscode/in/new; echo x > infra/new;"
            "echo x > .git/HEAD2; git status --short"
        )
        assert "TOP" not in done.output
        assert "[core]" not in done.output
        assert not (folder / ".vscode/in/new").exists()
        assert not (folder / "infra/new").exists()
        assert ".git/HEAD2 was moved to" in done.note
        assert {folder / name for name in names if (folder / name).read_text() != "TOP"} == set()


async def test_a_folder_with_the_name_of_a_memory_file_keeps_its_denials(folder: Path) -> None:
    put(folder, conf___env="TOP", conf___vscode__tasks_json="ours")
    async with opened(folder, sandbox=True, denials=deny(folder, (".env",))) as space:
        await space.run("mv conf AGENTS.md")
        done = await space.run("cat AGENTS.md/.env; echo x > AGENTS.md/.vscode/tasks.json")
    assert "TOP" not in done.output
    assert (folder / "AGENTS.md/.vscode/tasks.json").read_text() == "ours"


@pytest.mark.parametrize("command", ["echo z > infra/main.tf", "echo z > infra/new.tf"])
async def test_the_note_about_a_file_that_may_not_be_written_names_the_rule_not_the_write_tool(
    folder: Path, command: str
) -> None:
    put(folder, infra__main_tf="ours")
    done = await run(folder, command, edit=("infra/**",))
    assert "a deny rule of the user forbids writing" in done.note
    assert "write tool" not in done.note
