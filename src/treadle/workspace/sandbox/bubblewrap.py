"""The sandbox as bubblewrap builds it.

Root read-only, home and sockets hidden, the workspace and a private temp folder writable, no
network, no capabilities, own process ids, no further namespaces. It wraps a CommandSpec in another,
which the fork server runs. Used by `local.py`; uses protected_paths, seccomp and landlock.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.processes import CommandSpec
from treadle.workspace.sandbox import landlock, seccomp
from treadle.workspace.sandbox.protected_paths import PROTECTED_PATHS, ProtectedPaths
from treadle.workspace.supervisor.syscalls import open_memory_file

SECCOMP_FD = 199

NAMESPACE_OPTIONS = """
--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try
--disable-userns --cap-drop ALL --die-with-parent --new-session
"""

# Root could write /proc/sys even without capabilities, and a core_pattern runs on the host.
SYSTEM_OPTIONS = "--ro-bind / / --dev /dev --proc /proc --remount-ro /proc"

READABLE_IN_HOME = """
.gitconfig .config/git/config .config/git/ignore .config/git/attributes
.local/bin .local/lib .local/share/uv .local/share/mise .local/share/pnpm .local/share/pipx
.pyenv .rbenv .nvm .volta .fnm .asdf .sdkman .bun .deno .npm-global go
.rustup .cargo/bin .cargo/env .cargo/config.toml .cargo/registry .cargo/git
"""
"""Tools and git settings, read-only. None holds credentials; ~/.cargo as a whole does."""

HIDDEN_FOLDERS = ("/run", "/home", "/root", "/var/tmp")


class Confinement(msgspec.Struct, frozen=True):
    """What a sandboxed command may do: write below `writable`, use the network or not.

    `readable` is mounted read-only even in hidden folders such as home.
    """

    writable: tuple[Path, ...]
    temp_dir: Path
    network: bool = False
    protected: tuple[str, ...] = PROTECTED_PATHS
    readable: tuple[Path, ...] = ()


class Bubblewrap:
    """Wraps commands for one confinement. `wrap` keeps the placeholders of the mounts meanwhile."""

    def __init__(self, confinement: Confinement, program: str) -> None:
        self.confinement = confinement
        self.program = program
        self._protections = [ProtectedPaths(r, confinement.protected) for r in confinement.writable]
        self._active_count = 0
        self._removed: list[str] = []
        self._closing: set[asyncio.Future[None]] = set()

    @contextmanager
    def wrap(self, command: CommandSpec, *, network: bool | None = None) -> Iterator[CommandSpec]:
        """The command that runs it inside. WorkspaceError if the sandbox cannot be built."""
        if not self.program:
            raise WorkspaceError("the sandbox cannot be built: bubblewrap (bwrap) is not installed")
        with_network = self.confinement.network if network is None else network
        self._active_count += 1
        fds: list[int] = []
        try:
            options = [*NAMESPACE_OPTIONS.split(), *([] if with_network else ["--unshare-net"])]
            options += [*self._mount_options(command, with_network), "--chdir", command.cwd]
            # LD_* must not affect bubblewrap itself, which runs outside.
            env = {k: v for k, v in command.env.items() if not k.startswith("LD_")}
            for name in command.env.keys() - env.keys():
                options += ["--setenv", name, command.env[name]]
            # Bubblewrap reads the filter to its end, so each run needs its own file.
            fds.append(open_memory_file("treadle-filter", seccomp.build_filter()))
            options += ["--seccomp", str(SECCOMP_FD)]
            ruleset = landlock.make_scope_ruleset()
            fds += [] if ruleset is None else [ruleset]
            yield msgspec.structs.replace(
                command,
                argv=(self.program, *options, "--", *command.argv),
                env=env,
                cwd="/",
                descriptors={**command.descriptors, SECCOMP_FD: fds[0]},
                landlock_ruleset=ruleset,
                in_bubblewrap=True,
            )
        finally:
            _close_all(fds)
            self._active_count -= 1
            for protection in self._protections:
                self._removed += protection.remove_created()
                if not self._active_count:
                    self._close_in_thread(protection.remove_placeholders())

    def _close_in_thread(self, fds: list[int]) -> None:
        """In a thread: closing takes milliseconds."""
        if fds:
            closing = asyncio.get_running_loop().run_in_executor(None, _close_all, fds)
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        while self._closing:
            await asyncio.wait(tuple(self._closing))

    def take_removed(self) -> list[str]:
        """Forbidden files that commands created and that were removed, since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def _mount_options(self, command: CommandSpec, network: bool) -> list[str]:
        """In order: later mounts cover earlier ones."""
        confinement = self.confinement
        homes = _find_homes(command.env.get("HOME", ""))
        options = SYSTEM_OPTIONS.split()
        options += ["--bind", str(confinement.temp_dir), "/tmp"]  # a home may lie in it
        for hidden in sorted({*_filter_existing(*HIDDEN_FOLDERS), *map(str, homes)}):
            options += ["--tmpfs", hidden]
        options += _resolver_options() if network else []
        for needed in _find_needed(homes, command.env.get("PATH", "")):
            options += ["--ro-bind-try", needed, needed]
        for path in confinement.readable:
            options += ["--ro-bind-try", str(path), str(path)]
        for root in confinement.writable:
            _refuse_root_around_home(root, homes)
            options += ["--bind", str(root), str(root)]
        for protection in self._protections:
            options += protection.mount_options()
        return options


@cache
def _filter_existing(*paths: str) -> tuple[str, ...]:
    return tuple(path for path in paths if Path(path).is_dir() and not Path(path).is_symlink())


@cache
def _find_homes(home: str) -> tuple[Path, ...]:
    """Home by the environment and by the user database; never the root folder."""
    found = {home}
    try:
        found.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    real = {Path(path).resolve() for path in found if path}
    return tuple(sorted(p for p in real if p.is_dir() and p not in (Path("/"), Path("/tmp"))))


@cache
def _find_needed(homes: tuple[Path, ...], search: str) -> tuple[str, ...]:
    """The visible parts of home: the usual folders of tools, PATH, and this Python."""
    usual = [home / name for home in homes for name in READABLE_IN_HOME.split()]
    tools = [Path(entry) for entry in search.split(":") if entry.startswith("/")]
    shown: list[Path] = []
    for path in sorted({*usual, *tools, Path(sys.prefix), Path(sys.base_prefix)}):
        is_in_home = any(path.is_relative_to(home) and path != home for home in homes)
        if is_in_home and path.exists() and not any(map(path.is_relative_to, shown)):
            shown.append(path)
    return tuple(map(str, shown))


def _resolver_options() -> list[str]:
    """The list of name servers is often a file below /run, which is hidden."""
    path = Path("/etc/resolv.conf").resolve()
    return ["--ro-bind", str(path), str(path)] if path.is_relative_to("/run") else []


def _refuse_root_around_home(root: Path, homes: Sequence[Path]) -> None:
    for home in (Path("/"), *homes):
        if home.is_relative_to(root):
            raise WorkspaceError(
                f"the sandbox cannot be built around {root}: it contains the home folder; "
                "work in a folder below it"
            )


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
