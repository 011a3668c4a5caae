"""Files that may contain secrets, by their names: the one list of them for every reader.

Used by the policy (read, grep, commands), by the grep tool and by the sandbox. Knows no rules. What
tools fill (`node_modules`) contains keys for tests, and no secrets of the user.
"""

from __future__ import annotations

import os
import re

from treadle.lib.files.file_view import FileView
from treadle.lib.files.protected_paths import GENERATED_FOLDERS, GIT_FOLDER, fold_case, is_env_file
from treadle.lib.text.word_set import word_set

SECRET_FOLDERS = word_set(".ssh .gnupg .aws .kube .docker .password-store")
SECRET_FILES = word_set(
    ".env .envrc .netrc .pgpass .npmrc .pypirc .git-credentials .htpasswd id_rsa id_dsa "
    "id_ecdsa id_ed25519 credentials.json secrets.json secrets.yaml secrets.yml .boto .s3cfg"
)
SECRET_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks")

_MAX_ENTRIES = 50_000
_NOT_SEARCHED = GENERATED_FOLDERS | {GIT_FOLDER}
# A quick test for many paths; `find_secret_part` decides.
_MAY_BE_SECRET = re.compile(
    "|".join(map(re.escape, (*SECRET_FOLDERS, *SECRET_FILES, *SECRET_SUFFIXES))) + r"|[^\x00-\x7f]",
    re.IGNORECASE,
)


def is_secret_name(folded: str) -> bool:
    """Whether a file or folder with this name (see `fold_case`) may contain secrets."""
    return (
        folded in SECRET_FILES
        or folded in SECRET_FOLDERS
        or folded.endswith(SECRET_SUFFIXES)
        or (folded.startswith(".env.") and is_env_file(folded))
    )


def find_secret_part(path: str) -> tuple[str, ...]:
    """The part of a path that marks it as a secret, or ()."""
    segments = path.lower().split("/") if path.isascii() else [*map(fold_case, path.split("/"))]
    while segments and segments[-1] in ("", "."):
        segments.pop()
    last = segments.pop() if segments else ""
    if not SECRET_FOLDERS.isdisjoint(segments):
        return (next(filter(SECRET_FOLDERS.__contains__, segments)),)
    return (last,) if is_secret_name(last) else ()


def is_searched_secret(path: str) -> bool:
    """Whether a search over the folder leaves this file out: a secret, and not one that a tool
    brought. The path is relative to that folder."""
    if not _MAY_BE_SECRET.search(path) or not GENERATED_FOLDERS.isdisjoint(path.split("/")):
        return False
    return bool(find_secret_part(path))


def list_secrets(view: FileView, folder: str) -> list[str] | None:
    """The secrets below a folder, as paths relative to it; None if there is too much to look at."""
    found: list[str] = []
    todo, left = [""], _MAX_ENTRIES
    for here in todo:  # it grows meanwhile
        try:
            with os.scandir(view.map_path(f"{folder}/{here}")) as entries:
                for entry in entries:
                    left -= 1
                    name = f"{here}{entry.name}"
                    if is_secret_name(fold_case(entry.name)):
                        found.append(name)
                    elif entry.name not in _NOT_SEARCHED and entry.is_dir(follow_symlinks=False):
                        todo.append(f"{name}/")
        except OSError:
            continue
        if left < 0:
            return None
    return found
