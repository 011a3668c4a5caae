"""Writes one setting into the user's ~/.treadle/config.toml.

Comments, order and all other values of the file stay. The new text is parsed before it replaces
the file. Used when the user changes a setting in the terminal UI.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from treadle.apps.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text


def write_setting(name: str, value: str) -> Path:
    """Write `name = "value"`; returns the file."""
    file = (treadle_home() / "config.toml").resolve()  # a symlink stays a symlink
    text = _read_config(file)
    try:
        wanted = {**tomllib.loads(text), name: value}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not changed, it is not TOML: {error}") from error
    for changed in _candidate_edits(text, name, value):
        if _parse_toml(changed) == wanted:
            _write_config(file, changed)
            return file
    raise ConfigError(f'{file}: not changed; edit it and set {name} = "{value}"')


def _candidate_edits(text: str, name: str, value: str) -> Iterator[str]:
    """Possible new texts, the best first: a line of a multi-line string may look like the key."""
    line = re.compile(
        rf"^([ \t]*(?:{name}|\"{name}\"|'{name}')[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*')",
        re.MULTILINE,
    )
    for match in line.finditer(text):
        yield f'{text[: match.start()]}{match[1]}"{value}"{text[match.end() :]}'
    end = "\r\n" if "\r\n" in text else "\n"
    new = f'{name} = "{value}"{end}'
    if not (table := re.search(r"^[ \t]*\[", text, re.MULTILINE)):
        yield f"{text}{'' if not text or text.endswith(end) else end}{new}"
    else:
        yield f"{text[: table.start()]}{new}{end}{text[table.start() :]}"
    yield new + text


def _parse_toml(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _read_config(file: Path) -> str:
    try:
        return read_text(file, within=None)
    except FileNotFoundError:
        return ""
    except ConfigError as error:
        raise ConfigError(f"not changed: {error}") from error


def _write_config(file: Path, text: str) -> None:
    from treadle.policy.settings_file import write_private_file

    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    write_private_file(file, text.encode())
    file.chmod(mode)
