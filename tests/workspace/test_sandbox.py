# ruff: noqa: ASYNC240 - real files
"""The wall, tried from inside with real commands; run as root and, from there, as uid 1000."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.patience import until
from tests.workspace.helpers import (
    BOTH,
    alive,
    inside,
    marker,
    needs_bubblewrap,
    opened,
)
from treadle.core.errors import WorkspaceError
from treadle.workspace import command_limits as limits
from treadle.workspace import landlock
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions
from treadle.workspace.sandbox import seccomp
from treadle.workspace.sandbox.tree_scan import FoundEntry, MakeListable, TreeScanner

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
async def test_the_copy_of_etc_shows_what_mounts_would_and_is_few_mounts(folder: Path) -> None:
    show = "cd /etc; find -L . -maxdepth 2 | sort; md5sum passwd hosts; ls ssl/private; cat shadow"
    async with opened(folder, sandbox=True) as workspace:
        copied = await workspace.run(f"{show}; grep -c . /proc/self/mountinfo")
        written = await workspace.run("touch /etc/x; echo x >> /etc/passwd; mv /etc/hosts /etc/y")
        mounted = await workspace.run(f"{show}; rm -f x", network=True)
    *lines, mounts = copied.output.splitlines()
    more = ("./pip.conf", "./npmrc", "./wgetrc", "./yum.repos.d")
    assert lines == [one for one in mounted.output.splitlines() if not one.startswith(more)]
    assert "cat: shadow: No such file or directory" in lines
    assert int(mounts) < 60
    assert written.output.count("Read-only file system") == 3


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
            unknown = await workspace.run(
                "getent hosts a.example || ! echo Name or service not known"
            )
            curl = await workspace.run('! echo "curl: (7) Couldn\'t connect to server"')
            piped = await workspace.run("echo getaddrinfo EAI_AGAIN registry.example | tail -3")
            pip = await workspace.run("echo 'ERROR: requests (from versions: none)' | tail -1")
            other = await workspace.run("! echo nothing about it")
            source = await workspace.run("echo 'raise getaddrinfo ECONNREFUSED connection refused'")
            open_but_failed = await workspace.run("! echo connection refused", network=True)
    assert closed.exit_code == 1
    assert "unreachable" in far.output
    assert let.exit_code == 0
    told = (closed, far, unknown, curl, piped, pip)
    assert all("the sandbox has no network" in one.note for one in told)
    assert not any(one.note for one in (let, other, source, open_but_failed))


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
@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount an /opt of its own")
async def test_sockets_of_the_host_anywhere_are_out_of_reach(folder: Path) -> None:
    """In an /opt of its own: the sandboxes of other tests would find the socket, too."""
    script = f"""
import asyncio, pathlib, socket, sys
sys.path[:] = {sys.path}
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

async def main():
    server = socket.socket(socket.AF_UNIX)
    server.bind("/opt/s")
    server.listen()
    root = pathlib.Path({str(folder)!r})
    workspace = await LocalWorkspace.open(root, WorkspaceOptions(sandbox="auto"))
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/opt/s')"
    outside = await workspace.run(f'python3 -c "{{connect}}"', sandboxed=False)
    inside = await workspace.run(f'python3 -c "{{connect}}"', sandboxed=True)
    await workspace.aclose()
    print(outside.exit_code, inside.exit_code, inside.output)

asyncio.run(main())
"""
    mount = 'mount -t tmpfs none /opt && exec "$@"'
    words = ("unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", script)
    run = await asyncio.create_subprocess_exec(
        *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = (await run.communicate())[0].decode()
    assert output.startswith("0 1 "), output
    assert "ConnectionRefusedError" in output or "FileNotFoundError" in output


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
        await until(lambda: (folder / "own.sock").exists())  # a real process
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


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_command_that_fills_the_disk_is_killed_and_told(
    folder: Path, sandbox: bool
) -> None:
    async with opened(folder, sandbox=sandbox, max_disk=64 << 20) as workspace:
        # Free space is measured: another program may give some back meanwhile.
        fill = "for n in {1..30}; do fallocate -l 1G large$n; sleep 1; done; sleep 600"
        done = await workspace.run(fill)
        fine = await workspace.run("rm large* && echo fine")
    assert done.signal == "SIGKILL"
    assert "more than 64 MB of the disk (setting command_disk)" in done.note
    assert fine.output == "fine\n"


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize(
    "fill",
    [
        "[os.write(f, bytes(1 << 20)) for _ in range(200)]",
        "m = mmap.mmap(f, 200 << 20); os.close(f); [m.write(bytes(1 << 20)) for _ in range(200)]",
    ],
    ids=["open", "mapped"],
)
async def test_a_command_that_takes_too_much_memory_in_a_file_is_killed(
    folder: Path, sandbox: bool, fill: str
) -> None:
    make = "import os, mmap, time; f = os.memfd_create('x'); os.ftruncate(f, 200 << 20)"
    grow = f"{make}; {fill}; time.sleep(60)"
    async with opened(folder, sandbox=sandbox, max_memory=150 << 20) as workspace:
        done = await workspace.run(f'python3 -c "{grow}"')
        fine = await workspace.run("echo fine")
    assert done.signal == "SIGKILL"
    assert "more than 150 MB of memory" in done.note
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
@pytest.mark.skipif(os.getuid() != 0, reason="not root: this run is that run")
@pytest.mark.parametrize("name", ["sandbox", "protected_paths", "denied_files", "planted_files"])
async def test_all_of_this_holds_for_uid_1000(own_place: Path, name: str) -> None:
    python = _python_for_others()
    place = own_place / "other"
    place.mkdir()
    own_place.chmod(0o755)
    os.chown(place, 1000, 1000)
    here = Path(__file__)
    file = here.with_name(f"test_{name}.py")
    with tempfile.TemporaryFile() as output:
        run = await asyncio.create_subprocess_exec(
            *("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs"),
            *(python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not slow"),
            *(file, NOT_FOR_ROOT),
            cwd=here.parents[2],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(place),
                "TMPDIR": str(place),
                "PYTHONPATH": ":".join(path for path in sys.path if path),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdout=output,
            stderr=output,
        )
        try:
            await asyncio.wait_for(run.wait(), 900)
        finally:
            with contextlib.suppress(ProcessLookupError):
                run.kill()
            await run.wait()
            output.seek(0)
            said = output.read().decode()
            assert run.returncode == 0, said[-6000:]
    assert " passed" in said


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


@needs_bubblewrap
async def test_opening_a_folder_scans_it_once_and_a_command_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a").mkdir()
    scans, scan = list[str](), TreeScanner.scan

    def count(self: TreeScanner, *args: MakeListable | None) -> list[FoundEntry]:
        scans.append("")
        return scan(self, *args)

    monkeypatch.setattr(TreeScanner, "scan", count)
    async with opened(folder, sandbox=True) as workspace:
        assert len(scans) == 1
        await workspace.run("true")  # it only reads: nothing can have been made
        assert len(scans) == 2
        await workspace.run("touch b")
        assert len(scans) == 4
