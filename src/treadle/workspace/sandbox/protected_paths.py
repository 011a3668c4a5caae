"""Paths in a writable folder that a command must not change, read or create.

What exists is mounted over itself read-only, or hidden. Nothing can be mounted where nothing is, so
what a command creates at a protected path is found when it ends and moved into a folder of the
agent; the result names it. Used by `bubblewrap.py`; uses tree_scan, repositories, git_folders
and protected_symlinks.
"""

# ruff: noqa: PTH116 - pathlib would slow down every command

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import (
    GIT_FOLDER,
    PROTECTED_IN_GIT,
    fold_case,
    is_read_only_name,
)
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.sandbox.changed_files import ProtectedFileChanges
from treadle.workspace.sandbox.entry_kinds import UNCHANGEABLE, WATCHED, EntryKinds, is_secret
from treadle.workspace.sandbox.file_denials import HardLinkScanner
from treadle.workspace.sandbox.folder_permissions import FolderPermissions
from treadle.workspace.sandbox.git_folders import (
    ConfiguredPaths,
    GitControlFiles,
    find_submodules,
    list_git_folders,
    list_worktree_parts,
)
from treadle.workspace.sandbox.mounts import MAX_DENIED, MOUNT_ORDER, choose_mounts
from treadle.workspace.sandbox.protected_symlinks import ProtectedSymlinks
from treadle.workspace.sandbox.repositories import IsOutOfReach, Repositories, list_untrusted
from treadle.workspace.sandbox.tree_scan import (
    GIT,
    HIDDEN,
    LINK,
    MAX_FOLDERS,
    MEMORY,
    PINNED,
    PROTECTED,
    READ_ONLY,
    SECRET,
    SOCKET,
    UNLISTED,
    Classify,
    FoundEntry,
    MakeListable,
    TreeScanner,
    find_entry,
    find_links,
    format_path,
    list_some,
    list_upwards,
    may_be_entered,
)
from treadle.workspace.supervisor.set_aside import set_aside
from treadle.workspace.supervisor.syscalls import is_born_before

_SEARCHED = frozenset({MEMORY, READ_ONLY, GIT, PROTECTED, SECRET})
"""Kinds of folders in which there may be what a deny rule hides. In a protected one there may be
symlinks, too."""

_DENIED_REASON = (
    "a deny rule of the user forbids writing it, with any tool. Do the task without it, or tell "
    "the user"
)
_MOVED_REASON = (
    "a command may not create it, because programs outside the sandbox use it. To create it, use "
    "the write tool, which asks the user"
)
_OTHER_FOLDERS = ("\1", "\1/\1", "\1/\1/\1")

GIT_COMMONDIR = f"/{GIT_FOLDER}/commondir"


class ProtectedPaths:
    """The protected paths below one writable root; `is_read_only` if a rule denies all of it.

    `begin` before a command starts, `check` when one has ended. What did not exist when the first
    of the running commands started was made meanwhile. `is_out_of_reach`: whether no command
    can change a path outside of the root.
    """

    def __init__(
        self,
        root: Path,
        set_aside_dir: Path,
        names: Iterable[str] = (),
        denials: FileDenials | None = None,
        is_out_of_reach: IsOutOfReach = lambda path: False,
        classify: Classify | None = None,
    ) -> None:
        self.root = str(root)
        self._set_aside_dir, self._opened_ns = str(set_aside_dir), time.time_ns()
        self._denials = denials or FileDenials()
        self._hard_links = HardLinkScanner(self.root)
        self.is_read_only = any(rule.forbids(self.root) for rule in self._denials.unwritable)
        has_denials = self._denials != FileDenials()
        searched = _SEARCHED if has_denials else {MEMORY, PROTECTED, SECRET}
        self._scanner = TreeScanner(
            self.root,
            classify or EntryKinds(self._denials, self.root).classify,
            searched=searched,
            with_generated=has_denials,
        )
        self._extra = [os.path.normpath(f"{self.root}/{name}") for name in names]
        self._configured = ConfiguredPaths(root)
        self.repositories = Repositories(root, self._opened_ns, is_out_of_reach)
        self._before: set[str] = set()  # the session, or written by a tool
        self._identities: frozenset[tuple[int, int, str, str]] | None = None  # the same
        self._baseline: dict[str, FoundEntry] = {}
        self._known: frozenset[tuple[int, int, str, str]] = frozenset()  # of the baseline
        self._changed_files = ProtectedFileChanges()
        self._prepared: list[FoundEntry] | None = None
        self._has_begun = False  # without a baseline nothing counts as made by a command
        self._symlinks = ProtectedSymlinks(self.root)
        self._git_files = GitControlFiles(self.root)
        self._memory: dict[str, tuple[int, int, int]] = {}
        self._own: set[tuple[str, int]] = set()  # sockets and denied files that commands made
        self._written: set[str] = set()
        self._leftovers: list[str] = []
        self._pins: frozenset[str] = frozenset()
        self._targets: dict[str, str] = {}
        self._permissions = FolderPermissions(self.root)
        self._named: set[str] = set()
        self.secrets: list[FoundEntry] = []  # as the last `begin` found them

    def scan(self, make_listable: MakeListable | None = None) -> list[FoundEntry]:
        """Everything of interest that exists now."""
        found = self._scanner.scan(make_listable)
        found += find_submodules(self.root, found)
        folders = [entry.path for entry in found if entry.kind == GIT]
        self.repositories.open(folders)
        found += [p for git in list_git_folders(found) for p in _find_parts(git, make_listable)]
        known = {entry.path for entry in found}
        extra = [*self._extra, *self._configured.list(folders)]
        for path in (*extra, *self._symlinks.targets):
            found += find_entry(path, PROTECTED) if path not in known else ()
        for path in (*extra, *(f"{git}/hooks" for git in folders)):
            found += find_links(path)
        return found + self._find_denied_behind_symlinks()

    def prepare(self) -> None:
        """Scan for the `begin` that follows at once: in a large folder a scan takes seconds."""
        self._prepared = self.scan()

    def begin(self, *, is_first: bool) -> list[FoundEntry]:
        """What has to be mounted for a command. `is_first`: no other command runs.
        WorkspaceError if it cannot be known."""
        found = self.scan() if self._prepared is None else self._prepared
        self._prepared = None
        self._refuse_unknown(found)
        self.secrets = [entry for entry in found if is_secret(entry)]
        if is_first:
            self._leftovers = [e.path for e in found if e.path.endswith(GIT_COMMONDIR)]
            found = [e for e in found if e.path not in self._leftovers]
            links = [entry for entry in found if entry.kind in WATCHED or entry.kind == LINK]
            targets = self._symlinks.begin(links)
            known = {entry.path for entry in found}
            found += [e for t in targets if t not in known for e in find_entry(t, PROTECTED)]
            found = self._mark_made(found)
            self._has_begun = True
            self._git_files.begin(list_git_folders(found))
            self._permissions.begin(e for e in found if e.kind == UNLISTED)
            self._memory = _read_states(found)
            self._written.clear()
            self._changed_files.reset()
        else:  # what is not known was made by a command, and is moved when it ends
            found = [e for e in found if e.kind not in WATCHED or self._is_known(e)]
            found = self._mark_made(found)
            self._changed_files.begin(found)
        found += self._hard_links.find(found)
        own = list_git_folders([entry for entry in found if entry.is_made])
        mounted = [e for e in found if self._has_to_be_mounted(e) and not _is_of_own(e, own)]
        if sum(entry.kind == HIDDEN for entry in mounted) > MAX_DENIED:  # of what commands made
            mounted = [entry for entry in mounted if (entry.path, entry.inode) not in self._own]
        pins = [] if self.is_read_only else self._list_pins(mounted)
        if is_first:
            self._pins = frozenset(pins)
        # A running command can replace a folder with a symlink, unless it is pinned there, too.
        pins = [path for path in pins if path in self._pins]
        mounts = choose_mounts([*mounted, *(FoundEntry(path, PINNED, 0, (0, 0)) for path in pins)])
        if is_first:
            self._set_baseline(found, frozenset(mounts))
        return mounts

    def _mark_made(self, found: Iterable[FoundEntry]) -> list[FoundEntry]:
        """The same entries; those are marked that appeared since the first command."""
        if self._identities is None:
            found = list(found)
            self._before.update(entry.path for entry in found)
            self._identities = frozenset(entry.identity for entry in found)
            return found
        before, identities = self._before, self._identities
        return [
            e if e.path in before or e.identity in identities else e._replace(is_made=True)
            for e in found
        ]

    def _set_baseline(self, found: Iterable[FoundEntry], mounts: frozenset[FoundEntry]) -> None:
        """What the next command did not make. What another one made and is not mounted is looked
        at again when it has ended."""
        kept = [e for e in found if not e.is_made or e.kind not in WATCHED or e in mounts]
        self._baseline = {entry.path: entry for entry in kept}
        self._known = frozenset(entry.identity for entry in kept)

    def _refuse_unknown(self, found: Iterable[FoundEntry]) -> None:
        if self._scanner.is_cut:
            raise WorkspaceError(
                f"{self._describe_cut()}: remove folders that are not needed, work in a folder "
                "below it, or run without the sandbox"
            )
        if any(e.kind == UNLISTED and e.path in ("/", self.root) for e in found):
            raise WorkspaceError(
                f"the folder {self.root} cannot be listed, so the files in it cannot be protected; "
                f"give yourself permission to read it (chmod u+rx {self.root})"
            )

    def _describe_cut(self) -> str:
        return f"{self.root} has more than the {MAX_FOLDERS:,} folders that the sandbox can check"

    def describe_unlisted(self, entries: Iterable[FoundEntry]) -> list[str]:
        """Lines about folders that are hidden because they cannot be listed; each one once."""
        unlisted = [e.path for e in entries if e.kind == UNLISTED and e.path not in self._named]
        self._named.update(unlisted)
        if not unlisted:
            return []
        names = ", ".join(map(self._shorten, unlisted[:5]))
        return [
            f"{names} cannot be listed, so it is hidden from commands; to use it, the user has to "
            "permit reading it (chmod u+rx)"
        ]

    def take_leftovers(self) -> list[str]:
        """Move away what a command left that was killed with its agent. A repository's own folder
        has no `commondir`: it redirects git."""
        leftovers, self._leftovers = self._leftovers, []
        return self._describe_moved(map(self._move, leftovers), _MOVED_REASON)

    def check(self) -> list[str]:
        """Move away what was made at protected paths; returns lines for the user and the model."""
        if not self._has_begun:
            return []
        found = self.scan(self._permissions.make_listable)
        self._own |= {
            (e.path, e.inode)
            for e in found
            if e.kind in (SOCKET, HIDDEN)
            and e.path not in self._baseline
            and e.identity not in self._known
        }
        made = self._list_made(found)
        denied = self._move_untrusted(e for e in made if e.kind == READ_ONLY)
        moved = self._move_untrusted(e for e in made if e.kind != READ_ONLY)
        for path in self._symlinks.list_changed():
            moved.append(self._move(path))
            self._symlinks.restore(path)
        for path in self._git_files.list_harmful(list_git_folders(found)):
            moved.append(self._move(path))
            self._git_files.restore(path)
        notes = self._describe_moved(denied, _DENIED_REASON)
        notes += self._describe_moved(moved, _MOVED_REASON)
        notes += self._describe_opened_up()
        changed = self._changed_files.take_changed(filter(self._is_known, found))
        if changed := [path for path in changed if path not in self._written]:
            names = list_some([*map(self._shorten, changed)])
            notes.append(f"{names} was changed, although it is protected: look at it")
        if brought := self.repositories.take_brought():
            names = list_some([self._shorten(str(path)) for path in brought])
            notes.append(
                f"{names} came with a checkout or clone: look at it before programs use it"
            )
        if self._scanner.is_cut:
            notes.append(f"{self._describe_cut()}: not all were checked for protected files")
        states = _read_states(found)
        changed = [p for p, state in states.items() if self._memory.get(p) != state]
        self._memory = states
        changed = [path for path in changed if path not in self._written]
        if changed:
            names = ", ".join(map(self._shorten, changed))
            notes.append(f"{names} was changed: agents read it as instructions")
        return notes

    def accept(self, path: Path) -> None:
        """A tool wrote this path, with the user's approval: it is not a command's."""
        self._written.add(str(path))
        if path.is_relative_to(self.root):
            self._before.update(list_upwards(str(path), self.root))

    def list_known(self) -> list[str]:
        """What existed when the first of the running commands started."""
        return [*self._baseline, *self._written]

    def find_made_since(self, known: Iterable[bytes], time_ns: int) -> list[str]:
        """What appeared at protected paths since a time, for the user: it is not moved, because
        the user may have made it."""
        found, before = self.scan(), frozenset(map(os.fsdecode, known))
        new = [e for e in found if e.kind in WATCHED and e.path not in before]
        new = [entry for entry in new if is_born_before(entry.path, time_ns) is not True]
        return [self._shorten(str(path)) for entry in new for path in self._list_untrusted(entry)]

    # Details

    def _find_denied_behind_symlinks(self) -> list[FoundEntry]:
        """Paths that a rule names and a scan does not reach, because it follows no symlinks. What
        a symlink named once stays denied: a command may replace the symlink."""
        for kind, rule in self._denials.list_rules():
            for path in rule.list_fixed_prefixes():
                if path.startswith(f"{self.root}/") and rule.forbids(path):
                    target = os.path.realpath(path)
                    if target != path:
                        self._targets[target] = kind
        return [entry for path, kind in self._targets.items() for entry in find_entry(path, kind)]

    def _list_pins(self, found: Sequence[FoundEntry]) -> list[str]:
        """The folders that may not be renamed: a protected path is not known under another."""
        unchangeable = {entry.path for entry in found if entry.kind in UNCHANGEABLE}
        pins: dict[str, None] = {}
        for entry in found:
            folder = entry.path.rpartition("/")[0]
            if folder.startswith(f"{self.root}/") and self._is_known_by_folder(folder, entry):
                above = list(list_upwards(folder, self.root))
                held = [at for at, path in enumerate(above) if path in unchangeable]
                # A pin is writable, so there is none in a folder that is read-only.
                pins |= dict.fromkeys(above[held[-1] + 1 :] if held else above)
        return list(pins)

    def _is_known_by_folder(self, folder: str, entry: FoundEntry) -> bool:
        """Whether it would not be found as what it is, if its folder had another name."""
        name = entry.path.rpartition("/")[2]
        if entry.kind in (HIDDEN, READ_ONLY):
            others = (f"{self.root}/{place}/{name}" for place in _OTHER_FOLDERS)
            return any(self._denials.classify(other) != entry.kind for other in others)
        is_in_git = f"/{GIT_FOLDER}/" in fold_case(f"{folder}/")
        return entry.kind == PROTECTED and not is_in_git and not is_read_only_name("", name)

    def _has_to_be_mounted(self, entry: FoundEntry) -> bool:
        if entry.kind == SOCKET:
            return (entry.path, entry.inode) not in self._own
        if entry.kind == UNLISTED:
            return may_be_entered(entry.path)
        if self.is_read_only:
            return entry.kind == HIDDEN
        return entry.kind in MOUNT_ORDER

    def _list_made(self, found: Sequence[FoundEntry]) -> list[FoundEntry]:
        made = []
        for entry in found:
            before = self._baseline.get(entry.path)
            if entry.kind not in WATCHED or entry.path in self._symlinks.texts:
                continue
            if before is None:
                # A folder that was renamed takes its protected files along.
                is_made = entry.identity not in self._known
            else:
                # A program of the user replaces a file; only a command replaces its folder.
                is_made = before.parent != entry.parent
                is_made |= entry.kind == GIT and before.inode != entry.inode
            if is_made:
                made.append(entry)
        paths = {entry.path for entry in made}
        return [e for e in made if not any(str(p) in paths for p in Path(e.path).parents)]

    def _move_untrusted(self, entries: Iterable[FoundEntry]) -> list[str]:
        harmful: dict[Path, None] = {}
        for entry in entries:
            if entry.kind == READ_ONLY and self._is_older(entry.path):
                continue  # a command has renamed what the user made
            self._permissions.make_tree_listable(entry.path)
            harmful |= dict.fromkeys(self._list_untrusted(entry))
        return [name for path in harmful if (name := self._move(str(path)))]

    def _list_untrusted(self, entry: FoundEntry) -> list[Path]:
        path = Path(entry.path)
        if entry.kind == READ_ONLY:
            return [path]
        try:
            has_file = self.repositories.has_file
            is_written = set(map(Path, self._written)).__contains__
            return list_untrusted(path, Path(self.root), is_written, has_file, self._is_older)
        except OSError:
            return [path]  # what cannot be read is not trusted

    def _describe_opened_up(self) -> list[str]:
        names = ", ".join(map(self._shorten, self._permissions.take_changed()[:5]))
        note = f"{names} got the permissions u+rwx again: what cannot be listed cannot be checked"
        return [note] if names else []

    def _move(self, path: str) -> str:
        try:
            set_aside(path, self.root, self._set_aside_dir)
        except FileNotFoundError:
            return ""  # gone meanwhile
        except OSError as error:
            return f"{self._shorten(path)} (it is still there: {error.strerror})"
        return self._shorten(path)

    def _describe_moved(self, moved: Iterable[str], reason: str) -> list[str]:
        names = ", ".join(dict.fromkeys(filter(None, moved)))
        return [f"{names} was moved to {self._set_aside_dir}: {reason}"] if names else []

    def _is_known(self, entry: FoundEntry) -> bool:
        if entry.path in self._baseline or entry.identity in self._known:
            return True
        return any(f"{w}/".startswith(f"{entry.path}/") for w in self._written)

    def _is_older(self, path: str) -> bool:
        """Whether it existed before the workspace was opened."""
        return is_born_before(path, self._opened_ns) is True

    def _shorten(self, path: str) -> str:
        return format_path(path.removeprefix(self.root + "/"))


def _is_of_own(entry: FoundEntry, own: Collection[str]) -> bool:
    """Whether it is a git folder that commands made (or the file of a linked worktree), or a part
    of one: they may remove it. It is looked at again when a command has ended."""
    if not own or not entry.is_made or entry.kind not in (GIT, PROTECTED):
        return False
    return any(f"{entry.path}/".startswith(f"{git}/") for git in own)


def _find_parts(git: str, make_listable: MakeListable | None) -> list[FoundEntry]:
    """The protected parts of a git folder; of a `.git` file none."""
    paths = [*(f"{git}/{part}" for part in PROTECTED_IN_GIT), *list_worktree_parts(git)]
    found = [e for path in paths for e in find_entry(path, PROTECTED)]
    unlisted = {entry.path for entry in found if entry.kind == UNLISTED}
    if make_listable is not None and any(map(make_listable, unlisted)):
        return _find_parts(git, make_listable)
    return found


def _read_states(found: Iterable[FoundEntry]) -> dict[str, tuple[int, int, int]]:
    """Of memory files: what changes if they are written."""
    states = {}
    for entry in found:
        if entry.kind == MEMORY:
            try:
                status = os.stat(entry.path)
            except OSError:
                continue
            states[entry.path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return states
