"""Names that a listing prints, given to a program that shows sizes and counts, or to a search.

    git ls-files | while read -r f; do wc -l "$f"; done
    find . -name '*.py' | xargs wc -l
    find . -name '*.py' -exec wc -l {} +
    git ls-files | xargs grep -n def
    find . -name '*.py' -exec grep -l def {} +

The names are known only when the line runs, but they are names of files in the workspace. Used by
`verdict.py`.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.lib.shell.analysis.find import (
    COUNTING_PROGRAMS,
    SEARCH_PROGRAMS,
    find_end_of_run,
    is_counting_exec,
    is_counting_run,
    is_searching_exec,
    list_searched,
)
from treadle.lib.shell.ast import (
    UNKNOWN_ARGUMENTS,
    ParsedCommand,
    SimpleCommand,
    Word,
)
from treadle.lib.text.word_set import word_set

_SILENT_PROGRAMS = word_set("read [ test true :")
_FILTERS = word_set("sort head tail uniq")  # with options only: they print some of the names
_LISTING_OPTIONS = word_set("-c -m -o -d --cached --modified --others --deleted --exclude-standard")
_FIND_TESTS = word_set(
    "-name -iname -path -not ! -type -maxdepth -mindepth -newer -o -a ( ) -size -mtime -empty "
    "-prune -print -print0"
)
_SEARCH_FLAG = re.compile(r"-[rilwEFIns]+|--files|--files-with-matches")
_SEARCH_GLOB = re.compile(r"-g|-t|--type|--glob|--(?:include|exclude|exclude-dir|glob|type)=.*")
_NAMES_ONLY = re.compile(r"-[rilwEFIns]*l[rilwEFIns]*|--files|--files-with-matches")
_XARGS_FLAGS = word_set("-0 -r --null --no-run-if-empty")
_FILTER_FLAG = re.compile(r"-[vEiFw]+")


def is_listed_name(word: Word, command: SimpleCommand, parsed: ParsedCommand) -> bool:
    """Whether a word is a name from a listing, given to a program that shows no content.

    A file whose name can be read as an option has to be excluded by the caller."""
    if command.program not in COUNTING_PROGRAMS or command.assignments:
        return False
    if word is UNKNOWN_ARGUMENTS:
        return is_found_name(word, command, parsed) or any(
            _feeds_from_listing(outer, command, parsed) for outer in parsed.commands
        )
    is_quoted = word.text is None and word.is_plain_data and not word.may_split
    read_names = {w.text for c in parsed.commands for w in c.argv[1:] if c.name == "read"}
    if not is_quoted or not word.variable_names or not read_names.issuperset(word.variable_names):
        return False
    return word.source == f'"${word.variable_names[0]}"' and all(
        _is_harmless_part(part, command) for part in parsed.commands
    )


def find_search_of_listed(command: SimpleCommand, parsed: ParsedCommand) -> SimpleCommand | None:
    """The search of the whole folder instead of one in the names that `xargs` gets from a listing,
    or that `find -exec` finds: it reads no less. Names that are options, or symlinks, are the
    caller's concern. The last word is `UNKNOWN_ARGUMENTS`."""
    if command.program not in SEARCH_PROGRAMS or command.assignments:
        return None
    folders, include = [Word(UNKNOWN_ARGUMENTS.source, ".")], list[Word]()
    found = [c for c in parsed.commands if c.inner == (command,) and _is_searching_find(c)]
    if found:
        folders, include = list_searched(found[0].argv[1:])
    elif not any(_is_fed_by_listing(c, command, parsed) for c in parsed.commands):
        return None
    options = (Word("-r", "-r"), *include)
    return replace(command, argv=(command.argv[0], *options, *command.argv[1:-1], *folders))


def is_found_name(word: Word, command: SimpleCommand, parsed: ParsedCommand) -> bool:
    """Whether a word is a name from `find -exec`, which begins with a path: it is no option."""
    outers = [c for c in parsed.commands if c.name == "find" and c.inner == (command,)]
    return word is UNKNOWN_ARGUMENTS and any(map(_is_counting_find, outers))


def _is_counting_find(command: SimpleCommand) -> bool:
    return is_counting_exec(_find_run(command))


def _is_searching_find(command: SimpleCommand) -> bool:
    return command.name == "find" and is_searching_exec(_find_run(command))


def _find_run(command: SimpleCommand) -> Sequence[Word]:
    """The command of the first `-exec` of a `find`."""
    words = command.argv
    at = next((i for i, w in enumerate(words) if w.text == "-exec"), len(words))
    return words[at + 1 : find_end_of_run(words, at)]


def _feeds_from_listing(
    outer: SimpleCommand, command: SimpleCommand, parsed: ParsedCommand
) -> bool:
    """Whether `outer` is an `xargs` that runs the command with the names of a listing."""
    is_counting = is_counting_run(command.argv[:-1])
    return is_counting and _is_fed_by_listing(outer, command, parsed)


def _is_fed_by_listing(outer: SimpleCommand, command: SimpleCommand, parsed: ParsedCommand) -> bool:
    if outer.name != "xargs" or not outer.is_piped or outer.inner != (command,):
        return False
    return all(_is_harmless_part(part, outer) for part in parsed.commands)


def _is_harmless_part(part: SimpleCommand, command: SimpleCommand) -> bool:
    if part is not command and part != command and part.inner:
        return False
    if part.doubts or part.assignments:
        return False
    feeds = [r for r in part.redirects if r.effect in ("read", "both", "data")]
    if not all(r.target is not None and r.target.is_process_substitution for r in feeds):
        return False  # names from a file or a text could be any names
    if not part.argv:
        return True
    texts = [w.text for w in part.argv[1:]]
    if part is command or part == command:
        return part.name != "xargs" or _has_plain_xargs_options(part)
    return _prints_names(part.name or "", texts) or part.name in _SILENT_PROGRAMS


def _has_plain_xargs_options(command: SimpleCommand) -> bool:
    own = len(command.argv) - len(command.inner[0].argv) + 1  # without the names at its end
    return all(w.text in _XARGS_FLAGS for w in command.argv[1:own])


def _prints_names(name: str, texts: list[str | None]) -> bool:
    """Whether a command prints names of files, or some of those that it gets, and nothing else."""
    words = [t or "" for t in texts]
    if not all(words):
        return False
    options = [t for t in words if t[0] == "-"]
    if name == "git":
        return words[:1] == ["ls-files"] and all(t in _LISTING_OPTIONS for t in options)
    if name == "find":
        return all(t in _FIND_TESTS for t in options)
    if name in ("rg", "grep"):
        is_search = any(map(_NAMES_ONLY.fullmatch, options)) and all(
            _SEARCH_FLAG.fullmatch(t) or _SEARCH_GLOB.fullmatch(t) for t in options
        )
        is_filter = len(words) == len(options) + 1 and all(map(_FILTER_FLAG.fullmatch, options))
        return is_search or (name == "grep" and is_filter)
    is_plain = all(t.isdigit() or (t[0] == "-" and t[1:].isalnum()) for t in words)
    return name in _FILTERS and is_plain
