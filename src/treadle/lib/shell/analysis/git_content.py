"""Whether a git command prints the content of files, and of which: `git log -p`, `git diff -- src`;
and whether it does what only some commands do: show help, merge, enter submodules.

git also prints what its index and its commits contain, so a file that may not be read can appear in
the output of a command that does not name it. Knows options only; reads no files. An option that is
not known to print names, counts or messages counts as one that prints content. Used by `git.py` and
`evaluation/git_evaluator.py`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from treadle.lib.shell.ast import Word
from treadle.lib.text.word_set import word_set

_OBJECT_NAME = re.compile(r"[0-9a-fA-F]{4,64}(?:\^\{\w*\})?")  # perhaps of a file
_FILE_OF_COMMIT = re.compile(r"[^:{}]*:(?:[0-3]:)?[\w.].*", re.DOTALL)  # HEAD:src/a.py, :0:a.py
_PATHSPEC_MAGIC = re.compile(r":[(!^]")
# Subcommands that print changes without further options, and those that need an option for it.
_PATCH_SUBCOMMANDS = word_set("diff show format-patch range-diff")
_LOG_SUBCOMMANDS = word_set(
    "log whatchanged reflog diff-tree diff-index diff-files rev-list shortlog cherry show-branch"
)
_NAMED_FILE_SUBCOMMANDS = word_set("blame annotate cat-file")  # print only files that are named
_SUMMARY_OPTIONS = word_set(
    "--stat --shortstat --numstat --name-only --name-status --summary --raw --dirstat --quiet "
    "--no-patch --compact-summary -s"
)
# Options of log and diff that print no content.
_PLAIN_OPTIONS = _SUMMARY_OPTIONS | word_set(
    "--oneline --graph --all --decorate --no-decorate --format --pretty --date --since --after "
    "--until --before --author --committer --grep --all-match --invert-grep --merges --no-merges "
    "--first-parent --follow --reverse --max-count --skip --branches --tags --remotes --glob "
    "--exclude --topo-order --date-order --author-date-order --abbrev-commit --no-abbrev-commit "
    "--abbrev --color --no-color --diff-filter --find-renames --find-copies --no-renames "
    "--find-copies-harder --ignore-all-space --ignore-space-change --ignore-blank-lines "
    "--ignore-space-at-eol --ignore-cr-at-eol --left-right --cherry-pick --cherry-mark --cherry "
    "--count --relative --no-relative --cached --staged --merge-base --exit-code --no-ext-diff "
    "--no-textconv --parents --children --boundary --simplify-by-decoration --show-pulls "
    "--full-history --simplify-merges --ancestry-path --not --walk-reflogs --no-walk --source "
    "--use-mailmap --no-mailmap --mailmap --no-notes --minimal --patience --histogram "
    "--diff-algorithm --root --stat-width --stat-name-width --stat-count --full-index --numbered "
    "--email --group --objects --pickaxe-all --pickaxe-regex --regexp-ignore-case "
    "--extended-regexp --fixed-strings --perl-regexp --relative-date --ignore-submodules "
    "--no-prefix --max-parents --min-parents --no-commit-id --always --verbose --independent"
)
_CACHED = frozenset({"--cached", "--staged"})
_PLAIN_LETTERS = frozenset("sqwbEFgzrRaivtD")  # short options of log and diff without content
_PLAIN_VALUE_LETTERS = frozenset("nSGlMCBXO")
# Options without a value: a word after one is not its value.
_FLAGS = word_set(
    "-p -u --patch -w -b -s --stat --shortstat --numstat --name-only --name-status --raw --oneline "
    "--graph --all --cached --staged --follow --reverse --no-merges --color --no-color"
)


class GitContent(msgspec.Struct, frozen=True):
    """What a command may print: of every file, unless paths limit it."""

    is_whole: bool = True  # not only the files that are named as `COMMIT:FILE`
    # Only files of the work tree, compared with the index, unless an operand is a commit.
    is_of_work_tree: bool = False
    paths: tuple[str, ...] = ()  # pathspecs
    operands: tuple[str, ...] = ()  # words that are commits, or paths if such files exist


class GitReading(msgspec.Struct, frozen=True):
    """What a reading command does besides: programs in the configuration may run for it."""

    shows_help: bool = False  # with a browser, or another program that shows pages
    may_merge: bool = False  # merges commits again, with merge drivers, to show what was resolved
    shows_submodules: bool = False  # runs git in submodules, also in those of older commits
    shows_changes: bool = False  # as the one before, if the configuration says so


def analyze_git_reading(name: str, arguments: Sequence[Word]) -> GitReading:
    """What a subcommand does besides reading."""
    texts = [word.text or "?" for word in arguments]
    at = texts.index("--") if "--" in texts else len(texts)
    options = texts[:at]
    return GitReading(
        shows_help="--help" in options,
        may_merge=any(o == "-m" or o.startswith(("--diff-merges", "--remerge")) for o in options),
        shows_submodules=any(o.startswith("--sub") and o.endswith("=diff") for o in options),
        shows_changes=name != "grep" and find_git_content(name, arguments) is not None,
    )


def find_git_content(name: str, arguments: Sequence[Word]) -> GitContent | None:
    """What a subcommand prints of the content of files; None if nothing."""
    texts = [word.text or "?" for word in arguments]
    at = texts.index("--") if "--" in texts else len(texts)
    before, after = texts[:at], texts[at + 1 :]
    is_stash = name == "stash"
    if is_stash:
        name = {"show": "diff", "list": "log"}.get(before[0] if before else "", "")
        before = before[1:]
    options = [text for text in before if len(text) > 1 and text[0] == "-"]
    operands = [text for text in before if text[:1] != "-"]
    if name in _NAMED_FILE_SUBCOMMANDS:
        is_whole = name == "cat-file" and any(map(_OBJECT_NAME.fullmatch, operands))
        return GitContent(is_whole=is_whole)
    if name == "grep":
        return _find_searched(before, options, after)
    if name in ("status", "commit"):
        return GitContent() if _is_verbose(name, options) else None
    if name in ("archive", "bundle"):
        return GitContent()
    if name not in _PATCH_SUBCOMMANDS and name not in _LOG_SUBCOMMANDS:
        return None
    is_by_object = name == "show" and any(map(_OBJECT_NAME.fullmatch, operands))
    if not is_by_object and not _prints_patch(name, options):
        return None
    if any(len(o) > 4 and "--full-diff".startswith(o) for o in options):
        return GitContent()  # paths choose the commits, and not what is printed of them
    is_whole = name != "show" or not operands or not all(map(_FILE_OF_COMMIT.fullmatch, operands))
    paths = [t for t in operands if _PATHSPEC_MAGIC.match(t)]
    limiting = [] if is_by_object else _list_operands(before)
    is_of_index = is_stash or name not in ("diff", "diff-files")
    is_of_index = is_of_index or not _CACHED.isdisjoint(options)
    is_certain = len(limiting) == len(operands)
    return GitContent(is_whole, is_certain and not is_of_index, (*paths, *after), tuple(limiting))


def _find_searched(
    before: Sequence[str], options: Sequence[str], after: Sequence[str]
) -> GitContent:
    has_pattern_option = any(re.match(r"-\w*[ef]|--regexp", o) for o in options)
    places = [
        text
        for previous, text in pairwise(["", *before])
        if text[:1] != "-" and not re.fullmatch(r"-\w*e", previous)
    ][0 if has_pattern_option else 1 :]
    paths = [t for t in places if _PATHSPEC_MAGIC.match(t)]
    is_cached = any(len(o) > 3 and "--cached".startswith(o) for o in options)
    candidates = [t for t in _list_operands(before) if t in places and t not in paths]
    is_certain = len(candidates) + len(paths) == len(places)
    return GitContent(True, is_certain and not is_cached, (*paths, *after), tuple(candidates))


def _list_operands(before: Sequence[str]) -> list[str]:
    """The words that are not options and cannot be the value of one."""
    found = []
    for at, text in enumerate(before):
        previous = before[at - 1] if at else ""
        is_flag = previous in _FLAGS or "=" in previous or previous[1:].isdigit()
        is_value = previous[:1] == "-" and not is_flag
        if text[:1] != "-" and not is_value:
            found.append(text)
    return found


def _is_verbose(name: str, options: Sequence[str]) -> bool:
    is_verbose = any(
        "--verbose".startswith(o) if o.startswith("--") else "v" in o for o in options if len(o) > 1
    )
    return is_verbose and (name == "status" or any(o.startswith("--dry") for o in options))


def _prints_patch(name: str, options: Sequence[str]) -> bool:
    if not all(map(_is_plain, options)):
        return True
    heads = {option.partition("=")[0] for option in options}
    return name in _PATCH_SUBCOMMANDS and heads.isdisjoint(_SUMMARY_OPTIONS)


def _is_plain(option: str) -> bool:
    """Whether an option of log or diff prints no content."""
    if option.startswith("--"):
        return option.partition("=")[0] in _PLAIN_OPTIONS
    letters = option[1:]
    return (
        letters.isdigit()
        or letters[0] in _PLAIN_VALUE_LETTERS
        or _PLAIN_LETTERS.issuperset(letters)
    )
