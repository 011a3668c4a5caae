"""Path patterns of rules, similar to gitignore.

    //etc/**      from the root of the file system
    ~/notes/**    from the home folder
    /src/**       from the root of the settings that contain the rule
    src/**, ./x   the same, since there is a slash in it
    *.env         a name at any depth below that root; in deny and ask rules also in added folders
    *.{key,pem}   alternatives; a backslash quotes the next character

A pattern that matches a folder matches everything in it. Knows no rules and reads no files.
"""

import os
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from treadle.lib.files.file_view import is_inside
from treadle.lib.files.protected_paths import fold_case
from treadle.lib.shell.syntax.braces import UnsupportedBraces, expand_braces

_MATCH_ALL = re.compile(".*", re.DOTALL)


class FolderCopy(msgspec.Struct, frozen=True):
    """A folder that stands for another one, such as a worktree for its repository."""

    folder: str
    original: str

    def find_original(self, path: str, *, any_case: bool = False) -> str:
        """The path for which one in the copy stands; "" for a path outside of it."""
        fold = fold_case if any_case else str
        if not is_inside(fold(path), (fold(self.folder),)):
            return ""
        return "/".join((self.original, *path.split("/")[self.folder.count("/") + 1 :]))

    def find_copy(self, path: str) -> str:
        """The path in the copy that stands for this one, or for all below it; "" if none does."""
        if is_inside(path, (self.original,)):
            return self.folder + path[len(self.original) :]
        folded, original = fold_case(path), fold_case(self.original)
        # A path in another case is not cut: what it matches is somewhere in the copy.
        is_about = is_inside(folded, (original,)) or is_inside(original, (folded,))
        return self.folder if is_about else ""


class PathPattern(msgspec.Struct, frozen=True):
    """A compiled pattern."""

    text: str
    strict_globs: tuple[str, ...]  # absolute patterns, for allow rules
    loose_globs: tuple[str, ...]  # absolute patterns, for deny and ask rules
    segments: tuple[str, ...]  # case-folded; "*" for one with wildcards
    copies: tuple[FolderCopy, ...] = ()  # folders whose paths are also judged as the originals

    def allows(self, path: str) -> bool:
        names = (path, *filter(None, (one.find_original(path) for one in self.copies)))
        return any(
            _compile_glob(glob, _is_literal_name(glob)).fullmatch(name)
            for glob in self.strict_globs
            for name in names
        )

    def forbids(self, path: str) -> bool:
        """Matches as widely as possible: in any case, and `/x` from either root."""
        originals = (one.find_original(path, any_case=True) for one in self.copies)
        names = [fold_case(name) for name in (path, *originals) if name]
        return any(
            _compile_glob(fold_case(glob), is_loose=True).fullmatch(name)
            for glob in self.loose_globs
            for name in names
        )

    def list_fixed_prefixes(self) -> tuple[str, ...]:
        """The paths below which `forbids` can match."""
        prefixes = tuple(_find_fixed_prefix(glob) for glob in self.loose_globs)
        copied = (one.find_copy(prefix) for one in self.copies for prefix in prefixes)
        return (*prefixes, *filter(None, copied))

    def list_last_names(self) -> tuple[str, ...]:
        """Names of which each match has one; () if one is a pattern, or above a copied folder."""
        names = tuple(glob.rpartition("/")[2] for glob in self.loose_globs)
        is_open = any(c in name for c in "*?[\\" for name in names)
        return () if is_open or any(self.forbids(one.folder) for one in self.copies) else names

    def add_copy(self, copy: FolderCopy) -> "PathPattern":
        """The pattern that is also about the same paths in a copy of a folder."""
        return replace(self, copies=(*self.copies, copy))

    def add_roots(self, roots: Sequence[str]) -> "PathPattern":
        """The pattern that, if it is a name, is also forbidden at any depth in these folders."""
        texts = [text for text in expand_braces(self.text) if _is_at_any_depth(text)]
        more = (glob for root in roots for text in texts for glob in _anchor(text, root, "")[1])
        return replace(self, loose_globs=(*self.loose_globs, *more))

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


def _is_at_any_depth(text: str) -> bool:
    body = os.path.normpath(text.removeprefix("**/"))
    return not text.startswith(("/", "~")) and "/" not in body and body not in (".", "..")


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
