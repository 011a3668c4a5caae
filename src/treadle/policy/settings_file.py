"""A JSON settings file: reads it, and finds the line of a value.

A missing file is empty settings; one that cannot be read is an error with file and line. Used by
ruleset/rules_file.py, hooks/config.py and trust.py.
"""

import json
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
