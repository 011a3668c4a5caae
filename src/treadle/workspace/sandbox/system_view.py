"""What a sandboxed command sees of the system and of the home folder: an allow list.

Programs, libraries, certificates, time zones, and what the tools of the project need. Everything
else is not there: no password file, no credentials, no socket, however it was bound. Files with
settings that may contain credentials are shown without them. Used by `bubblewrap.py`.
"""

# ruff: noqa: PTH101, PTH102, PTH110, PTH112, PTH113, PTH114, PTH115, PTH208, PTH211 - no error if it may not be read

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.git.config import read_config
from treadle.lib.text.word_set import word_set

_TOP_FOLDERS = (
    "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix /gnu /snap /Library /System "
    "/sys/devices/system"  # not all of /sys: the many mounts in it cost time at each command
)
_ETC_NAMES = word_set(
    """
    alternatives ld.so.cache ld.so.conf ld.so.conf.d ld-musl-aarch64.path ld-musl-x86_64.path
    passwd group hosts hostname host.conf nsswitch.conf resolv.conf gai.conf machine-id
    ssl ca-certificates ca-certificates.conf pki crypto-policies localtime timezone
    os-release lsb-release debian_version redhat-release alpine-release fedora-release issue
    mime.types magic magic.mime services protocols networks rpc ethertypes netconfig
    profile profile.d bash.bashrc bashrc bash_completion.d inputrc shells
    locale.alias locale.conf locale.gen fonts terminfo manpath.config papersize
    perl R java java-8-openjdk java-11-openjdk java-17-openjdk java-21-openjdk maven gradle
    gprofng.rc gdb groff vim nanorc screenrc php ruby ghc ocaml texmf ImageMagick-6
    ImageMagick-7 OpenCL vulkan glvnd X11 xdg dconf python3 python3.11 python3.12 dpkg skel nix
    login.defs
    """
)
_ETC_WITH_NETWORK = word_set("pip.conf npmrc wgetrc yum.repos.d")
_MAX_COPIED_BYTES, _MAX_COPIED_FILES = 1 << 20, 16
_MAX_LINKS = 40  # as in the kernel
_UNUSED_SECONDS = 30 * 86_400.0
_PRIVATE_IN_ETC = ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/private")
_VAR_FOLDERS = "/var/lib/dpkg /var/cache/fontconfig /var/lib/ghc /var/lib/texmf /var/lib/xkb"

_READABLE_IN_HOME = """
.config/git/ignore .config/git/attributes .local/bin .local/lib .local/share/uv .local/share/mise
.local/share/pnpm .local/share/pipx .pyenv .rbenv .nvm .volta .fnm .asdf .sdkman .bun .deno
.npm-global go .rustup .cargo/bin .cargo/env .cargo/registry .cargo/git
"""
_HIDDEN_IN_HOME = (".local/share/uv/credentials", ".local/share/mise/credentials")
_GIT_SETTINGS = (".gitconfig", ".config/git/config")
_TOOL_SETTINGS = (".cargo/config.toml", ".cargo/config")
# Sections of a git configuration that have no passwords, tokens or headers.
_GIT_SECTIONS = word_set(
    "user author committer core init pull push color diff merge rebase branch alias commit tag log "
    "format filter safe fetch status column rerere advice help pager apply blame checkout clean "
    "grep index stash submodule transfer pack gc feature extensions"
)
_SECRET_LINE = re.compile(r"token|secret|passw|credential|auth|://[^/\s]*@", re.IGNORECASE)


_NOT_FOUND = os.strerror(errno.ENOENT).encode()
_TOP_FOLDER = re.compile(rb"(?<![\w./-])/[\w.-]+(?=/)")
_OWN_FOLDERS = word_set("/home /root /tmp /run /var /proc /dev /boot /lost+found")


@cache
def list_system_options(network: bool) -> tuple[str, ...]:
    """Bubblewrap's options for the system; a symlink stays one."""
    options: list[str] = []
    for top in _TOP_FOLDERS.split():
        if os.path.islink(top):
            options += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            options += ["--ro-bind", top, top]
    try:
        names = sorted(os.listdir("/etc"))
    except OSError:
        names = []
    shown = _ETC_NAMES | _ETC_WITH_NETWORK if network else _ETC_NAMES
    for name in names:
        if name in shown:
            path = f"/etc/{name}"
            is_link = os.path.islink(path) and os.readlink(path).startswith("/etc/")
            options += ["--symlink", os.readlink(path), path] if is_link else []
            options += [] if is_link else ["--ro-bind-try", path, path]
    for private in filter(os.path.isdir, _PRIVATE_IN_ETC):
        options += ["--perms", "0000", "--tmpfs", private]
    for folder in _VAR_FOLDERS.split():
        options += ["--ro-bind-try", folder, folder]
    return tuple(options)


class SystemView:
    """Bubblewrap's options for the system, with copies of /etc in a folder if there is one."""

    def __init__(self, copies: Path | None) -> None:
        self._copies = copies
        self._options: tuple[str, ...] = ()  # without the network

    def list_options(self, network: bool) -> tuple[str, ...]:
        if network or self._copies is None:
            return list_system_options(network)
        self._options = self._options or list_copied_options(self._copies)
        return self._options


def list_copied_options(folder: Path) -> tuple[str, ...]:
    """The same without the network, and with the small files of /etc as one mount of a copy below
    this folder: sixty mounts would cost more than all the rest of the sandbox. The copy is used by
    all agents of this user, until a file or the machine changes or starts anew."""
    options, kept, inside = list_system_options(network=False), list[str](), list[str]()
    entries, at = list[_Entry](), 0
    try:
        while at < len(options):
            count = 4 if options[at] == "--perms" else 3
            option = options[at : at + count]
            at, path, name = at + count, option[-1], option[-1][5:]
            if not path.startswith("/etc/"):
                kept += option
            elif option[0] == "--symlink":
                entries.append(_Entry(name, link=option[1]))
            elif count == 3 and (small := _list_small(_follow(path), name)) is not None:
                entries += small
            else:
                inside += option
                entries += [_Entry(name)] if count == 3 else []
        copy = _find_copy(folder, entries)
    except OSError:
        return options
    return (*kept, "--ro-bind", copy, "/etc", *inside)


class _Entry(NamedTuple):
    """A folder, a symlink or a file (with a source) of the copy."""

    name: str
    link: str = ""
    source: str = ""
    version: tuple[int, ...] = ()  # mode, size and time of the file


def _follow(path: str) -> str:
    """What a symlink leads to; for other paths realpath would only cost time."""
    return os.path.realpath(path) if os.path.islink(path) else path


def _list_small(source: str, name: str) -> list[_Entry] | None:
    """A file of usual size, or a folder with a few of them; None if it is more. Symlinks stay as
    they are."""
    entries, todo = list[_Entry](), [(source, name)]
    while todo:
        if len(entries) > _MAX_COPIED_FILES:
            return None
        source, name = todo.pop()
        status = os.lstat(source)
        if stat.S_ISLNK(status.st_mode):
            entries.append(_Entry(name, link=os.readlink(source)))
        elif status.st_size > _MAX_COPIED_BYTES:
            return None
        elif stat.S_ISDIR(status.st_mode):
            entries.append(_Entry(name))
            with suppress(PermissionError), os.scandir(source) as inner:
                first = islice(inner, _MAX_COPIED_FILES + 1)
                todo += [(f"{source}/{one.name}", f"{name}/{one.name}") for one in first]
        elif stat.S_ISREG(status.st_mode):
            version = (status.st_mode, status.st_size, status.st_mtime_ns)
            entries.append(_Entry(name, source=source, version=version))
    return entries


def _find_copy(folder: Path, entries: Sequence[_Entry]) -> str:
    """The copy with these entries, made if it is not there yet. What may not be read is left
    out."""
    started = LOCAL_FILES.read("/proc/sys/kernel/random/boot_id", 100)
    version = hashlib.sha256(repr((started, sorted(entries))).encode(errors="surrogateescape"))
    copy = folder / version.hexdigest()[:16]
    if copy.is_dir():
        os.utime(copy)
        return str(copy)
    make_private_folder(folder)
    _remove_unused(folder)
    made = Path(tempfile.mkdtemp(dir=folder))
    for entry in entries:
        target = f"{made}/{entry.name}"
        if entry.link:
            os.symlink(entry.link, target)
        elif entry.source:
            with suppress(PermissionError):
                shutil.copyfile(entry.source, target)
                os.chmod(target, stat.S_IMODE(entry.version[0]) & 0o755)
        else:
            os.mkdir(target, 0o755)
    made.chmod(0o755)
    try:
        made.rename(copy)
    except OSError:
        shutil.rmtree(made)  # another agent was faster
    return str(copy)


def _remove_unused(folder: Path) -> None:
    for old in folder.iterdir():
        with suppress(FileNotFoundError):  # another agent has just given it its name
            if time.time() - old.lstat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


def make_visibility(shown: Iterable[str], network: bool) -> Callable[[str], bool]:
    """Tells whether a path is there in the sandbox: below these folders, or of the system."""
    folders = tuple(f"{one}/" for one in shown)
    visible = (*folders, *list_visible_tops())
    names = _ETC_NAMES | _ETC_WITH_NETWORK if network else _ETC_NAMES

    def is_visible(path: str) -> bool:
        is_listed = not path.startswith("/etc/") or path.split("/")[2] in names
        return path.startswith(visible if is_listed else folders)

    return is_visible


@cache
def list_visible_tops() -> tuple[str, ...]:
    """The folders of the system that are shown, with a slash at their ends."""
    return tuple(f"{top}/" for top in (*_TOP_FOLDERS.split(), "/etc", *_VAR_FOLDERS.split()))


@cache
def find_needed(homes: tuple[Path, ...], search: str) -> tuple[str, ...]:
    """The visible parts of home, and the folders of tools elsewhere: the usual ones, those of PATH,
    and this Python."""
    usual = [home / name for home in homes for name in _READABLE_IN_HOME.split()]
    tools = [Path(entry) for entry in search.split(":") if entry.startswith("/")]
    system = tuple(Path(top) for top in list_visible_tops())
    shown: list[Path] = []
    prefixes = (Path(sys.prefix), Path(sys.base_prefix))
    for path in sorted({*usual, *map(_find_prefix, tools), *prefixes, *_find_linked(tools)}):
        is_home = any(home.is_relative_to(path) for home in homes)
        is_known = is_home or any(map(path.is_relative_to, (*shown, *system)))
        if not is_known and os.path.exists(path) and len(path.parts) > 1:
            shown.append(path)
    return tuple(map(str, shown))


def _find_prefix(folder: Path) -> Path:
    """`/opt/node` for `/opt/node/bin`: a program needs what was installed with it."""
    is_own = folder.name in ("bin", "sbin") and folder.parts[1:2] == ("opt",)
    return folder.parent if is_own and len(folder.parts) > 3 else folder


def _find_linked(folders: Iterable[Path]) -> Iterator[Path]:
    """Where symlinks in the folders of programs lead below /opt: `/opt/node`."""
    find_real = cache(os.path.realpath)  # hundreds of links lead into a few folders
    for folder in {find_real(folder) for folder in folders}:
        try:
            links = [entry.path for entry in os.scandir(folder) if entry.is_symlink()]
        except OSError:
            continue
        for path in links:
            for _ in range(_MAX_LINKS):
                try:
                    target = os.readlink(path).rstrip("/")
                except OSError:
                    break  # no further link
                at = path[: path.rindex("/")]
                parent, name = os.path.split(target if target[:1] == "/" else f"{at}/{target}")
                path = f"{find_real(parent)}/{name}"
            parts = Path(path).parts
            if parts[1:2] == ("opt",) and len(parts) > 3:
                yield Path(*parts[:3])


def make_settings_options(homes: Sequence[Path], copies: Path) -> list[str]:
    """Mounts of settings in home without what may be a credential, as copies in a folder."""
    options: list[str] = []
    for home in homes:
        for name in (*_GIT_SETTINGS, *_TOOL_SETTINGS):
            path = home / name
            if not os.path.isfile(path):
                continue
            text = _copy_git_settings(path) if name in _GIT_SETTINGS else _drop_secrets(path)
            copies.mkdir(parents=True, exist_ok=True, mode=0o700)
            copy = copies / f"{len(options)}-{path.name}"
            # What cannot be read is empty inside.
            copy.write_text(text, encoding="utf-8", errors="surrogateescape")
            options += ["--ro-bind", str(copy), str(path)]
        for name in _HIDDEN_IN_HOME:
            if os.path.isdir(home / name):
                options += ["--tmpfs", str(home / name)]
    return options


def _copy_git_settings(path: Path) -> str:
    lines: list[str] = []
    for key, value in read_config(LOCAL_FILES, str(path)) or ():
        section, _, rest = key.partition(".")
        if section not in _GIT_SECTIONS or _SECRET_LINE.search(value):
            continue
        subsection, _, name = rest.rpartition(".")
        quoted = subsection.replace("\\", "\\\\").replace('"', '\\"')
        head = f'[{section} "{quoted}"]' if subsection else f"[{section}]"
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += [head, f'\t{name} = "{escaped}"']
    return "\n".join(lines) + "\n"


def _drop_secrets(path: Path) -> str:
    content = (LOCAL_FILES.read(str(path), 1 << 20) or b"").decode(errors="surrogateescape")
    return "".join(f"{line}\n" for line in content.splitlines() if not _SECRET_LINE.search(line))


def find_missing_folders(output: bytes, is_visible: Callable[[str], bool]) -> list[str]:
    """The top folders of the machine that a program did not find, because they are not shown. Only
    these are told: whether a deeper path exists is not for a command to know."""
    found: dict[str, None] = {}
    for line in output.splitlines():
        if line.rstrip(b"'\".").endswith(_NOT_FOUND):
            for match in _TOP_FOLDER.finditer(line):
                top = os.fsdecode(match[0])
                if top not in _OWN_FOLDERS and not is_visible(f"{top}/") and os.path.isdir(top):
                    found[top] = None
    return list(found)


# ------------------------------------------------------------------ sockets of the host


def list_host_sockets(is_visible: Callable[[str], bool]) -> list[str]:
    """The paths of bound sockets that exist and are visible inside. A socket is reached by its
    path, whatever the network namespace is, and a read-only mount does not prevent it. Those in the
    workspace are found by tree_scan.py: some of them belong to commands."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return []
    named = {os.fsdecode(line.split(None, 7)[7]) for line in lines if b" /" in line}
    visible = {path for path in map(os.path.realpath, named) if is_visible(path)}
    return sorted(filter(_is_socket, visible))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def describe_refusals(refusals: Sequence[str]) -> list[str]:
    """The note on hosts that a command could not reach."""
    shown = "; ".join(refusals)
    hint = 'a command with `sandbox: "network"` and `domains` asks the user for others'
    return [f"its network is limited to some hosts: {shown}; {hint}"] if refusals else []
