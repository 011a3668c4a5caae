"""Path patterns of rules, similar to gitignore.

    //etc/**      from the root of the file system
    ~/notes/**    from the home folder
    /src/**       from the root of the settings that contain the rule
    src/**, ./x   the same, since there is a slash in it
    *.env         a name at any depth below that root
    *.{key,pem}   alternatives; a backslash quotes the next character

A pattern that matches a folder matches everything in it. Knows no rules and reads no files.
"""

import os
import re
from functools import lru_cache

import msgspec

from treadle.lib.files.file_view import is_inside
from treadle.lib.files.protected_paths import fold_case
from treadle.lib.shell.syntax.braces import UnsupportedBraces, expand_braces

_MATCH_ALL = re.compile(".*", re.DOTALL)


class PathPattern(msgspec.Struct, frozen=True):
    """A compiled pattern."""

    text: str
    strict_globs: tuple[str, ...]  # absolute patterns, for allow rules
    loose_globs: tuple[str, ...]  # absolute patterns, for deny and ask rules
    segments: tuple[str, ...]  # case-folded; "*" for one with wildcards

    def allows(self, path: str) -> bool:
        return any(
            _compile_glob(glob, _is_literal_name(glob)).fullmatch(path)
            for glob in self.strict_globs
        )

    def forbids(self, path: str) -> bool:
        """Matches as widely as possible: in any case, and `/x` from either root."""
        folded = fold_case(path)
        return any(
            _compile_glob(fold_case(glob), is_loose=True).fullmatch(folded)
            for glob in self.loose_globs
        )

    def list_fixed_prefixes(self) -> tuple[str, ...]:
        """The paths below which `forbids` can match."""
        return tuple(_find_fixed_prefix(glob) for glob in self.loose_globs)

    def list_last_names(self) -> tuple[str, ...]:
        """Names of which each match has one; () if one is a pattern."""
        names = tuple(glob.rpartition("/")[2] for glob in self.loose_globs)
        return () if any(c in name for c in "*?[\\" for name in names) else names

    def has_segments(self, segments: tuple[str, ...]) -> bool:
        """Whether the pattern contains these segments literally, in a row."""
        span = len(segments)
        return any(
            self.segments[at : at + span] == segments for at in range(len(self.segments) - span + 1)
        )

    @property
    def is_literal(self) -> bool:
        return not any(c in self.text for c in "*?[")


def compile_path_pattern(text: str, root: str, home: str) -> PathPattern:
    """Compile a pattern from settings whose root is `root`; ValueError if it is wrong."""
    if not text or "\0" in text:
        raise ValueError("an empty path pattern")
    if text.startswith("!"):
        raise ValueError("a pattern cannot be negated; use the deny list")
    if text.startswith("~") and not (text == "~" or text.startswith("~/")):
        raise ValueError("a pattern may begin with ~/, but not with the home of another user")
    if _has_unclosed_bracket(text):
        raise ValueError("a [ without ] in a path pattern")
    try:
        texts = expand_braces(text)
    except UnsupportedBraces as error:
        raise ValueError(str(error)) from error
    anchored = [_anchor(t, root.rstrip("/"), home.rstrip("/")) for t in texts]
    strict = tuple(glob for globs, _ in anchored for glob in globs)
    loose = tuple(glob for _, globs in anchored for glob in globs)
    segments = tuple(
        "*" if any(c in s for c in "*?[") else fold_case(s)
        for s in text.split("/")
        if s and s != "."
    )
    return PathPattern(text, strict, loose, segments)


def _anchor(text: str, root: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The strict and the loose globs of a pattern without braces."""
    body = text.rstrip("/") or "/"
    if body.startswith("//") or text.startswith("//"):
        globs = (_normalize(body[1:] or "/"),)
        return globs, globs
    if body.startswith("~"):
        globs = (home + body[1:],)
        return globs, globs
    if body.startswith("/"):
        absolute, relative = _normalize(body), _normalize(root + body)
        # A pattern inside the root is absolute, not relative to the root again.
        is_absolute = bool(root) and is_inside(absolute, (root,))
        return ((absolute if is_absolute else relative),), (absolute, relative)
    body = os.path.normpath(body)
    if body == ".":
        globs = (root or "/",)
    elif "/" in body:
        globs = (_normalize(f"{root}/{body}"),)
    else:
        globs = (f"{root}/**/{body}",) if body != "**" else (f"{root}/**",)
    return globs, globs


def _normalize(path: str) -> str:
    return os.path.normpath(path).replace("//", "/")


def _has_unclosed_bracket(text: str) -> bool:
    return "[" in text and "]" not in text[text.index("[") :]


@lru_cache(maxsize=2048)
def _compile_glob(
    glob: str, match_children: bool = True, is_loose: bool = False
) -> re.Pattern[str]:
    if glob == "/":
        return _MATCH_ALL
    out, at = "", 0
    while at < len(glob):
        c = glob[at]
        if glob.startswith("/**/", at):
            out += "/(?:.*/)?"
            at += 4
        elif glob.startswith("/**", at) and at + 3 == len(glob):
            out += "(?:/.*)?"
            at += 3
        elif c == "*":
            start = at
            while glob.startswith("*", at):
                at += 1
            out += ".*" if is_loose and at > start + 1 else "[^/]*"
        elif c == "\\" and at + 1 < len(glob):
            out += re.escape(glob[at + 1])
            at += 2
        elif c == "?":
            out += "[^/]"
            at += 1
        elif c == "[" and "]" in glob[at + 2 :]:
            end = glob.index("]", at + 2)
            inner = glob[at + 1 : end].replace("\\", "\\\\")
            out += f"(?!/)[{'^' + inner[1:] if inner[0] in '!^' else inner}]"
            at = end + 1
        else:
            out += re.escape(c)
            at += 1
    return re.compile(out + ("(?:/.*)?" if match_children else ""), re.DOTALL)


def _is_literal_name(glob: str) -> bool:
    """`src` matches everything in src; `src/*` matches its entries, and nothing deeper."""
    return not any(c in glob.rpartition("/")[2] for c in "*?[")


def _find_fixed_prefix(glob: str) -> str:
    fixed: list[str] = []
    for segment in glob.split("/"):
        if any(c in segment for c in "*?["):
            break
        fixed.append(segment)
    return "/".join(fixed) or "/"
