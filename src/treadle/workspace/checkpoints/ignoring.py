"""Which files a project does not want kept: the patterns of its .gitignore files.

The rules are git's: the last pattern that matches decides, `!` takes back, a slash ties a
pattern to its folder, `**` crosses folders, a slash at the end means folders only.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

NAME = ".gitignore"


_STAR, _FOLDERS = "[^/]*", "(?:.*/)?"
MOST_FOLDERS = 4


class Pattern(msgspec.Struct, frozen=True):
    """One line. `expression` matches the path below the folder of the file."""

    expression: re.Pattern[str]
    takes_back: bool
    folders_only: bool


class Rules(msgspec.Struct, frozen=True):
    """The patterns that hold in a folder: its own and those above, outermost first."""

    layers: tuple[tuple[str, tuple[Pattern, ...]], ...] = ()

    def within(self, folder: str, text: str) -> Rules:
        """With the .gitignore of this folder (its path below the root, "" for the root)."""
        patterns = parsed(text)
        if not patterns:
            return self
        return Rules((*self.layers, (f"{folder}/" if folder else "", patterns)))

    def ignore(self, path: str, is_folder: bool) -> bool:
        for prefix, patterns in reversed(self.layers):
            below = path[len(prefix) :]
            for pattern in reversed(patterns):
                if pattern.folders_only and not is_folder:
                    continue
                if pattern.expression.fullmatch(below) is not None:
                    return not pattern.takes_back
        return False


@lru_cache(maxsize=256)
def parsed(text: str) -> tuple[Pattern, ...]:
    return tuple(pattern for line in text.split("\n") if (pattern := _pattern(line)) is not None)


def _pattern(line: str) -> Pattern | None:
    line = line.rstrip("\r")
    line = re.sub(r"(?<!\\)((?:\\\\)*) +$", r"\1", line)
    if not line or line.startswith("#"):
        return None
    takes_back = line.startswith("!")
    if takes_back:
        line = line[1:]
    folders_only = line.endswith("/")
    body = line.rstrip("/")
    if not body:
        return None
    tied = "/" in body
    try:
        anywhere = "" if tied else "(?:.*/)?"
        expression = re.compile(anywhere + _translated(body.lstrip("/")), re.DOTALL)
    except re.error:
        return None  # git, too, ignores a pattern that makes no sense
    return Pattern(expression, takes_back, folders_only)


def _translated(glob: str) -> str:
    tokens: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            tokens.append(_FOLDERS)
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
        elif char == "[" and (end := _class_end(glob, at)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\")
            tokens.append("(?!/)[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            at = end
        elif char == "\\" and at + 1 < len(glob):
            at += 1
            tokens.append(re.escape(glob[at]))
        else:
            tokens.append(re.escape(char))
        at += 1
    if tokens.count(_FOLDERS) > MOST_FOLDERS:
        raise re.error("more folders than a pattern needs")
    return _joined(tokens)


def _joined(tokens: list[str]) -> str:
    """Between two stars the first place that fits is as good as any: nothing is tried twice, and
    a pattern of many stars cannot take its time."""
    out: list[str] = []
    stars = [at for at, token in enumerate(tokens) if token == _STAR]
    begin = 0
    for number, star in enumerate(stars):
        following = stars[number + 1] if number + 1 < len(stars) else len(tokens)
        out += tokens[begin:star]
        chunk = "".join(tokens[star + 1 : following])
        is_last = following == len(tokens) or _FOLDERS in tokens[star:following]
        out.append(_STAR + chunk if is_last else f"(?>[^/]*?{chunk})")
        begin = following
    return "".join([*out, *tokens[begin:]])


def _class_end(glob: str, at: int) -> int:
    start = at + 2 if glob[at + 1 : at + 2] in ("!", "^") else at + 1
    return glob.find("]", start + 1)
