"""A settings file of JSON as its readers need it: what it says, and on which line.

No file says nothing; one that cannot be read is an error with file and line. Above: ruleset/rules_file.py
and hooks/configured.py, each with its own part of the file.
"""

import json
from pathlib import Path
from typing import Any

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json


def read_settings_file(file: Path, within: Path | None = None) -> tuple[dict[str, Any], str]:
    """What the file says, and its text. One of a folder may not lead out of it: `within`."""
    try:
        settings, text = read_json(file, within=within)
    except FileNotFoundError:
        return {}, ""
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}:1: settings have to be an object")
    return settings, text


def find_line(text: str, value: str) -> int:
    """The line on which a string of the file stands; the first, if it cannot be found."""
    for spelled in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        at = text.find(spelled)
        if at >= 0:
            return text.count("\n", 0, at) + 1
    return 1
