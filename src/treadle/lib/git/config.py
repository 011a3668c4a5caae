"""The configuration of a git repository, as entries: keys in lower case, and their values.

Parsed here instead of by `git config`, which needs a process for each file and follows includes. It
knows no meaning of a key but the format of hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from treadle.lib.files.file_view import MAX_TEXT_BYTES, FileView
from treadle.lib.text.lazy_regex import compile_lazily

_SECTION = compile_lazily(r"""\[\s*([\w.-]+)\s*(?:"((?:\\.|[^"\\\n])*)")?\s*\]""")
_KEY = compile_lazily(r"([A-Za-z][\w-]*)[ \t\r]*")
_BLANKS = " \t\r\n"
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\", "\n": ""}

ConfigEntries = list[tuple[str, str]]


def read_config(files: FileView, path: str) -> ConfigEntries | None:
    """The entries of a config file; None if it cannot be parsed."""
    content = files.read(path, MAX_TEXT_BYTES)
    if content is None:
        return None if files.lstat(path) is not None else []
    entries = _parse_content(content)
    return None if entries is None else [*entries]


@lru_cache(maxsize=32)  # one verdict on a git command reads the same file several times
def _parse_content(content: bytes) -> tuple[tuple[str, str], ...] | None:
    try:
        return tuple(parse_config(content.decode("utf-8-sig", errors="replace")))
    except ValueError:
        return None


def drop_subsection(key: str) -> str:
    """`remote.url` of `remote.origin.url`."""
    return f"{key.partition('.')[0]}.{key.rpartition('.')[2]}"


def get_hash_size(config: ConfigEntries) -> int:
    """How many bytes the name of an object has."""
    return 32 if ("extensions.objectformat", "sha256") in config else 20


def parse_config(text: str) -> Iterator[tuple[str, str]]:
    """Parses as git does: a value may go on in the next line, and a section within a line.
    ValueError where git may see something else."""
    section, at = "", 0
    while True:
        while at < len(text) and text[at] in _BLANKS:
            at += 1
        if at == len(text):
            return
        if text[at] in "#;":
            end = text.find("\n", at)
            at = end if end >= 0 else len(text)
        elif match := _SECTION.match(text, at):
            section = ".".join(filter(None, match.groups())).lower()
            at = match.end()
        elif section and (match := _KEY.match(text, at)):
            value, at = _parse_value(text, match.end())
            yield f"{section}.{match[1].lower()}", value
        else:
            raise ValueError(text[at : at + 80])


def _parse_value(text: str, at: int) -> tuple[str, int]:
    """The value after a key, without quotes and comments, and where its last line ends."""
    if not text.startswith("=", at):
        if text[at : at + 1] not in ("", "\n", "#", ";"):
            raise ValueError(text[at : at + 80])
        return "", at
    value, is_quoted, is_comment = "", False, False
    at += 1
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if is_comment:
            pass
        elif char == "\\":
            at += 2 if text.startswith("\r\n", at + 1) else 1
            if text[at : at + 1] not in _ESCAPES:
                raise ValueError(text[at : at + 80])
            value += _ESCAPES[text[at]]
        elif char == '"':
            is_quoted = not is_quoted
        elif char in "#;" and not is_quoted:
            is_comment = True
        else:
            value += char
        at += 1
    if is_quoted:
        raise ValueError(value)
    return value.strip(_BLANKS), at
