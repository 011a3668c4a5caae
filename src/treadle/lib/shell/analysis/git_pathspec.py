"""Whether the pathspecs of a git command select a file: `src`, `:/docs`, `*.py`, `:!.env`.

What is not certain counts as selected, and as not left out. Knows no file system. Used by
`evaluation/git_evaluator.py`.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from os.path import normpath

import msgspec

_MAGIC = re.compile(r":(?:\(([^)]*)\)|([/!^]*):?)(.*)", re.DOTALL)
_KNOWN_MAGIC = frozenset({"top", "exclude", "/", "!", "^", ""})


class _Pathspec(msgspec.Struct, frozen=True):
    path: str  # relative to the top of the repository
    is_excluded: bool
    is_known: bool = True  # every word of its magic is understood


def is_selected(path: str, pathspecs: Sequence[str], prefix: str) -> bool:
    """Whether a command with these pathspecs may show `path`, relative to the top.

    `prefix`: the folder that the command runs in, relative to the top."""
    parsed = [_parse(text, prefix) for text in pathspecs]
    if any(spec.is_excluded and _is_certainly_matched(path, spec) for spec in parsed):
        return False
    including = [spec for spec in parsed if not spec.is_excluded]
    return not including or any(_may_match(path, spec) for spec in including)


def _parse(text: str, prefix: str) -> _Pathspec:
    match = _MAGIC.fullmatch(text)
    magic: set[str] = set()
    if match is not None:
        magic = set(match[1].split(",") if match[1] is not None else match[2])
        text = match[3]
    is_from_top = not magic.isdisjoint(("top", "/"))
    joined = normpath(f"/{text}" if is_from_top else f"/{prefix}/{text}").strip("/")
    is_excluded = not magic.isdisjoint(("exclude", "!", "^"))
    return _Pathspec(joined, is_excluded, magic <= _KNOWN_MAGIC)


def _is_certainly_matched(path: str, spec: _Pathspec) -> bool:
    if not spec.is_known or any(c in spec.path for c in "[\\"):
        return False
    is_inside = spec.path == "" or path == spec.path or path.startswith(spec.path + "/")
    return is_inside or fnmatchcase(path, spec.path)


def _may_match(path: str, spec: _Pathspec) -> bool:
    if not spec.is_known or spec.path.startswith(".."):
        return True
    fixed = re.split(r"[*?\[\\]", spec.path, maxsplit=1)[0]
    if fixed != spec.path:
        return path.lower().startswith(fixed.lower())
    folded = fixed.lower()
    return folded == "" or f"{path.lower()}/".startswith(f"{folded}/")
