"""The sandbox as bubblewrap builds it.

The system read-only and by an allow list, home and sockets hidden, the workspace and a private temp
folder writable, no network, no capabilities, own process ids, no further namespaces. It wraps a
CommandSpec in another, which the fork server runs. Used by `local.py`; uses protected_paths,
system_view, git_folders, tree_scan, seccomp and landlock.
"""

from __future__ import annotations

import errno
import os
import pwd
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from treadle.core.contracts.workspace import NetworkAccess
from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import (
    GENERATED_FOLDERS,
    GIT_FOLDER,
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    PROTECTED_IN_GIT,
    PROTECTED_PAIRS,
    PROTECTED_SUFFIXES,
)
from treadle.lib.http.domain_proxy import DomainProxy
from treadle.lib.http.hosts import join_network
from treadle.workspace import landlock
from treadle.workspace.options import Confinement
from treadle.workspace.processes import CommandSpec, trailer_fd
from treadle.workspace.sandbox import line_kinds, seccomp
from treadle.workspace.sandbox.file_denials import find_outer
from treadle.workspace.sandbox.git_folders import find_outer_repository, list_worktree_links
from treadle.workspace.sandbox.line_kinds import ReadOnlyLine, Removal
from treadle.workspace.sandbox.mounts import make_mount_options
from treadle.workspace.sandbox.protected_paths import ProtectedPaths
from treadle.workspace.sandbox.run_record import RunRecord, describe_interrupted, take_interrupted
from treadle.workspace.sandbox.stand_ins import PartialIndexes, StandIns, make_git_environment
from treadle.workspace.sandbox.system_view import (
    SystemView,
    describe_refusals,
    find_missing_folders,
    find_needed,
    list_host_sockets,
    make_settings_options,
    make_visibility,
)
from treadle.workspace.sandbox.tree_scan import (
    GIT,
    HIDDEN,
    PROTECTED,
    READ_ONLY,
    SOCKET,
    FoundEntry,
    format_path,
    list_some,
)
from treadle.workspace.supervisor.syscalls import open_memory_file

NAMESPACE_OPTIONS = """
--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try
--disable-userns --cap-drop ALL --die-with-parent --new-session
"""

# Root could write /proc/sys even without capabilities, and a core_pattern runs on the host.
SYSTEM_OPTIONS = "--dev /dev --proc /proc --remount-ro /proc"

HIDDEN_FOLDERS = ("/run", "/home", "/root", "/var/tmp")
SCRATCH_FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev", "/proc")
"""What commands see there is their own, and not what is there outside."""


REFUSALS = tuple(os.strerror(number).encode() for number in (errno.EROFS, errno.EBUSY))
"""How programs end the line about a file that is read-only, or cannot be replaced."""

CLEANUP_TABLES: dict[str, object] = {
    "names": PROTECTED_FOLDERS | PROTECTED_FILES,
    "suffixes": PROTECTED_SUFFIXES,
    "pairs": PROTECTED_PAIRS,
    "git_folder": GIT_FOLDER,
    "git_parts": PROTECTED_IN_GIT,
    "generated": GENERATED_FOLDERS,
}
"""For the supervisor, which moves away what a command made if its agent was killed."""


class Bubblewrap:
    """Wraps commands for one confinement, and moves away what they may not make."""

    name, program_name = "bubblewrap", "bwrap"
    has_namespaces = True  # mounts and a network of its own
    missing = "bubblewrap is not installed (package bubblewrap, program bwrap)"

    def __init__(self, confinement: Confinement, program: str) -> None:
        self.confinement = confinement
        self.program = program
        self._set_aside_dir = aside = confinement.state_dir / "set_aside"
        names = confinement.protected
        self._protections = [
            ProtectedPaths(root, aside, names, confinement.denials, self._is_out_of_reach)
            for root in confinement.writable
        ]
        self._stand_ins = StandIns(confinement.copies_dir / "stand_ins")
        self._indexes = PartialIndexes(confinement.copies_dir / "indexes")
        self._proxy = DomainProxy()
        self._record_dir = confinement.state_dir / "running"
        self._record = RunRecord(self._record_dir)
        self._outer_denied: list[FoundEntry] | None = None
        self._system = SystemView(confinement.state_dir / "system" if self.has_namespaces else None)
        self._settings: list[str] | None = None
        self._is_visible: Callable[[str], bool] = bool  # of the last command
        self._active_count = 0
        self._notes: list[str] = []
        self._hidden: list[str] = []
        self._secrets: list[str] = []  # that the last search did not see
        self._denied: list[str] = []  # by rules about writing
        self._read_only: list[str] = []

    def scan(self) -> None:
        """Look at the folders once; later scans are fast. For a thread, before the trial."""
        for protection in self._protections:
            protection.prepare()
        roots = {protection.root: protection for protection in self._protections}
        for run in take_interrupted(self._record_dir, roots):
            made = roots[os.fsdecode(run.root)].find_made_since(run.known, run.time_ns)
            self._notes += describe_interrupted(made)

    def close(self) -> None:
        self._proxy.close()
        self._record.close()

    @contextmanager
    def wrap(
        self,
        command: CommandSpec,
        *,
        network: NetworkAccess | None = None,
        is_trial: bool = False,
        removal: Removal | None = None,
        reading: ReadOnlyLine | None = None,
    ) -> Iterator[CommandSpec]:
        """The command that runs it inside. WorkspaceError if the sandbox cannot be built.
        `is_trial`: it is our own and changes nothing. `removal`: it only removes these paths.
        `reading`: it only reads, so nothing is writable."""
        if not self.program:
            raise WorkspaceError(f"the sandbox cannot be built: {self.missing}")
        if self.confinement.read_only:
            network, removal, reading = False, None, line_kinds.UNKNOWN_LINE
        with_network = join_network(self.confinement.network, network)
        self._active_count += 1
        for protection in self._protections:
            protection.repositories.had_network |= bool(with_network)
        fds: list[int] = []
        has_run = False
        proxy = None
        try:
            mounts = self._mount_options(command, with_network, removal, reading)
            if self.has_namespaces and isinstance(with_network, tuple) and with_network:
                proxy = self._proxy.serve(with_network)
                fds.append(proxy.descriptor)
                number = trailer_fd() - 1
                command = msgspec.structs.replace(
                    command,
                    argv=proxy.make_argv(number, command.argv),
                    descriptors={**command.descriptors, number: proxy.descriptor},
                )
            confined = self._confine(command, mounts, with_network is True, fds)
            has_run = True
            yield msgspec.structs.replace(
                confined,
                cleanup={**CLEANUP_TABLES, "roots": self._list_known() if reading is None else []},
                set_aside_dir=str(self._set_aside_dir),
            )
        finally:
            _close_all(fds)
            if proxy is not None:
                proxy.close()
                self._notes += describe_refusals(proxy.refusals)
            self._active_count -= 1
            if has_run and not is_trial and reading is None:
                self._check()  # else nothing was made by a command
            if not self._active_count:
                self._record.finish()

    def _confine(
        self, command: CommandSpec, mounts: Sequence[str], network: bool, fds: list[int]
    ) -> CommandSpec:
        """The command with these mounts; the descriptors that it needs are added to `fds`."""
        options = [*NAMESPACE_OPTIONS.split(), *([] if network else ["--unshare-net"])]
        options += [*mounts, "--chdir", command.cwd]
        # LD_* must not affect bubblewrap itself, which runs outside.
        env = {k: v for k, v in command.env.items() if not k.startswith("LD_")}
        for name in command.env.keys() - env.keys():
            options += ["--setenv", name, command.env[name]]
        # Bubblewrap reads the filter to its end, so each run needs its own file.
        filter_fd = open_memory_file("treadle-filter", seccomp.build_filter())
        fds.append(filter_fd)
        seccomp_fd = trailer_fd() + 1
        options += ["--seccomp", str(seccomp_fd)]
        # Else Ctrl-C would end bubblewrap, too.
        terminal_session = ("setsid", "--ctty") if command.terminal is not None else ()
        ruleset = landlock.make_scope_ruleset()
        fds += [] if ruleset is None else [ruleset]
        return msgspec.structs.replace(
            command,
            argv=(self.program, *options, "--", *terminal_session, *command.argv),
            env=env,
            cwd="/",
            descriptors={**command.descriptors, seccomp_fd: filter_fd},
            landlock_ruleset=ruleset,
            in_bubblewrap=True,
        )

    def _list_known(self) -> list[tuple[str, list[str]]]:
        return [(protection.root, protection.list_known()) for protection in self._protections]

    def _is_out_of_reach(self, path: Path) -> bool:
        """Whether commands see what is at this path outside, and cannot write to it."""
        confinement = self.confinement
        if any(map(path.is_relative_to, (*confinement.writable, confinement.temp_dir))):
            return False
        is_scratch = any(map(path.is_relative_to, SCRATCH_FOLDERS))
        return not is_scratch or any(map(path.is_relative_to, confinement.readable))

    def _check(self) -> None:
        for protection in self._protections:
            self._notes += protection.check()

    def accept(self, path: Path) -> None:
        """A tool wrote this file: it is not moved away."""
        for protection in self._protections:
            protection.accept(path)

    @property
    def hidden_files(self) -> tuple[str, ...]:
        """The files that deny rules hide, or that a search leaves out: relative to the first root,
        or absolute."""
        return (*self._hidden, *self._secrets)

    def take_notes(self) -> list[str]:
        """What the user and the model have to know about files, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def describe_limits(self, output: bytes) -> list[str]:
        """What a command in the sandbox could not read or change. `output` is what it printed: a
        program that could not change a file says so there."""
        notes = self._describe_refused(output)
        if missing := find_missing_folders(output, self._is_visible):
            notes.append(
                f"the sandbox does not show {', '.join(missing)}; the user can add folders that "
                "commands may read to the setting sandbox_readable"
            )
        if self._hidden:
            notes.append(f"deny rules hide from commands: {list_some(self._hidden)}")
        if self._secrets:
            names = list_some(self._secrets)
            notes.append(f"hidden, because they may contain secrets: {names}")
        return notes

    def _describe_refused(self, output: bytes) -> list[str]:
        """Lines about the read-only paths that a program names in an error about writing."""
        lines = [line for line in output.splitlines() if line.rstrip(b"'\".").endswith(REFUSALS)]
        notes = []
        if denied := _find_named(self._denied, lines):
            notes.append(
                f"a deny rule of the user forbids writing {denied}, with any tool: do the task "
                "without it, or tell the user"
            )
        if refused := _find_named(self._read_only, lines):
            notes.append(
                f"the sandbox keeps {refused} as it is, because programs outside of it use it: ask "
                "the user to run a command that has to change it. To remove it, run `rm -r PATH` "
                "as a command of its own; the user is asked"
            )
        return notes

    def _mount_options(
        self,
        command: CommandSpec,
        network: NetworkAccess,
        removal: Removal | None,
        reading: ReadOnlyLine | None,
    ) -> list[str]:
        """In order: later mounts cover earlier ones."""
        confinement, self._hidden, self._read_only = self.confinement, [], []
        homes = _find_homes(command.env.get("HOME", ""))
        options = [*self._system.list_options(bool(network)), *SYSTEM_OPTIONS.split()]
        options += ["--bind", str(confinement.temp_dir), "/tmp"]  # a home may lie in it
        for hidden in sorted({*_filter_existing(*HIDDEN_FOLDERS), *map(str, homes)}):
            options += [*self._size_options(4), "--tmpfs", hidden]
        options += [*self._size_options(2), "--perms", "1777", "--tmpfs", "/dev/shm"]
        options += _resolver_options() if network is True else []
        needed = find_needed(homes, command.env.get("PATH", ""))
        for path in needed:
            options += ["--ro-bind-try", path, path]
        options += self._settings_options(homes)
        for readable in confinement.readable:
            options += ["--ro-bind-try", str(readable), str(readable)]
        covered = (*HIDDEN_FOLDERS, "/tmp", "/proc", "/dev", *map(str, homes))
        shown = (*map(str, (*confinement.writable, *confinement.readable)), *needed)
        is_visible = self._is_visible = make_visibility(shown, bool(network))
        options += self._git_options(homes, is_visible)
        for root, protection in zip(confinement.writable, self._protections, strict=True):
            _refuse_root_around_home(root, homes)
            is_read_only = protection.is_read_only or reading is not None
            bind = "--ro-bind" if is_read_only else "--bind"
            options += [bind, str(root), str(root)]
        entries = self._find_entries(covered, is_visible)
        if removal is not None and self._active_count == 1:
            entries = line_kinds.drop_removed(entries, removal)
        secrets: list[FoundEntry] = []
        if reading is not None:
            secrets, entries = self._hide_secrets(reading), reading.choose(entries)
        for git in (entry.path for entry in entries if entry.kind == GIT):
            for link in map(str, list_worktree_links(git)):
                options += [] if is_visible(link) else ["--ro-bind-try", link, link]
        copies = None
        if self._active_count > 1:
            confinement.copies_dir.mkdir(parents=True, exist_ok=True)
            copies = Path(tempfile.mkdtemp(dir=confinement.copies_dir))
        shown_in = confinement.writable
        options += make_mount_options([*entries, *secrets], shown_in, self._stand_ins, copies)
        self._hidden = self._list_names(entries, HIDDEN)
        self._secrets = self._list_names(secrets, HIDDEN)
        self._denied = self._list_names(entries, READ_ONLY)
        self._read_only = self._list_names(entries, GIT, PROTECTED)
        if self._stand_ins.has_tracked:
            for name, value in make_git_environment(command.env).items():
                options += ["--setenv", name, value]
        return [*options, "--remount-ro", "/"]

    def _hide_secrets(self, reading: ReadOnlyLine) -> list[FoundEntry]:
        roots = [protection.root for protection in self._protections]
        found = [entry for protection in self._protections for entry in protection.secrets]
        return reading.hide(found, roots)

    def _list_names(self, entries: Sequence[FoundEntry], *kinds: str) -> list[str]:
        roots = self.confinement.writable
        return [_shorten(entry.path, roots) for entry in entries if entry.kind in kinds]

    def _size_options(self, share: int) -> list[str]:
        limit = self.confinement.max_memory
        return ["--size", str(limit // share)] if limit else []

    def _settings_options(self, homes: tuple[Path, ...]) -> list[str]:
        """Settings of tools in home; they are copied once."""
        if self._settings is None:
            folder = self.confinement.copies_dir / "settings"
            self._settings = make_settings_options(homes, folder)
        return self._settings

    def _git_options(self, homes: Sequence[Path], is_visible: Callable[[str], bool]) -> list[str]:
        """The git folders outside of the roots, read-only."""
        confinement, options = self.confinement, list[str]()
        for root in confinement.writable:
            outer = find_outer_repository(root, homes)
            if outer is None or not outer.needed:
                continue
            # Between the workspace and its repository there is a mount of the sandbox.
            options += ["--setenv", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"]
            for path in outer.needed:
                options += ["--ro-bind-try", str(path), str(path)]
            shown = (*confinement.writable, *confinement.readable)
            if not is_visible(f"{outer.worktree}/"):
                inside = [path for path in shown if path.is_relative_to(outer.worktree)]
                names = [str(path.relative_to(outer.worktree)) for path in inside]
                if index := self._indexes.find(outer.git, names, outer.worktree):
                    options += ["--ro-bind", index, str(outer.git / "index")]
        return options

    def _find_entries(
        self, covered: Sequence[str], is_visible: Callable[[str], bool]
    ) -> list[FoundEntry]:
        """What is mounted over what is there: hidden, or read-only."""
        is_first = self._active_count == 1
        if not is_first and not self.confinement.read_only:
            self._check()
        entries = []
        for protection in self._protections:
            found = protection.begin(is_first=is_first)
            entries += found
            self._notes += protection.describe_unlisted(found)
            self._notes += protection.take_leftovers()
        if is_first:
            self._record.begin(self._list_known())
        roots = self.confinement.writable
        if self._outer_denied is None:
            self._outer_denied = find_outer(self.confinement.denials, roots, covered)
        entries += [entry for entry in self._outer_denied if is_visible(entry.path)]
        in_roots = tuple(f"{root}/" for root in roots)
        sockets = list_host_sockets(lambda p: is_visible(p) and not p.startswith(in_roots))
        entries += [FoundEntry(path, SOCKET, 0, (0, 0)) for path in sockets]
        return entries


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


def _find_named(paths: Sequence[str], lines: Sequence[bytes]) -> str:
    """The first of these paths that the lines name, without the folders above others."""
    named = [path for path in paths if any(os.fsencode(path) in line for line in lines)]
    last = [path for path in named if not any(path in other for other in {*named} - {path})]
    return ", ".join(map(format_path, last[:5]))


def _shorten(path: str, roots: Sequence[Path]) -> str:
    return format_path(path.removeprefix(f"{roots[0]}/"))


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
