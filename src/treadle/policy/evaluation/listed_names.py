"""Loops over names that a listing prints: `git ls-files | while read -r f; do wc -l "$f"; done`.

The names are known only when the line runs, but they are names of files in the workspace, and the
programs here show sizes and counts, not content. Used by `command_evaluator.py`.
"""

from treadle.policy.shell.ast import ParsedCommand, SimpleCommand, Word
from treadle.policy.shell.program_names import get_program_name
from treadle.policy.wordset import word_set

_COUNTING_PROGRAMS = word_set("wc stat du ls file basename dirname md5sum sha1sum sha256sum")
_SILENT_PROGRAMS = word_set("read [ test true :")
_FILTERS = word_set("sort head tail")  # with options only: they print some of the names
_LISTING_OPTIONS = word_set("-c -m -o -d --cached --modified --others --deleted --exclude-standard")
_FIND_TESTS = word_set("-name -iname -path -not ! -type -maxdepth -mindepth -newer -o -a ( )")


def is_listed_name(word: Word, command: SimpleCommand, parsed: ParsedCommand) -> bool:
    """Whether a word is a name from a listing, given to a program that shows no content.

    A file whose name begins with `-` would be an option: the caller has to exclude this."""
    if get_program_name(command.argv[0]) not in _COUNTING_PROGRAMS or command.assignments:
        return False
    is_quoted = word.text is None and word.is_plain_data and not word.may_split
    read_names = {w.text for c in parsed.commands for w in c.argv[1:] if c.name == "read"}
    if not is_quoted or not word.variable_names or not read_names.issuperset(word.variable_names):
        return False
    return word.source == f'"${word.variable_names[0]}"' and all(
        _is_harmless_part(part, command) for part in parsed.commands
    )


def _is_harmless_part(part: SimpleCommand, command: SimpleCommand) -> bool:
    if part.doubts or part.assignments or part.inner:
        return False
    feeds = [r for r in part.redirects if r.effect in ("read", "both", "data")]
    if not all(r.target is not None and r.target.is_process_substitution for r in feeds):
        return False  # names from a file or a text could be any names
    if not part.argv or part is command or part == command:
        return True
    name, texts = part.name, [w.text for w in part.argv[1:]]
    if name == "git":
        is_plain = all(t and (t[0] != "-" or t in _LISTING_OPTIONS) for t in texts)
        return texts[:1] == ["ls-files"] and is_plain
    if name == "find":
        return all(t is not None and (t[:1] != "-" or t in _FIND_TESTS) for t in texts)
    if name in _FILTERS:
        return all(t and (t.isdigit() or (t[0] == "-" and t[1:].isalnum())) for t in texts)
    return name in _SILENT_PROGRAMS
