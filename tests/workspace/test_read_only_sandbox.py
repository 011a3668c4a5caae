"""Commands in the sandbox `read-only`: any program may run, and can change nothing that stays."""

# ruff: noqa: ASYNC240 (tests look at files)

from __future__ import annotations

import contextlib
import hashlib
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.workspace.helpers import needs_bubblewrap, opened
from treadle.core.errors import WorkspaceError
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

pytestmark = needs_bubblewrap
PYTHON = sys.executable


@contextlib.asynccontextmanager
async def read_only(folder: Path, **options: object) -> AsyncIterator[LocalWorkspace]:
    chosen = msgspec.structs.replace(WorkspaceOptions(sandbox="read-only"), **options)
    workspace = await LocalWorkspace.open(folder, chosen)
    try:
        yield workspace
    finally:
        await workspace.aclose()


def take_state(folder: Path) -> dict[str, tuple[int, str]]:
    """What is below a folder: the mode and the content of each entry."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = bytes(path.readlink()) if path.is_symlink() else b""
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else data
        found[str(path)] = (path.lstat().st_mode, hashlib.sha256(data).hexdigest())
    return found


ATTACKS = [
    "echo x > a.txt", "echo x > new.txt", "rm a.txt", "rm -rf .", "rm -rf src", "mv a.txt b.txt",
    "chmod 777 a.txt", "ln -s /etc evil", "ln a.txt hard.txt", "mkdir made", "touch src/made",
    "echo 'exit 1' > .git/hooks/pre-commit", "git config core.hooksPath /tmp",
    "git config core.fsmonitor /tmp/x", "git add a.txt", "git commit -qam x", "git checkout -q .",
    "git stash", "git worktree add ../other", "git clone -q . /tmp/c && cd /tmp/c && git push -q",
    "echo x > ../added/note.txt", "truncate -s 0 a.txt", "sed -i s/one/two/ a.txt",
    "mount -o remount,rw .", "unshare -r mount -o remount,rw .", "umount .",
    "ln -s $PWD /tmp/in && echo x > /tmp/in/a.txt", "cd /proc/self/root$PWD && echo x > a.txt",
    f"{PYTHON} -c \"open('a.txt', 'w').write('x')\"",
    f"{PYTHON} -c \"import os; os.chmod('a.txt', 0o777)\"",
    f"{PYTHON} -c \"import os; os.setxattr('a.txt', 'user.x', b'x')\"",
    f"{PYTHON} -c \"import os; os.utime('a.txt', (1, 1)); os.open('a.txt', os.O_RDWR)\"",
    "(sleep 0; echo x > a.txt) & disown; wait",
]  # fmt: skip


async def test_no_command_changes_the_folder_or_what_is_beside_it(tmp_path: Path) -> None:
    folder, added = tmp_path / "project", tmp_path / "added"
    (folder / "src").mkdir(parents=True)
    added.mkdir()
    (folder / "a.txt").write_text("one\n")
    (added / "note.txt").write_text("one\n")
    setup = "git init -q && git add -A && git -c user.name=t -c user.email=t@t commit -qm first"
    async with opened(folder) as workspace:
        assert (await workspace.run(setup)).exit_code == 0
    (folder / "a.txt").write_text("mine\n")
    before = take_state(tmp_path)
    async with read_only(folder, extra_roots=(added,)) as workspace:
        for attack in ATTACKS:
            done = await workspace.run(f"{attack}; :")
            assert done.exit_code == 0, (attack, done.output)
            assert take_state(tmp_path) == before, attack
        started = await workspace.start("echo x > a.txt; mkdir made")
        await started.wait()
        await workspace.execute(["sh", "-c", "echo x > a.txt"])
        shown = await workspace.run("git status --short && git diff --stat")
    assert take_state(tmp_path) == before
    assert " M a.txt" in shown.output


async def test_a_command_has_a_temp_folder_of_its_own(folder: Path) -> None:
    async with read_only(folder) as workspace:
        await workspace.run("echo kept > /tmp/treadle-note; echo $TMPDIR")
        done = await workspace.run("cat /tmp/treadle-note")
    assert done.output == "kept\n"
    assert not Path("/tmp/treadle-note").exists()


async def test_tests_run_in_it(folder: Path) -> None:
    (folder / "test_add.py").write_text(
        "import tempfile, unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        with tempfile.NamedTemporaryFile() as file:\n            file.write(b'x')\n"
    )
    async with read_only(folder) as workspace:
        done = await workspace.run(f"{PYTHON} -m unittest -v test_add")
    assert done.exit_code == 0, done.output
    assert [path.name for path in folder.iterdir()] == ["test_add.py"]


@pytest.mark.parametrize("network", [False, True, ("localhost",)])
async def test_it_reaches_no_network_whatever_is_set_or_asked_for(
    folder: Path, network: object
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        async with read_only(folder, network=network) as workspace:
            done = await workspace.run(f'{PYTHON} -c "{script}"')
            asked = await workspace.run(f'{PYTHON} -c "{script}"', network=True)
    assert "ConnectionRefusedError" in done.output
    assert "ConnectionRefusedError" in asked.output


async def test_it_sees_no_file_that_may_contain_secrets_also_one_that_is_named(
    folder: Path,
) -> None:
    (folder / ".env").write_text("KEY=topsecret")
    (folder / "id_rsa").write_text("topsecret")
    reads = ["cat .env", "grep KEY .env", f"{PYTHON} -c \"print(open('.env').read())\"", "cat i*"]
    async with read_only(folder) as workspace:
        outputs = [(await workspace.run(line)).output for line in reads]
    assert [text for text in outputs if "topsecret" in text] == []


async def test_nothing_runs_outside_of_it(folder: Path) -> None:
    async with read_only(folder) as workspace:
        with pytest.raises(WorkspaceError, match="nothing may run outside of it"):
            await workspace.run("true", sandboxed=False)


async def test_without_a_sandbox_it_cannot_be_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(WorkspaceError, match="a sandbox is required and cannot be built"):
        await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="read-only"))


async def test_what_others_make_meanwhile_stays(folder: Path) -> None:
    """A protected file that a tool of another agent writes is not taken for the command's."""
    async with read_only(folder) as workspace:
        await workspace.run("true")
        running = await workspace.start("read line", stdin=True)
        (folder / ".git/hooks").mkdir(parents=True)
        (folder / ".git/hooks/pre-commit").write_text("exit 0\n")
        beside = await workspace.run("true")
        await running.write("go\n")
        await running.wait()
        done = await workspace.run("true")
    assert (folder / ".git/hooks/pre-commit").read_text() == "exit 0\n"
    assert "moved" not in beside.note + done.note


async def test_it_works_beside_commands_that_write(folder: Path) -> None:
    async with opened(folder, sandbox=True) as writer, read_only(folder) as reader:
        running = await writer.start("read line; echo made > made.txt", stdin=True)
        refused = await reader.run("echo x > mine.txt")
        await running.write("go\n")
        await running.wait()
        done = await reader.run("cat made.txt")
    assert "Read-only file system" in refused.output
    assert done.output == "made\n"


async def test_a_removal_of_what_is_protected_is_none_either(folder: Path) -> None:
    (folder / ".vscode").mkdir()
    (folder / ".vscode/settings.json").write_text("{}")
    async with read_only(folder) as workspace:
        done = await workspace.run("rm -rf .vscode")
    assert done.exit_code != 0
    assert (folder / ".vscode/settings.json").read_text() == "{}"
