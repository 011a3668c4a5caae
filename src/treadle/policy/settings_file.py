"""A JSON settings file: reads it, finds the line of a value, and writes private files.

A missing file is empty settings; one that cannot be read is an error with file and line. Used by
ruleset/rules_file.py, hooks/config.py and trust.py.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json


def read_settings_file(file: Path, within: Path | None = None) -> tuple[dict[str, Any], str]:
    """The settings and the text of the file. A symlink out of `within` is not followed."""
    try:
        settings, text = read_json(file, within=within)
    except FileNotFoundError:
        return {}, ""
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}:1: settings must be an object")
    return settings, text


def find_line(text: str, value: str) -> int:
    """The line of a string in the file; 1 if it is not found."""
    for encoded in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        if (at := text.find(encoded)) >= 0:
            return text.count("\n", 0, at) + 1
    return 1


def write_private_file(file: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
