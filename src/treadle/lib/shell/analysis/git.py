"""The effects of a git command: many options, variables and subcommands of git run programs.

`git status` and similar commands only read. A broad rule (`git:*`) covers the subcommands of
`git_options.py` with plain options; the rest is a doubt. Hooks of a repository are not considered.
git also prints what its index and its commits contain, so a file that may not be read can appear in
the output of a command that does not name it: `find_git_content` tells of which files.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from treadle.lib.shell.analysis import git_options as table
from treadle.lib.shell.analysis.git_files import analyze_git_files, list_searched_paths
from treadle.lib.shell.ast import Effects, FileGlob, SearchFilter, Word


class GitCommand(msgspec.Struct, frozen=True):
    """The parts of a git command line."""

    subcommand: Word | None
    arguments: tuple[Word, ...]
    folders: tuple[Word, ...] = ()  # -C
    doubts: tuple[str, ...] = ()  # about the global options

    @property
    def name(self) -> str:
        """The subcommand; "" if it is not static."""
        return (self.subcommand.text or "") if self.subcommand else ""


def parse_git_command(words: Sequence[Word]) -> GitCommand:
    """Parse the words after `git`."""
    folders: list[Word] = []
    doubts: list[str] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if text is None or not text.startswith("-"):
            break
        at += 1
        if text in table.GLOBAL_FLAGS:
            continue
        if text == "--help" and at < len(words):
            return GitCommand(Word(text, "help"), tuple(words[at:]), tuple(folders), tuple(doubts))
        if text in ("--version", "--help", "-v", "-h"):
            return GitCommand(Word(text, "version"), (), tuple(folders), tuple(doubts))
        if text == "-C" and at < len(words):
            folders.append(words[at])
            if words[at].is_glob:  # it may become several words, and another subcommand
                doubts.append("the folder of git -C is known only when the command runs")
            at += 1
        elif text == "-c" and at < len(words):
            if not _is_safe_config(words[at].text):
                doubts.append("git -c sets configuration that can run programs")
            at += 1
        else:
            doubts.append(f"git {text} changes where git finds programs or configuration")
            at += text in table.GLOBAL_VALUE_OPTIONS
    subcommand = words[at] if at < len(words) else None
    return GitCommand(subcommand, tuple(words[at + 1 :]), tuple(folders), tuple(doubts))


def analyze_git(words: Sequence[Word]) -> Effects:
    """The effects of a git command."""
    line = parse_git_command(words)
    doubts = list(line.doubts)
    name = line.subcommand.text if line.subcommand else "version"
    if name is None:
        return Effects(doubts=(*doubts, "the git subcommand is known only when the command runs"))
    if name not in table.READ_SUBCOMMANDS and name not in table.WRITE_SUBCOMMANDS:
        config = _classify_config(line.arguments) if name == "config" else None
        if config is not None:
            return Effects(
                is_read_only=config == "get" and not doubts,
                reads=line.folders,
                doubts=tuple(doubts),
                reads_cwd=True,
            )
        doubts.append(
            "git config may show secrets or change what git runs"
            if name == "config"
            else f"git {name} may be an alias, or runs programs"
        )
    reads: list[Word] = []
    writes = _check_options(name, line.arguments, doubts, reads)
    doubts += _check_operands(name, line.arguments)
    outside = [
        w for w in line.arguments if name in table.OUTSIDE_PATH_SUBCOMMANDS and may_leave_folder(w)
    ]
    if outside and line.folders:
        doubts.append("a path relative to another folder")
    is_reading = name in table.READ_SUBCOMMANDS or _is_listing(name, line.arguments)
    # Outside of a repository, `git diff` compares any two files.
    may_show = (
        not is_reading or name == "diff" or find_git_content(name, line.arguments) is not None
    )
    files = Effects() if is_reading else analyze_git_files(name, line.arguments, line.folders)
    searched = list_searched_paths(line.arguments, line.folders) if name == "grep" else []
    return Effects(
        is_read_only=is_reading and not writes,
        reads=(*outside, *reads, *files.reads, *(searched or line.folders)),
        writes=tuple(writes),
        primary_writes=files.primary_writes,
        mentions=line.arguments if may_show else (),
        doubts=(*doubts, *files.doubts),
        is_recursive=_searches_untracked(name, line.arguments) or files.is_recursive,
        reads_cwd=not searched,
        search=_parse_grep_filter(line.arguments),
    )


def _parse_grep_filter(words: Sequence[Word]) -> SearchFilter:
    """The filter of `git grep --untracked`."""
    excluded = [m[1] for w in words if (m := table.EXCLUDING_PATHSPEC.fullmatch(w.text or ""))]
    return SearchFilter(globs=tuple(FileGlob(text, is_excluded=True) for text in excluded))


def _searches_untracked(name: str, arguments: Sequence[Word]) -> bool:
    """Whether `git grep` reads more files than those in the index or a commit."""
    heads = [w.text or "" for w in arguments]
    return name == "grep" and any(
        full.startswith(head) for head in heads if len(head) > 3 for full in table.UNTRACKED_OPTIONS
    )


def _check_options(
    name: str, rest: Sequence[Word], doubts: list[str], reads: list[Word]
) -> list[Word]:
    """Add doubts and reads of the options; return the files that the options write."""
    writes: list[Word] = []
    shows_stash = name == "stash" and _is_listing(name, rest)  # where -p shows a patch
    risky = "" if shows_stash else table.SHORT_RUN_OPTIONS.get(name, "")
    valued = table.SHORT_VALUE_OPTIONS.get(name, "")
    for at, word in enumerate(rest):
        text = word.text
        if text == "--":
            break
        if text is None or len(text) < 2 or text[0] != "-":
            continue
        following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
        if text.startswith("--"):
            head, equals, value = text.partition("=")
            if head in table.SAFE_OPTIONS:
                continue
            if table.READ_OPTIONS.get(name, "").startswith(head) and len(head) > 3:
                reads.append(Word(word.source, value) if equals else following)
            elif "--strategy".startswith(head) and len(head) > 4:
                _check_strategy(name, value if equals else following.text, doubts)
            elif any(full.startswith(head) for full in table.WRITE_OPTIONS) and len(head) > 2:
                writes.append(Word(word.source, value) if equals else following)
                doubts.append(f"git {name} {head} writes a file")
            elif any(full.startswith(head) for full in table.RUN_OPTIONS) and len(head) > 2:
                doubts.append(f"git {name} {head} runs a program or opens a file")
            continue
        for place, letter in enumerate(text[1:], 2):
            if letter == "s" and name in table.STRATEGY_SUBCOMMANDS:
                _check_strategy(name, text[place:] or following.text, doubts)
                break
            if letter == "F" and name in table.MESSAGE_SUBCOMMANDS:
                reads.append(Word(word.source, text[place:]) if text[place:] else following)
                break
            if letter in risky:
                doubts.append(f"git {name} -{letter} runs a program or opens a file")
            if letter in valued:
                break
    return writes


def _check_strategy(name: str, value: str | None, doubts: list[str]) -> None:
    if value not in table.STRATEGIES:
        doubts.append(f"git {name} may run a program named after the strategy")


def _check_operands(name: str, rest: Sequence[Word]) -> list[str]:
    texts = [w.text or "" for w in rest]
    doubts = [
        f"{t.partition('::')[0]}:: is a transport that runs a program"
        for t in texts
        if "::" in t.partition("/")[0] and name != "log"
    ]
    if name == "submodule" and "foreach" in texts:
        doubts.append("git submodule foreach runs a command")
    if name == "bisect" and not {"run", "view", "visualize", "replay"}.isdisjoint(texts):
        doubts.append("git bisect run, view and replay run a command, or a file of them")
    if name == "remote" and texts[:1] and texts[0] not in ("-v", "get-url", "show", "prune"):
        doubts.append("changes the remotes of the repository")
    if name in ("clone", "fetch", "pull", "push", "ls-remote") and any(
        t.startswith("-") and "ssh:" in t for t in texts
    ):
        doubts.append("a URL that looks like an option")
    if name in table.ANY_PATH_SUBCOMMANDS and any(may_leave_folder(w) for w in rest):
        doubts.append("a path outside of the folder")
    if name in ("apply", "am") and any(t.startswith(("--dir", "--unsafe")) for t in texts):
        doubts.append("changes files outside of the folder")
    if any(map(table.SIGNATURE_FORMAT.search, texts)):
        doubts.append("the format runs the program that checks signatures")
    if name == "var" and not all(t.startswith("GIT_") for t in texts):
        doubts.append("git var prints the whole configuration, with its secrets")
    if name == "help" and texts:
        doubts.append("git help may start a browser or a pager")
    return doubts


def may_leave_folder(word: Word) -> bool:
    """Whether the word may be a path outside of the folder."""
    text = word.text or ""
    return text.startswith(("/", "~", "file:")) or ".." in text.split("/")


def _is_listing(name: str, rest: Sequence[Word]) -> bool:
    texts = [w.text or "?" for w in rest]
    if name in ("branch", "tag"):
        if not texts:
            return True
        heads = [t.partition("=")[0] for t in texts if t.startswith("-")]
        listing = {"--list", "-l", "--contains", "--merged", "--no-merged", "--points-at"}
        if name == "tag":  # `-n1` implies it
            heads = ["--list" if re.fullmatch(r"-n\d*", head) else head for head in heads]
        only_options = all(t.startswith("-") for t in texts)
        return all(h in table.BRANCH_READ_OPTIONS for h in heads) and (
            only_options or bool(listing & set(heads))
        )
    if name == "remote":
        return all(t in ("-v", "--verbose") for t in texts) or texts[:1] == ["get-url"]
    if name in ("submodule", "help") and not texts:
        return True  # the status; a list of subcommands
    if name not in table.LISTING_OPERANDS:
        return False
    if name == "stash" and not texts:
        return False
    if name == "reflog" and all(t.startswith("-") for t in texts):
        return True
    return bool(texts) and texts[0] in table.LISTING_OPERANDS[name]


def _classify_config(rest: Sequence[Word]) -> Literal["get", "set"] | None:
    """What `git config` does, or None if it may be harmful."""
    texts = [w.text or "?" for w in rest]
    if texts[:1] == ["--local"]:
        texts = texts[1:]
    if len(texts) == 2 and texts[0] in ("--get", "get", "--get-all"):
        return "get" if _is_public_key(texts[1]) else None
    if len(texts) == 1 and _is_public_key(texts[0]):
        return "get"
    pair = texts[1:] if texts[:1] == ["set"] else texts
    return "set" if len(pair) == 2 and _is_safe_config("=".join(pair)) else None


def _is_public_key(key: str) -> bool:
    """Whether the value of this key may be shown without asking."""
    key = key.lower()
    return bool(table.PUBLIC_KEY.fullmatch(key)) and not table.PRIVATE_KEY.search(key)


def _is_safe_config(text: str | None) -> bool:
    if text is None:
        return False
    key, _, value = text.partition("=")
    key = key.lower()
    if key in table.SAFE_CONFIG_VALUES:
        return value in table.SAFE_CONFIG_VALUES[key]
    section, _, name = key.partition(".")
    return key in table.SAFE_CONFIG or (section in table.SAFE_SECTIONS and "." not in name)


# ------------------------------------------------------------ what prints content


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
    shows_content: bool = False  # prints the content of files


def analyze_git_reading(name: str, arguments: Sequence[Word]) -> GitReading:
    """What a subcommand does besides reading."""
    texts = [word.text or "?" for word in arguments]
    at = texts.index("--") if "--" in texts else len(texts)
    options = texts[:at]
    shows_content = find_git_content(name, arguments) is not None
    return GitReading(
        shows_help="--help" in options,
        may_merge=any(o == "-m" or o.startswith(("--diff-merges", "--remerge")) for o in options),
        shows_submodules=any(o.startswith("--sub") and o.endswith("=diff") for o in options),
        shows_changes=shows_content and name != "grep",
        shows_content=shows_content,
    )


def find_git_content(name: str, arguments: Sequence[Word]) -> GitContent | None:
    """What a subcommand prints of the content of files; None if nothing."""
    if name in ("status", "commit") and not arguments:
        return None  # only an option makes them verbose
    texts = [word.text or "?" for word in arguments]
    at = texts.index("--") if "--" in texts else len(texts)
    before, after = texts[:at], texts[at + 1 :]
    is_stash = name == "stash"
    if is_stash:
        name = {"show": "diff", "list": "log"}.get(before[0] if before else "", "")
        before = before[1:]
    options = [text for text in before if len(text) > 1 and text[0] == "-"]
    operands = [text for text in before if text[:1] != "-"]
    if name in table.NAMED_FILE_SUBCOMMANDS:
        is_whole = name == "cat-file" and any(map(table.OBJECT_NAME.fullmatch, operands))
        return GitContent(is_whole=is_whole)
    if name == "grep":
        return _find_searched(before, options, after)
    if name in ("status", "commit"):
        return GitContent() if _is_verbose(name, options) else None
    if name in ("archive", "bundle"):
        return GitContent()
    if name not in table.PATCH_SUBCOMMANDS and name not in table.LOG_SUBCOMMANDS:
        return None
    is_by_object = name == "show" and any(map(table.OBJECT_NAME.fullmatch, operands))
    if not is_by_object and not _prints_patch(name, options):
        return None
    if any(len(o) > 4 and "--full-diff".startswith(o) for o in options):
        return GitContent()  # paths choose the commits, and not what is printed of them
    is_whole = (
        name != "show" or not operands or not all(map(table.FILE_OF_COMMIT.fullmatch, operands))
    )
    paths = [t for t in operands if table.PATHSPEC_MAGIC.match(t)]
    limiting = [] if is_by_object else _list_operands(before)
    is_of_index = is_stash or name not in ("diff", "diff-files")
    is_of_index = is_of_index or not table.CACHED.isdisjoint(options)
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
    paths = [t for t in places if table.PATHSPEC_MAGIC.match(t)]
    is_cached = any(len(o) > 3 and "--cached".startswith(o) for o in options)
    candidates = [t for t in _list_operands(before) if t in places and t not in paths]
    is_certain = len(candidates) + len(paths) == len(places)
    return GitContent(True, is_certain and not is_cached, (*paths, *after), tuple(candidates))


def _list_operands(before: Sequence[str]) -> list[str]:
    """The words that are not options and cannot be the value of one."""
    found = []
    for at, text in enumerate(before):
        previous = before[at - 1] if at else ""
        is_flag = previous in table.FLAGS or "=" in previous or previous[1:].isdigit()
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
    return name in table.PATCH_SUBCOMMANDS and heads.isdisjoint(table.SUMMARY_OPTIONS)


def _is_plain(option: str) -> bool:
    """Whether an option of log or diff prints no content."""
    if option.startswith("--"):
        return option.partition("=")[0] in table.PLAIN_OPTIONS
    letters = option[1:]
    return (
        letters.isdigit()
        or letters[0] in table.PLAIN_VALUE_LETTERS
        or table.PLAIN_LETTERS.issuperset(letters)
    )
