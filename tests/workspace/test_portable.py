"""The workspace of a system that is not Linux, and the profile of its sandbox."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE
from treadle.workspace.sandbox.seatbelt import make_profile

# As the one of macOS, but without a sandbox: it notes the profile.
SANDBOX_EXEC = """#!/bin/sh
[ "$1" = -p ] && printf %s "$2" > "${0%/*}/profile"
shift 2
command -v "$1" >/dev/null ||
    { echo "sandbox-exec: execvp() of '$1' failed: No such file or directory" >&2; exit 71; }
exec "$@"
"""


def test_a_workspace_without_the_calls_of_linux_keeps_its_promises(own_place: Path):
    programs, folders = own_place / "bin", own_place / "folders"
    programs.mkdir()
    folders.mkdir()
    (programs / "sandbox-exec").write_text(SANDBOX_EXEC)
    (programs / "sandbox-exec").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-P", str(Path(__file__).with_name("macos.py")), str(folders)],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr[-3000:]
    lines = (programs / "profile").read_text().splitlines()
    assert lines[-1] == "(deny network*)"
    home = lines.index(f'(deny file-read* file-write* (subpath "{Path.home()}"))')
    assert any(f'file-write* (subpath "{folders}' in line for line in lines[home:])


def test_a_profile_has_a_rule_for_each_mount_in_their_order():
    mounts = [
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"),
        *("--bind", "/private/t", "/tmp", "--size", "9", "--tmpfs", "/Users/ann"),
        *("--ro-bind-try", "/Users/ann/.gitconfig", "/Users/ann/.gitconfig"),
        *("--bind", '/Users/ann/a "b"', '/Users/ann/a "b"'),
        *("--ro-bind", "/Users/ann/a/.env", "/Users/ann/a/.env"),
        *("--ro-bind", os.devnull, "/Users/ann/a/key", "--perms", "0000", "--tmpfs", "/x"),
        *("--setenv", "A", "b"),
    ]
    profile = make_profile(mounts, network=False, is_stand_in=lambda path: path == os.devnull)
    rules = [line for line in profile.splitlines() if "/Users" in line or "/private" in line]
    assert rules == [
        '(allow file-read* file-write* (subpath "/private/t"))',
        '(deny file-read* file-write* (subpath "/Users/ann"))',
        '(allow file-read-metadata (subpath "/Users/ann"))',
        '(allow file-read* (subpath "/Users/ann/.gitconfig"))',
        '(deny file-write* (subpath "/Users/ann/.gitconfig"))',
        '(allow file-read* file-write* (subpath "/Users/ann/a \\\\"b\\\\""))'.replace("\\\\", "\\"),
        '(allow file-read* (subpath "/Users/ann/a/.env"))',
        '(deny file-write* (subpath "/Users/ann/a/.env"))',
        '(deny file-read* file-write* (subpath "/Users/ann/a/key"))',
        '(allow file-read-metadata (subpath "/Users/ann/a/key"))',
    ]
    assert profile.startswith("(version 1)\n(allow default)\n(deny file-write*)\n")
    assert profile.count("(") == profile.count(")")
    assert "(deny network*)" in profile
    assert "network" not in make_profile(mounts, network=True, is_stand_in=lambda _: False)
