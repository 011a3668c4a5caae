"""Which files a recursive search leaves out by itself: `rg` hidden ones, `grep --exclude` those.

Knows the options of rg, grep and git grep; reads no files. What is not certain counts as searched.
"""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from treadle.lib.shell.analysis.options import CommandOption
from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

# Types of rg that match no hidden file. A type makes rg search hidden files that it matches.
_PLAIN_TYPES = word_set(
    "c cpp css go html java js json kotlin lua md perl php py python ruby rust scala sql swift "
    "toml ts xml yaml"
)
_EXCLUDING_PATHSPEC = re.compile(r":(?:[!^]|\(exclude\))/?(.*)", re.DOTALL)


class FileGlob(msgspec.Struct, frozen=True):
    """A pattern on the command line: it leaves matching files out, or searches them."""

    text: str
    is_excluded: bool
    is_for_folders: bool = False  # `--exclude-dir`: matches folders only

    def matches(self, path: str) -> bool:
        parts = path.split("/")
        if self.is_for_folders:
            parts = parts[:-1]
        text = self.text.removeprefix("**/").rstrip("/")
        if "/" in text:
            return fnmatchcase(path, text.strip("/")) and not self.is_for_folders
        return any(fnmatchcase(part, text) for part in (parts if self.is_excluded else parts[-1:]))


class SearchFilter(msgspec.Struct, frozen=True):
    """What a search leaves out. Paths are relative to the folder that it searches."""

    skips_hidden: bool = False
    globs: tuple[FileGlob, ...] = ()
    searches_others: bool = True  # also files that no pattern matches

    def leaves_out(self, path: str) -> bool:
        """Whether the file is certainly not read; the last pattern that matches it decides."""
        matching = [glob.is_excluded for glob in self.globs if glob.matches(path)]
        if matching:
            return matching[-1]
        is_hidden = any(part.startswith(".") for part in path.split("/"))
        return not self.searches_others or (self.skips_hidden and is_hidden)


def parse_rg_filter(options: Sequence[CommandOption]) -> SearchFilter:
    """The filter of `rg`, without the user's own configuration of it."""
    names = [option.name for option in options]
    types = {o.value.text for o in options if o.name in ("-t", "--type") and o.value is not None}
    shows_hidden = (
        not {"--hidden", "-.", "--type-add"}.isdisjoint(names)
        or sum(name in ("-u", "--unrestricted") for name in names) > 1
        or not types <= _PLAIN_TYPES
        or "RIPGREP_CONFIG_PATH" in os.environ
    )
    values = [
        o.value.text or ""
        for o in options
        if o.name in ("-g", "--glob", "--iglob") and o.value is not None
    ]
    globs = tuple(FileGlob(v.removeprefix("!"), v.startswith("!")) for v in values)
    return SearchFilter(not shows_hidden, globs, all(glob.is_excluded for glob in globs))


def parse_grep_filter(options: Sequence[CommandOption]) -> SearchFilter:
    """The filter of `grep -r`."""
    kinds = {"--exclude": (True, False), "--exclude-dir": (True, True), "--include": (False, False)}
    globs = [
        FileGlob(o.value.text, *kinds[o.name])
        for o in options
        if o.name in kinds and o.value is not None and o.value.text
    ]
    searches_others = not globs or globs[0].is_excluded  # as its manual says
    return SearchFilter(globs=tuple(globs), searches_others=searches_others)


def parse_git_grep_filter(words: Sequence[Word]) -> SearchFilter:
    """The filter of `git grep --untracked`."""
    excluded = [m[1] for w in words if (m := _EXCLUDING_PATHSPEC.fullmatch(w.text or ""))]
    return SearchFilter(globs=tuple(FileGlob(text, is_excluded=True) for text in excluded))
