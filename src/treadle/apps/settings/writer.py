"""Writes one setting into the user's ~/.treadle/config.toml.

Comments, order and all other values of the file stay. The new text is parsed before it replaces
the file. Used by the terminal UI and by `treadle config NAME VALUE`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text

# A value on one line. The result is parsed and compared, so a wrong guess changes nothing.
_VALUE = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\[[^\n]*\]|[\w.+-]+)"""


def write_setting(name: str, value: object) -> Path:
    """Write `name = value`, where None removes it; returns the file."""
    from treadle.lib.files.private_files import locked_update

    file = find_config()
    locked_update(file, lambda: _edit_config(file, name, value), 0o600)
    return file


def _edit_config(file: Path, name: str, value: object) -> bytes | None:
    """The content of the file with this value; None if it has it already."""
    text = _read_config(file)
    try:
        wanted = {**tomllib.loads(text), name: value}
        wanted = {key: one for key, one in wanted.items() if one is not None}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not changed, it is not TOML: {error}") from error
    literal = None if value is None else json.dumps(value, ensure_ascii=False)
    for changed in _candidate_edits(text, name, literal):
        if _parse_toml(changed) == wanted:
            return changed.encode() if changed != text else None
    advice = f"set {name} = {literal}" if literal is not None else f"remove {name}"
    raise ConfigError(f"{file}: not changed; edit it and {advice}")


def read_written_value(name: str) -> object:
    """The value of a setting in the user's file; None if it has none."""
    file = find_config()
    try:
        return tomllib.loads(_read_config(file)).get(name)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not changed, it is not TOML: {error}") from error


def find_config() -> Path:
    """The file that is written."""
    return (treadle_home() / "config.toml").resolve()  # a symlink stays a symlink


def _candidate_edits(text: str, name: str, literal: str | None) -> Iterator[str]:
    """Possible new texts, the best first: a line of a multi-line string may look like the key."""
    key = re.escape(name)
    line = re.compile(
        rf"^([ \t]*(?:{key}|\"{key}\"|'{key}')[ \t]*=[ \t]*){_VALUE}",
        re.MULTILINE,
    )
    for match in line.finditer(text):
        if literal is not None:
            yield f"{text[: match.start()]}{match[1]}{literal}{text[match.end() :]}"
        else:
            yield text[: match.start()] + re.sub(r"^[^\n]*\n?", "", text[match.end() :])
    if literal is None:
        yield text
        return
    end = "\r\n" if "\r\n" in text else "\n"
    new = f"{name} = {literal}{end}"
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
