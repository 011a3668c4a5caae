# ruff: noqa: ASYNC240 - real files
"""The wall, tried from inside with real commands; run as root and, from there, as uid 1000."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.workspace.helpers import BOTH, alive, gone, marker, needs_bubblewrap, opened, seen
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.core.protected_paths import find_protected_part
from treadle.workspace.local import LocalWorkspace, WorkspaceOptions
from treadle.workspace.sandbox import landlock, limits, seccomp
from treadle.workspace.supervisor.set_aside import set_aside


@pytest.fixture
def repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".git/hooks").mkdir(exist_ok=True)
    return folder


async def inside(root: Path, command: str, **options: object) -> CommandResult:
    async with opened(root, sandbox=True, **options) as workspace:
        return await workspace.run(command)


# ------------------------------------------------------------------ files


@needs_bubblewrap
async def test_the_workspace_and_temp_are_writable_and_the_rest_is_not(folder: Path) -> None:
    async with opened(folder, sandbox=True) as workspace:
        kept = await workspace.run("echo one > here && echo two > /tmp/there && cat here")
        again = await workspace.run("cat /tmp/there; ls -A /var/tmp /run")
        refused = await workspace.run("touch /etc/x /usr/x /x; echo x > /etc/hostname")
    assert kept.output == "one\n"
    assert again.output.startswith("two\n")
    assert again.output.split() == ["two", "/run:", "/var/tmp:"]
    assert refused.output.count("Read-only file system") == 4
    assert (folder / "here").read_text() == "one\n"
    assert not Path("/tmp/there").exists()


@needs_bubblewrap
async def test_home_is_hidden_but_for_tools_and_the_settings_of_git(
    folder: Path, own_place: Path
) -> None:
    home = own_place / "home"
    for secret in (".ssh/id", ".aws/credentials", ".netrc", ".cargo/credentials.toml"):
        (home / secret).parent.mkdir(exist_ok=True)
        (home / secret).write_text("secret")
    (home / ".cargo/bin").mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Me\n")
    done = await inside(folder, "find ~ -type f; echo new > ~/x; git config user.name")
    assert done.output.split() == [str(home / ".gitconfig"), "Me"]
    assert not (home / "x").exists()


@needs_bubblewrap
async def test_readable_folders_are_shown_read_only_also_in_home(
    folder: Path, own_place: Path
) -> None:
    skills = own_place / "home/.config/treadle/skills"
    (skills / "pdf").mkdir(parents=True)
    (skills / "pdf/SKILL.md").write_text("how\n")
    (skills.parent / "settings.json").write_text("secret")
    command = f"cat {skills}/pdf/SKILL.md; find ~ -type f; echo x > {skills}/new"
    done = await inside(folder, command, readable=(skills, own_place / "absent"))
    text, found, refused = done.output.splitlines()
    assert (text, found) == ("how", str(skills / "pdf/SKILL.md"))
    assert "Read-only file system" in refused
    assert [path.name for path in skills.iterdir()] == ["pdf"]


@needs_bubblewrap
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
        "echo x > .npmrc & disown",
    ],
)
async def test_settings_that_a_command_makes_are_moved_away_and_named(
    folder: Path, own_place: Path, command: str
) -> None:
    done = await inside(folder, command, state_dir=own_place / "state")
    assert [path.name for path in folder.iterdir() if path.name != "t2"] == []
    assert "was moved to" in done.note
    assert list((own_place / "state/set_aside/1").iterdir())


@needs_bubblewrap
@pytest.mark.parametrize(
    "command",
    [
        "echo x >> .git/config",
        "git config core.fsmonitor evil",
        "echo x > .git/hooks/pre-commit",
        "rm -rf .git/hooks && mkdir .git/hooks",
        "mv .git g2; mkdir .git; echo x > .git/config",  # P218
        "mv .git/hooks .git/h2",
        "rm -rf .git",
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
)  # fmt: skip


@needs_bubblewrap
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
        part = name.partition("/")[0] if name.startswith((".git/", ".cargo/")) else ""
        assert exists or (name.partition("/")[0] if not part else name) in done.note


@needs_bubblewrap
async def test_a_folder_cannot_be_swapped_to_plant_settings(folder: Path) -> None:
    (folder / "app/.vscode").mkdir(parents=True)
    (folder / "app/.vscode/tasks.json").write_text("ours")
    done = await inside(folder, "mv app b; mkdir -p app/.vscode; echo x > app/.vscode/tasks.json")
    assert "app/.vscode" in done.note
    assert not (folder / "app/.vscode").exists()
    assert (folder / "b/.vscode/tasks.json").read_text() == "ours"


@needs_bubblewrap
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


@needs_bubblewrap
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


@needs_bubblewrap
async def test_a_command_makes_nothing_that_others_can_see(repository: Path) -> None:
    async with opened(repository, sandbox=True) as workspace:
        done = await workspace.run("ls -A . .git")
        running = await workspace.start("sleep 60")
        during = sorted(path.name for path in repository.iterdir())
        await running.kill()
    assert ".vscode" not in done.output
    assert "modules" not in done.output
    assert during == [".git"]


@needs_bubblewrap
async def test_a_killed_agent_leaves_no_settings_that_its_command_made(own_place: Path) -> None:
    """The agent is killed with -9; what its command made is gone as soon as the command is."""
    folder = own_place / "ws"
    folder.mkdir()
    mark = marker()
    script = (
        "import asyncio, pathlib, sys; from treadle.workspace.local import *\n"
        "async def main():\n"
        "    w = await LocalWorkspace.open(pathlib.Path(sys.argv[1]), WorkspaceOptions())\n"
        "    await w.run(f'mkdir .vscode; echo x > .vscode/tasks.json; sleep {sys.argv[2]}')\n"
        "asyncio.run(main())"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(folder), mark)
    await seen(mark)
    agent.kill()
    await agent.wait()
    await gone(mark)
    while list(folder.iterdir()):  # noqa: ASYNC110 - another process moves it
        await asyncio.sleep(0.01)


@needs_bubblewrap
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


@needs_bubblewrap
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
    ],
)
async def test_a_repository_that_a_command_makes_runs_nothing(folder: Path, evil: str) -> None:
    done = await inside(folder, f"git init -q . && {{ {evil}; }}")
    assert "was moved to" in done.note
    config = folder / ".git/config"
    assert not config.exists() or "x" not in config.read_text()
    assert not (folder / ".git/hooks/pre-commit").exists()
    assert not (folder / ".git/modules/m/config").exists()
    assert not (folder / ".git").is_file()


@needs_bubblewrap
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
    assert (done.exit_code, done.output, done.note) == (0, "", "")
    assert (folder / ".vscode/settings.json").read_text() == "{}"


@needs_bubblewrap
async def test_a_commit_of_this_session_is_no_way_to_settings(folder: Path) -> None:
    make_commit(folder, {"README": "x"})
    async with opened(folder, sandbox=True) as workspace:
        blob = "$(echo evil | git hash-object -w --stdin)"
        index = f"git update-index --add --cacheinfo 100644,{blob},.npmrc"
        await workspace.run(f"{index}; git -c user.name=a -c user.email=b commit -qm evil")
        done = await workspace.run("git checkout -q -f HEAD; ls -A")
    assert ".npmrc" in done.note
    assert not (folder / ".npmrc").exists()


@needs_bubblewrap
async def test_settings_that_a_tool_wrote_with_approval_stay(folder: Path) -> None:
    async with opened(folder, sandbox=True) as workspace:
        running = await workspace.start("sleep 60")
        await workspace.write(".vscode/settings.json", b"{}")
        await workspace.run("true")
        await running.kill()
    assert (folder / ".vscode/settings.json").read_text() == "{}"


@needs_bubblewrap
async def test_a_command_may_change_the_memory_files_and_its_result_says_so(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("old\n")
    async with opened(folder, sandbox=True) as workspace:
        done = await workspace.run("echo new >> AGENTS.md; mkdir a; echo x > a/CLAUDE.md")
        quiet = await workspace.run("cat AGENTS.md")
    assert (folder / "AGENTS.md").read_text() == "old\nnew\n"
    assert "AGENTS.md, a/CLAUDE.md was changed" in done.note
    assert quiet.note == ""


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


@needs_bubblewrap
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


@needs_bubblewrap
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


@needs_bubblewrap
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


@needs_bubblewrap
async def test_git_works_inside(repository: Path) -> None:
    who = "-c user.name=a -c user.email=a@b.c"
    done = await inside(
        repository,
        f"echo 1 > f && git add f && git {who} commit -qm one ; git status -s; git log --format=%s",
    )
    assert done.exit_code == 0
    assert done.output.endswith("one\n")
    assert sorted(p.name for p in repository.iterdir()) == [".git", "f"]


@needs_bubblewrap
async def test_a_common_dir_that_would_redirect_git_is_removed(repository: Path) -> None:
    done = await inside(repository, "mkdir evil; echo ../evil > .git/commondir")
    assert not (repository / ".git/commondir").exists()
    assert "commondir" in done.note


async def test_hooks_and_submodules_of_a_repository_are_protected_wherever_they_are(
    repository: Path,
) -> None:
    with (repository / ".git/config").open("a") as config:
        config.write("[core]\n\thooksPath = .githooks # ours\n")
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
        while not (repository / ".git/commondir").exists():  # noqa: ASYNC110 - a real process
            await asyncio.sleep(0.01)
        for _ in range(3):
            await workspace.run("true")
        await running.kill()
        assert not (repository / ".git/commondir").exists()


@needs_bubblewrap
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


@needs_bubblewrap
async def test_the_home_folder_itself_is_too_wide_for_a_sandbox(own_place: Path) -> None:
    workspace = await LocalWorkspace.open(own_place / "home", WorkspaceOptions(sandbox="auto"))
    await workspace.aclose()
    assert not workspace.sandboxed
    assert "home folder" in workspace.sandbox_problem


@needs_bubblewrap
async def test_a_link_made_inside_does_not_lead_a_write_out(folder: Path) -> None:  # P219
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run("ln -s /etc lnk")
        with pytest.raises(WorkspaceError, match="outside"):
            await workspace.write("lnk/p", b"x")
    assert not Path("/etc/p").exists()


# ------------------------------------------------------------------ privileges


@needs_bubblewrap
async def test_a_remount_does_not_open_the_host(folder: Path) -> None:
    done = await inside(
        folder,
        "mount -o remount,rw,bind / 2>&1; mount -o remount,rw / 2>&1; touch /usr/pwned; "
        "grep ^Cap /proc/self/status",
    )
    assert not Path("/usr/pwned").exists()
    capabilities = [line.split()[1] for line in done.output.splitlines() if line[:3] == "Cap"]
    assert capabilities == ["0" * 16] * 5


@needs_bubblewrap
async def test_no_setting_of_the_kernel_can_be_written(folder: Path) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    done = await inside(
        folder,
        "echo '|/tmp/evil' > /proc/sys/kernel/core_pattern; "
        "find /proc /sys -writable -type f -not -path '/proc/[0-9]*' 2>/dev/null | head; echo end",
    )
    assert done.output.splitlines()[-1] == "end"
    assert len(done.output.splitlines()) == 2
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


@needs_bubblewrap
@pytest.mark.parametrize(
    "command",
    [
        "unshare -Ur true",  # P220
        "unshare -r true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "python3 -c 'import os; os.chroot(\"/\")'",
    ],
)
async def test_no_further_namespaces(folder: Path, command: str) -> None:
    done = await inside(folder, command)
    assert done.exit_code != 0
    assert "ermitted" in done.output or "denied" in done.output


@needs_bubblewrap
async def test_seccomp_is_on_and_privileges_cannot_be_gained(folder: Path) -> None:
    done = await inside(folder, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status")
    assert done.output.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]


@needs_bubblewrap
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no python3 inside")
@pytest.mark.parametrize(
    "attempt",
    [
        "socket.socket(40, socket.SOCK_STREAM)",  # VSOCK: knows no namespace
        "socket.socket(17, socket.SOCK_RAW)",  # PACKET
        "socket.socket(38, socket.SOCK_SEQPACKET)",  # ALG
        "fcntl.ioctl(os.openpty()[1], 0x5412, b'x')",  # TIOCSTI
        "_ctypes_call('keyctl')",
        "_ctypes_call('bpf')",
        "_ctypes_call('userfaultfd')",
    ],
)
async def test_refused_system_calls(folder: Path, attempt: str) -> None:
    column = seccomp.ARCHITECTURES[os.uname().machine][1]
    if attempt.startswith("_ctypes_call"):
        number = seccomp.REFUSED[attempt.split("'")[1]][column]
        attempt = f"check(ctypes.CDLL(None, use_errno=True).syscall({number}, 0, 0, 0, 0, 0))"
    script = (
        "import ctypes, fcntl, os, socket\n"
        "def check(n):\n"
        "    if n < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
        f"try:\n    {attempt}\n"
        "except PermissionError as error:\n    print('refused')\n"
    )
    (folder / "attempt.py").write_text(script)
    done = await inside(folder, "/usr/bin/python3 attempt.py")
    assert done.output == "refused\n"


@needs_bubblewrap
async def test_ordinary_programs_work_inside(folder: Path) -> None:
    script = (
        "import multiprocessing, os, socket, subprocess, tempfile, threading\n"
        "multiprocessing.Lock(); os.openpty(); tempfile.TemporaryFile()\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())\n"
        "subprocess.run(['echo', 'child'], check=True)\n"
    )
    (folder / "p.py").write_text(script)
    done = await inside(folder, "/usr/bin/python3 -u p.py && ls -l /dev/null /dev/shm >/dev/null")
    assert done.output == "thread\nchild\n"
    assert done.exit_code == 0


# ------------------------------------------------------------------ outside


@needs_bubblewrap
async def test_no_network(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with opened(folder, sandbox=True) as workspace:
            closed = await workspace.run(f"echo > /dev/tcp/127.0.0.1/{port}")
            far = await workspace.run("echo >/dev/tcp/1.1.1.1/80")  # P221
            let = await workspace.run(f"echo > /dev/tcp/127.0.0.1/{port}", network=True)
    assert closed.exit_code == 1
    assert "unreachable" in far.output
    assert let.exit_code == 0


@needs_bubblewrap
async def test_sockets_of_the_host_are_out_of_reach_even_with_the_network(folder: Path) -> None:
    name = f"treadle-test-{marker()}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        script = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        done = await inside(folder, f'/usr/bin/python3 -c "{script}"', network=True)
    if landlock.version() < landlock.FIRST_WITH_SCOPES:
        pytest.skip("this kernel's Landlock has no scopes")
    assert "PermissionError" in done.output


@needs_bubblewrap
async def test_sockets_of_the_host_in_the_workspace_are_out_of_reach(folder: Path) -> None:
    connect = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"host.sock\")'"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "host.sock"))
        server.listen()
        done = await inside(folder, connect)
    assert done.exit_code != 0
    assert "Error" in done.output


@needs_bubblewrap
async def test_sockets_of_the_host_anywhere_are_out_of_reach(folder: Path) -> None:
    place = Path(tempfile.mkdtemp(dir="/opt" if os.access("/opt", os.W_OK) else None))
    try:
        connect = f"socket.socket(socket.AF_UNIX).connect('{place}/s')"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place / "s"))
            server.listen()
            done = await inside(folder, f'python3 -c "import socket; {connect}"')
    finally:
        shutil.rmtree(place)
    assert done.exit_code != 0


@needs_bubblewrap
async def test_a_socket_that_a_command_makes_serves_later_commands(folder: Path) -> None:
    serve = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('own.sock'); s.listen()\n"
        "while True: s.accept()[0].sendall(b'served')"
    )
    (folder / "serve.py").write_text(serve)
    ask = "s = socket.socket(socket.AF_UNIX); s.connect('own.sock'); print(s.recv(9))"
    async with opened(folder, sandbox=True) as workspace:
        running = await workspace.start("python3 serve.py")
        while not (folder / "own.sock").exists():  # noqa: ASYNC110 - a real process
            await asyncio.sleep(0.01)
        for _ in range(2):
            done = await workspace.run(f'python3 -c "import socket; {ask}"')
            assert "served" in done.output
        await running.kill()


@needs_bubblewrap
@pytest.mark.parametrize(
    "attempt",
    [
        "touch f; chmod u+s f",
        "cp /bin/true f; chmod 4755 f",
        "install -m 4755 /bin/true f",
        "python3 -c 'import os; os.close(os.open(\"f\", os.O_CREAT | os.O_WRONLY, 0o4755))'",
        "python3 -c 'import os; os.mknod(\"f\", 0o104755)'",
        "touch f; python3 -c 'import os; os.fchmod(os.open(\"f\", 1), 0o4755)'",
        "touch f; python3 -c 'import ctypes; "
        'ctypes.CDLL(None).syscall(452, -100, b"f", 0o4755, 0)\'',
        "touch f; busybox chmod 4755 f",
    ],
)
async def test_no_command_leaves_a_set_uid_file(folder: Path, attempt: str) -> None:
    await inside(folder, attempt)
    file = folder / "f"
    assert not file.exists() or not file.stat().st_mode & 0o4000


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_command_that_takes_too_much_memory_is_killed_and_told(
    folder: Path, sandbox: bool
) -> None:
    async with opened(folder, sandbox=sandbox, max_memory=64 << 20) as workspace:
        grow = "import time; x = b'x' * (200 << 20); time.sleep(60)"
        done = await workspace.run(f'python3 -c "{grow}" & wait; sleep 60')
        fine = await workspace.run("echo fine")
    assert done.signal == "SIGKILL"
    assert "more than 64 MB of memory" in done.note
    assert (fine.output, fine.note) == ("fine\n", "")


@needs_bubblewrap
async def test_files_in_memory_are_limited_too(folder: Path) -> None:
    fill = "for f in ~/x /dev/shm/x; do dd if=/dev/zero of=$f bs=1M count=64 2>&1; done"
    done = await inside(folder, fill, max_memory=64 << 20)
    assert done.output.count("No space left on device") == 2


@needs_bubblewrap
async def test_no_process_outlives_the_call(folder: Path) -> None:  # P222
    mark = marker()
    async with opened(folder, sandbox=True) as workspace:
        await workspace.run(f"setsid nohup sleep {mark} & ( setsid sleep {mark} & )")
        assert not alive(mark)


@needs_bubblewrap
async def test_other_processes_are_not_seen(folder: Path) -> None:
    done = await inside(folder, "ls -d /proc/[0-9]* | wc -l; kill -0 " + str(os.getpid()))
    assert int(done.output.split()[0]) < 10
    assert "No such process" in done.output


@needs_bubblewrap
async def test_no_secret_in_any_environment_inside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret")
    monkeypatch.setenv("MY_TOKEN", "sk-very-secret")
    done = await inside(
        folder, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"
    )
    assert "PATH=" in done.output
    assert "sk-very-secret" not in done.output


@needs_bubblewrap
async def test_no_descriptor_of_ours_is_inside(folder: Path) -> None:
    done = await inside(folder, "ls /proc/self/fd")
    assert set(done.output.split()) <= {"0", "1", "2", "3", "198"}


# ------------------------------------------------------------------ whether it can be built


async def test_fault_92_without_bubblewrap_auto_says_why_and_required_refuses(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def which(name: str, *, path: str) -> str | None:
        return None if name == "bwrap" else f"/bin/{name}"

    monkeypatch.setattr(shutil, "which", which)
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="auto"))
    try:
        assert not workspace.sandboxed
        assert "not installed" in workspace.sandbox_problem
        assert (await workspace.run("echo bare")).output == "bare\n"
        with pytest.raises(WorkspaceError, match="not installed"):
            await workspace.run("true", sandboxed=True)
    finally:
        await workspace.aclose()
    with pytest.raises(WorkspaceError, match=r"required .* not installed"):
        await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="required"))


@pytest.mark.parametrize(
    ("stderr", "problem"),
    [
        ("bwrap: No permissions to create new namespace, likely because", "create namespaces"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "container"),
        ("bwrap: Unknown option --disable-userns", "too old"),
        ("bwrap: something new", "something new"),
    ],
)
async def test_fault_92_the_problem_is_one_sentence(
    folder: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, problem: str
) -> None:
    fake = own_place / "bin/bwrap"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="auto"))
    await workspace.aclose()
    assert problem in workspace.sandbox_problem


@needs_bubblewrap
async def test_required_lets_nothing_out(folder: Path) -> None:
    async with opened(folder, sandbox=True):
        pass
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="required"))
    try:
        with pytest.raises(WorkspaceError, match="nothing may run outside"):
            await workspace.run("true", sandboxed=False)
    finally:
        await workspace.aclose()


def test_a_machine_without_a_table_of_calls_is_reported() -> None:
    with pytest.raises(seccomp.UnknownMachine, match="vax"):
        seccomp.build_filter("vax")
    assert seccomp.build_filter("x86_64") != seccomp.build_filter("aarch64")


def test_the_limit_of_processes_needs_no_rights_it_does_not_have() -> None:
    assert limits.count_user_threads(os.getuid()) >= 1
    group = limits.find_pids_cgroup()
    assert not group or os.access(group, os.W_OK)


# ------------------------------------------------------------------ as an ordinary user


# Passed over where root runs the tests.
NOT_FOR_ROOT = (
    "tests/tools/builtin/test_file_changes.py::test_fault_74_a_file_without_permission_is_an_error"
)


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0, reason="not root: this run is that run")
async def test_all_of_this_holds_for_uid_1000(own_place: Path) -> None:
    python = _python_for_others()
    place = own_place / "other"
    place.mkdir()
    own_place.chmod(0o755)
    os.chown(place, 1000, 1000)
    here = Path(__file__)
    run = await asyncio.create_subprocess_exec(
        *("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs"),
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", here, NOT_FOR_ROOT),
        cwd=here.parents[2],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "TMPDIR": str(place),
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await run.communicate()
    assert run.returncode == 0, output.decode()[-6000:]
    assert b" passed" in output


def _python_for_others() -> str:
    """An interpreter of this version that uid 1000 can run; ours may lie in root's home."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = importlib.util.find_spec("msgspec")
    assert site is not None
    for candidate in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        trial = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"]
        script = "import sys, os; assert os.access(sys.executable, os.X_OK); import msgspec, pytest"
        environment = {"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/bin"}
        if not shutil.which("setpriv"):
            break
        done = subprocess.run([*trial, candidate, "-c", script], env=environment, check=False)
        if done.returncode == 0:
            return candidate
    pytest.skip("uid 1000 can run no interpreter of this version here")


async def test_libraries_of_the_folder_are_for_its_commands_and_not_for_the_sandbox_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lib").mkdir()
    for name in ("libcap.so.2", "libselinux.so.1", "libpcre2-8.so.0"):
        (folder / "lib" / name).write_text("a program that loads this dies")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder / "lib"))
    async with opened(folder, sandbox=True) as workspace:
        built_in = 'echo "$LD_LIBRARY_PATH"'
        done = await workspace.execute(["/bin/sh", "-c", built_in], env={"LD_LIBRARY_PATH": "/x"})
        assert done.stdout == b"/x\n"
