"""A setting that is changed from within the program is written into the user's own file.

The file is the user's: its comments, its order and everything else in it stay as they are. What is
written is checked by reading it before it replaces the file. What settings mean is settings.py's
business; nothing here is loaded before a person changes one.
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
    """Write `name = "value"` into ~/.treadle/config.toml; the file."""
    file = (
        treadle_home() / "config.toml"
    ).resolve()  # a link, as those who share settings have, stays one
    text = _read_config(file)
    try:
        wanted = {**tomllib.loads(text), name: value}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: nothing is written, it is not TOML: {error}") from error
    for changed in _candidate_edits(text, name, value):
        if _parse_toml(changed) == wanted:
            _write_config(file, changed)
            return file
    raise ConfigError(f'{file}: {name} is set in a way of its own; write {name} = "{value}" there')


def _candidate_edits(text: str, name: str, value: str) -> Iterator[str]:
    """Ways to put it, the most natural first; a line of a longer text may look like a key."""
    line = re.compile(
        rf"^([ \t]*(?:{name}|\"{name}\"|'{name}')[ \t]*=[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*')",
        re.MULTILINE,
    )
    for found in line.finditer(text):
        yield f'{text[: found.start()]}{found[1]}"{value}"{text[found.end() :]}'
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
        raise ConfigError(f"nothing is written: {error}") from error


def _write_config(file: Path, text: str) -> None:
    from treadle.policy.settings_file import write_private_file

    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    write_private_file(file, text.encode())
    file.chmod(mode)
