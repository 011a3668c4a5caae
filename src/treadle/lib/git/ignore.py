"""Which files a project ignores: the patterns of its .gitignore files.

The rules are git's: the last pattern that matches decides, `!` negates, a slash anchors a pattern
to its folder, `**` crosses folders, a slash at the end means folders only. Neither git nor pathspec
is used: docs/decisions/ignore-files.md.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

GITIGNORE = ".gitignore"

_STAR, _ANY_FOLDERS = "[^/]*", "(?:.*/)?"
MAX_DOUBLE_STARS = 4
_CLASS = re.compile(r"\[[!^]?\]?(?:\[:\w+:\]|\\.|[^\]])*\]")
_NAMED_CLASS = re.compile(r"\[:(\w+):\]")
_NAMED_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \t", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class IgnorePattern(msgspec.Struct, frozen=True):
    """One line. `regex` matches paths relative to the folder of the .gitignore."""

    regex: re.Pattern[str]
    is_negated: bool
    folders_only: bool


class IgnoreRules(msgspec.Struct, frozen=True):
    """The patterns for a folder: its own and those of its parents, outermost first."""

    layers: tuple[tuple[str, tuple[IgnorePattern, ...]], ...] = ()

    def with_gitignore(self, folder: str, text: str) -> IgnoreRules:
        """With the .gitignore of this folder (its path below the root, "" for the root)."""
        patterns = parse_gitignore(text)
        if not patterns:
            return self
        return IgnoreRules((*self.layers, (f"{folder}/" if folder else "", patterns)))

    def is_ignored(self, path: str, is_folder: bool) -> bool:
        for prefix, patterns in reversed(self.layers):
            below = path[len(prefix) :]
            for pattern in reversed(patterns):
                if pattern.folders_only and not is_folder:
                    continue
                if pattern.regex.fullmatch(below) is not None:
                    return not pattern.is_negated
        return False


@lru_cache(maxsize=256)
def parse_gitignore(text: str) -> tuple[IgnorePattern, ...]:
    return tuple(pattern for line in text.split("\n") if (pattern := _parse_line(line)) is not None)


def _parse_line(line: str) -> IgnorePattern | None:
    line = line.rstrip("\r")
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line)
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    body = line.removesuffix("/")
    if not body:
        return None
    prefix = "" if "/" in body else _ANY_FOLDERS
    try:
        regex = re.compile(prefix + _translate_glob(body.removeprefix("/")), re.DOTALL)
    except (re.error, KeyError):
        return None  # git, too, skips an invalid pattern
    return IgnorePattern(regex, is_negated, folders_only)


def _translate_glob(glob: str) -> str:
    tokens: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            tokens.append(_ANY_FOLDERS)
            at += 3
            continue
        if glob[at:] == "**" and (at == 0 or glob[at - 1] == "/"):
            tokens.append(".+")
            break
        if char == "*":
            while glob[at + 1 : at + 2] == "*":
                at += 1
            tokens.append(_STAR)
        elif char == "?":
            tokens.append("[^/]")
        elif char == "[" and (match := _CLASS.match(glob, at)):
            tokens.append(f"(?!/){_translate_class(match[0])}")
            at = match.end() - 1
        elif char == "\\" and at + 1 < len(glob):
            at += 1
            tokens.append(re.escape(glob[at]))
        else:
            tokens.append(re.escape(char))
        at += 1
    if tokens.count(_ANY_FOLDERS) > MAX_DOUBLE_STARS:
        raise re.error("too many **")
    return _join_tokens(tokens)


def _join_tokens(tokens: list[str]) -> str:
    """Between two stars the first match is as good as any other: an atomic group avoids
    backtracking, so that a pattern with many stars cannot be slow."""
    out: list[str] = []
    stars = [at for at, token in enumerate(tokens) if token == _STAR]
    begin = 0
    for number, star in enumerate(stars):
        following = stars[number + 1] if number + 1 < len(stars) else len(tokens)
        out += tokens[begin:star]
        chunk = "".join(tokens[star + 1 : following])
        is_last = following == len(tokens) or _ANY_FOLDERS in tokens[star:following]
        out.append(_STAR + chunk if is_last else f"(?>[^/]*?{chunk})")
        begin = following
    return "".join([*out, *tokens[begin:]])


def _translate_class(text: str) -> str:
    """A set of characters, such as `[!a-z]` or `[[:alpha:]_]`."""
    is_negated = text[1] in "!^"
    out = ""
    for at, part in enumerate(_NAMED_CLASS.split(text[1 + is_negated : -1])):
        out += _NAMED_CLASSES[part] if at % 2 else re.sub(r"(?<!\\)([]\[&|~^])", r"\\\1", part)
    return f"[{'^' if is_negated else ''}{out}]"
