"""A settings file of JSON as its readers need it: what it says, and on which line.

No file says nothing; one that cannot be read is an error with file and line. Above: rulesfile.py
and hooks/configured.py, each with its own part of the file.
"""

import json
from pathlib import Path
from typing import Any

from treadle.core.errors import ConfigError


def read_settings(file: Path, what: str) -> tuple[dict[str, Any], str]:
    """What the file says, and its text. `what` is looked for in it, as an error would call it."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors leave a mark
    except FileNotFoundError:
        return {}, ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}:1: the {what} cannot be read ({error})") from error
    try:
        settings = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}:1: not JSON: nested too deep") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}:1: settings have to be an object")
    return settings, text


def line_of(text: str, value: str) -> int:
    """The line on which a string of the file stands; the first, if it cannot be found."""
    for spelled in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        at = text.find(spelled)
        if at >= 0:
            return text.count("\n", 0, at) + 1
    return 1
