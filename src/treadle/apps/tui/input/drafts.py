"""Keeps what the user has typed and not sent, so that a crash does not lose it.

One file for each running program, in ~/.treadle/drafts (mode 600): the text of the prompt, long
pastes, and the paths of attached files; no images of the clipboard, and no secrets. A draft whose
program has ended is offered at the next start in its folder. Never part of a session's log.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.lib.files.locks import is_file_locked
from treadle.lib.files.private_files import make_private_folder, write_private_file

MAX_DRAFT_CHARS = 1_000_000
MAX_DRAFT_BYTES = 8 * MAX_DRAFT_CHARS  # of a file
LOCK_SECONDS = 60.0  # a younger file may be of a program that is about to lock it
MAX_DRAFTS = 50  # of programs that have ended; the oldest are removed


class Draft(msgspec.Struct, frozen=True):
    """`pastes` and `files` are the contents of placeholders, by their numbers. `session` is where
    it was typed."""

    session: str = ""
    text: str = ""
    pastes: dict[int, str] = {}
    files: dict[int, str] = {}


def make_draft(session: str, text: str, contents: Mapping[int, object]) -> Draft:
    """The draft of a prompt with its attachments. What is beyond MAX_DRAFT_CHARS is left out, from
    the last paste on."""
    text = text[:MAX_DRAFT_CHARS]
    room, pastes = MAX_DRAFT_CHARS - len(text), {}
    for number, content in contents.items():
        if isinstance(content, str) and len(content) <= room:
            room -= len(content)
            pastes[number] = content
    files = {number: str(path) for number, path in contents.items() if isinstance(path, Path)}
    return Draft(session, text, pastes, files)


class Drafts:
    """The draft of this program, and those of programs that have ended. `place` is where the files
    are, None: nowhere. A draft that cannot be written lasts as long as the program."""

    def __init__(self, place: Path | None, folder: Path) -> None:
        self._place = place
        key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
        self._prefix = f"{key}-"
        self._name = f"{self._prefix}{os.getpid()}-{os.urandom(4).hex()}"
        self._lock: int | None = None  # held as long as this program runs
        self._changing = threading.Lock()  # a thread that saves, and the program that ends
        self._is_closed = False

    def save(self, draft: Draft) -> str:
        """Write the draft, and return why it could not be written. May take a moment: call it in a
        thread."""
        with self._changing:
            return "" if self._place is None or self._is_closed else self._write(draft, self._place)

    def _write(self, draft: Draft, place: Path) -> str:
        safe = msgspec.structs.replace(
            draft,
            text=redact_for_display(draft.text),
            pastes={number: redact_for_display(text) for number, text in draft.pastes.items()},
        )
        try:
            self._hold_lock(place)
            write_private_file(place / f"{self._name}.json", msgspec.json.encode(safe))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def remove(self) -> None:
        """The draft was sent or cleared."""
        if self._place is not None:
            with self._changing:
                _unlink(self._place / f"{self._name}.json")

    def close(self) -> None:
        """The program ends. A draft that is still there is offered at the next start."""
        with self._changing:
            self._is_closed = True
            if self._lock is not None and self._place is not None:
                if not (self._place / f"{self._name}.json").exists():
                    _unlink(self._place / f"{self._name}.lock")
                os.close(self._lock)
                self._lock = None

    def take(self, session: str, *, is_new: bool) -> Draft | None:
        """The newest draft of a program that has ended: of this session, or in a new session any
        of this folder. It belongs to this program from now on."""
        for file in self._list_left(self._prefix):
            draft = _read(file)
            if draft is None or not (is_new or draft.session == session):
                continue
            assert self._place is not None, "a file was found in it"
            try:
                self._hold_lock(self._place)
                file.rename(self._place / f"{self._name}.json")
                file.with_suffix(".lock").unlink(missing_ok=True)
            except OSError:
                continue
            return draft
        return None

    def _hold_lock(self, place: Path) -> None:
        if self._lock is None:
            make_private_folder(place)
            for file in self._list_left("")[MAX_DRAFTS:]:
                file.unlink(missing_ok=True)
            _remove_old_locks(place)
            self._lock = os.open(place / f"{self._name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _list_left(self, prefix: str) -> list[Path]:
        """The files of programs that have ended, the newest first."""
        if self._place is None:
            return []
        try:
            files = [
                file
                for file in self._place.glob(f"{prefix}*.json")
                if not is_file_locked(file.with_suffix(".lock"))
            ]
            return sorted(files, key=lambda file: -file.stat().st_mtime)
        except OSError:
            return []


def _remove_old_locks(place: Path) -> None:
    """The locks of programs that were killed and left no draft."""
    with suppress(OSError):
        for lock in place.glob("*.lock"):
            is_left = not lock.with_suffix(".json").exists() and not is_file_locked(lock)
            if is_left and time.time() - lock.stat().st_mtime > LOCK_SECONDS:
                lock.unlink(missing_ok=True)


def _unlink(file: Path) -> None:
    with suppress(OSError):
        file.unlink(missing_ok=True)


def _read(file: Path) -> Draft | None:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_DRAFT_BYTES + 1)
        return msgspec.json.decode(data, type=Draft) if len(data) <= MAX_DRAFT_BYTES else None
    except (OSError, msgspec.MsgspecError):
        return None
