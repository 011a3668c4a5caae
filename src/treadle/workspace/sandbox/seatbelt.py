"""The sandbox of macOS: the mounts of bubblewrap, written as a profile for sandbox-exec.

A mount covers those before it, and in a profile the last rule that matches decides: so both are the
same list. Not tested on a Mac, where `treadle doctor` tries it; the tests compare its text. Used by
`local.py` where the system is not Linux.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import msgspec

from treadle.workspace.processes import CommandSpec
from treadle.workspace.sandbox.bubblewrap import Bubblewrap

_ARGUMENT_COUNTS = {
    "--ro-bind": 2, "--ro-bind-try": 2, "--bind": 2, "--setenv": 2, "--tmpfs": 1, "--size": 1,
    "--perms": 1, "--symlink": 2, "--dev": 1, "--proc": 1, "--remount-ro": 1,
}  # fmt: skip
_HEAD = """\
(version 1)
(allow default)
(deny file-write*)
(deny signal)
(allow signal (target same-sandbox))
(deny process-info* (target others))
(allow process-info* (target same-sandbox))"""
_DEVICES = """\
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty")
  (literal "/dev/dtracehelper") (subpath "/dev/fd"))"""


class Seatbelt(Bubblewrap):
    """The same confinement by sandbox-exec."""

    name = program_name = "sandbox-exec"
    has_namespaces = False  # a list of hosts is no network here
    missing = "sandbox-exec is not found; it is a part of macOS"

    def _confine(
        self, command: CommandSpec, mounts: Sequence[str], network: bool, fds: list[int]
    ) -> CommandSpec:
        profile = make_profile(mounts, network=network, is_stand_in=self._is_stand_in)
        changed = {given[0]: given[1] for option, given in parse(mounts) if option == "--setenv"}
        return msgspec.structs.replace(
            command,
            argv=(self.program, "-p", profile, *command.argv),
            env={**command.env, "TMPDIR": str(self.confinement.temp_dir), **changed},
        )

    def _is_stand_in(self, path: str) -> bool:
        return path == os.devnull or path.startswith(f"{self.confinement.copies_dir}/stand_ins/")


def make_profile(
    mounts: Sequence[str], *, network: bool, is_stand_in: Callable[[str], bool]
) -> str:
    """The rules for these options of bubblewrap. A stand-in is mounted over what is hidden."""
    lines = _HEAD.split("\n")
    for option, given in parse(mounts):
        source, path = given[0], os.path.realpath(given[-1])
        if option == "--bind":  # what is elsewhere inside is here under its own name
            lines.append(f"(allow file-read* file-write* {_below(os.path.realpath(source))})")
        elif option == "--tmpfs" or (option == "--ro-bind" and is_stand_in(source)):
            lines.append(f"(deny file-read* file-write* {_below(path)})")
            lines.append(f"(allow file-read-metadata {_below(path)})")
        elif option.startswith("--ro-bind") and path != "/":
            lines.append(f"(allow file-read* {_below(path)})")
            lines.append(f"(deny file-write* {_below(path)})")
    lines += _DEVICES.split("\n")
    lines += [] if network else ["(deny network*)"]
    return "\n".join(lines) + "\n"


def parse(mounts: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Each option with its arguments; KeyError for one that has no meaning here."""
    at = 0
    while at < len(mounts):
        count = _ARGUMENT_COUNTS[mounts[at]]
        yield mounts[at], mounts[at + 1 : at + 1 + count]
        at += 1 + count


def _below(path: str) -> str:
    """A file, or a folder with all that is in it."""
    text = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'(subpath "{text}")'
