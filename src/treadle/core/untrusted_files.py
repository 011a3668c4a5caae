"""Safe reads of small files that a project folder or the user's home contains: settings, memory,
definitions.

    read_text(file, within=folder)           the whole text; a ConfigError says why it is not read
    read_json(file, within=folder)           its value, and its text
    read_prefix(file, max_bytes, within=...) its first bytes
    read_settings_file(file, within)         the object in a JSON file, and its text
    update_settings_file(file, change, within)   the one way in which such a file is changed

The author of a project controls these files, and a command may swap one during the read. A named
pipe must not block, a device or an endless file must not fill the memory, a symlink must not leave
the folder. A missing file is a FileNotFoundError. Not for files that the agent works on: those are
read by the workspace. In the core because settings, policy, tools, context and agents use it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle.core.errors import ConfigError

MAX_BYTES = 1 << 20

# Names of file types, for messages.
FILE_TYPE_NAMES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_ADVICE = "it is not read: put a text file in its place, or remove it"
_NOT_FOUND_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # as Path.exists() sees it
_DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # do not block on a pipe without a writer


def read_text(file: Path, max_bytes: int = MAX_BYTES, *, within: Path | None) -> str:
    """The text of a file of at most `max_bytes`, without a byte order mark.

    `within` is the folder that symlinks must not leave; None for files of the user, such as those
    in the home folder, where symlinks to other folders are usual.
    """
    data = read_prefix(file, max_bytes + 1, within=within)
    if len(data) > max_bytes:
        raise ConfigError(f"{file}: larger than {max_bytes >> 10:,} KiB; it is not read")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: not UTF-8 text; save it as such") from error


def read_json(file: Path, *, within: Path | None) -> tuple[object, str]:
    """The value of a JSON file, and its text (to find lines); {} if the file is empty."""
    text = read_text(file, within=within)
    import json

    try:
        return (json.loads(text) if text.strip() else {}), text
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}:1: not JSON: nested too deep") from error


def read_settings_file(file: Path, within: Path | None = None) -> tuple[dict[str, Any], str]:
    """The settings and the text of the file, both empty without a file."""
    try:
        settings, text = read_json(file, within=within)
    except FileNotFoundError:
        return {}, ""
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}:1: settings must be an object")
    return settings, text


def update_settings_file(
    file: Path,
    change: Callable[[dict[str, Any]], bool],
    within: Path | None = None,
    new_mode: int = 0o600,
) -> None:
    """Change the settings of the file, if `change` returns that it did, while no other program does
    so. The rest of it stays, and so does a symlink of the user (`within` None)."""
    import json

    from treadle.lib.files.private_files import locked_update

    def update() -> bytes | None:
        settings, _ = read_settings_file(file, within)
        if not change(settings):
            return None
        return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()

    locked_update(file if within is not None else file.resolve(), update, new_mode)


def find_line(text: str, value: str) -> int:
    """The line of a string in the text of a settings file; 1 if it is not found."""
    import json

    for encoded in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        if (at := text.find(encoded)) >= 0:
            return text.count("\n", 0, at) + 1
    return 1


def read_prefix(file: Path, max_bytes: int, *, within: Path | None) -> bytes:
    """The first `max_bytes` bytes of a file, of any content."""
    fd = open_file(file, os.O_RDONLY, within=within)
    try:
        data = bytearray()
        while len(data) < max_bytes and (piece := os.read(fd, max_bytes - len(data))):
            data += piece
        return bytes(data)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    finally:
        os.close(fd)


def open_file(file: Path, flags: int, *, within: Path | None) -> int:
    """A file descriptor of a regular file; the open never blocks."""
    try:
        if within is None:
            return _open_regular_file(file, str(file), flags, None, single_link=False)
        return _open_beneath(file, flags, within)
    except OSError as error:
        if error.errno in _NOT_FOUND_ERRNOS:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from error
        raise ConfigError(f"{file}: cannot be opened ({error.strerror})") from error
    except ValueError as error:  # the name is not valid, for example has a NUL
        raise ConfigError(f"{file!s:.200}: cannot be opened ({error})") from error


def _open_beneath(file: Path, flags: int, within: Path) -> int:
    """Resolve symlinks by name first, then open the resolved path without following any.

    A symlink that is created in between makes the open fail.
    """
    if not flags & os.O_CREAT:
        os.stat(file)  # noqa: PTH116 - fails fast: most of these files do not exist
    root, real = os.path.realpath(within), os.path.realpath(file)
    if real == root or not Path(real).is_relative_to(root):
        raise ConfigError(f"{file}: leaves {within} through a symlink; {_ADVICE}")
    *folders, name = Path(real).relative_to(root).parts
    folder = os.open(root, _DIRECTORY_FLAGS)
    try:
        for part in folders:
            inner = os.open(part, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return _open_regular_file(file, name, flags | os.O_NOFOLLOW, folder, single_link=True)
    finally:
        os.close(folder)


def _open_regular_file(
    file: Path, name: str, flags: int, folder: int | None, *, single_link: bool
) -> int:
    # Checked before the open, which can have an effect on a device, and again on the descriptor.
    try:
        follow = not flags & os.O_NOFOLLOW
        status = os.stat(name, dir_fd=folder, follow_symlinks=follow)
        _check_regular_file(file, status, single_link=single_link)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    fd = os.open(name, flags | _FILE_FLAGS, 0o666, dir_fd=folder)
    try:
        _check_regular_file(file, os.fstat(fd), single_link=single_link)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_regular_file(file: Path, status: os.stat_result, *, single_link: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise ConfigError(f"{file}: is {FILE_TYPE_NAMES.get(kind, 'no file')}; {_ADVICE}")
    if single_link and status.st_nlink > 1:  # the other name may be outside the folder
        raise ConfigError(f"{file}: is a hard link to another file; {_ADVICE}")
