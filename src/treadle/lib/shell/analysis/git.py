"""The effects of a git command: many options, variables and subcommands of git run programs.

`git status` and similar commands only read. A broad rule (`git:*`) covers the subcommands listed
here with plain options; the rest is a doubt. Hooks of the repository are not considered.
"""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.lib.shell.analysis.git_content import find_git_content
from treadle.lib.shell.analysis.git_files import analyze_git_files, list_searched_paths
from treadle.lib.shell.ast import Effects, FileGlob, SearchFilter, Word
from treadle.lib.text.word_set import word_set

_READ_SUBCOMMANDS = word_set(
    "status log diff show rev-parse describe blame annotate ls-files ls-tree shortlog "
    "rev-list merge-base name-rev whatchanged diff-tree diff-index diff-files show-ref "
    "for-each-ref count-objects cat-file version show-branch cherry grep var check-ignore"
)
_WRITE_SUBCOMMANDS = word_set(
    "add am apply archive bisect branch bundle checkout cherry-pick clean clone commit fetch "
    "gc format-patch fsck init ls-remote merge mv notes prune pull push range-diff rebase "
    "reflog remote repack reset restore revert rm sparse-checkout stash submodule switch tag "
    "update-index worktree help hash-object"
)
# Options (long ones may be abbreviated) that run a program, choose one, or open any file.
_RUN_OPTIONS = word_set(
    "--upload-pack --receive-pack --exec --ext-diff --open-files-in-pager --extcmd --tool "
    "--template --config --config-env --textconv --filters --exclude-from --no-index "
    "--ignore-revs-file --contents --separate-git-dir --reference --upload-archive --remote "
    "--server-option --sendmail-cmd --interactive --edit-description --git-dir "
    "--pathspec-from-file --stdin --file --signature-file --description-file --stdin-paths "
    "--show-signature --batch --batch-command --remerge-diff"
)
_WRITE_OPTIONS = word_set("--output --output-directory --prefix --build-fake-ancestor")
_SAFE_OPTIONS = word_set(  # full names that share a beginning with one above
    "--output-indicator-new --output-indicator-old --output-indicator-context --no-ext-diff "
    "--no-textconv --remotes --exclude --exclude-standard --no-edit --edit --text --to "
    "--no-template --continue --into-name --intent-to-add --batch-check --batch-all-objects"
)
_SIGNATURE_FORMAT = re.compile(r"%G|%\(signature")  # these run the program that checks signatures
_SHORT_RUN_OPTIONS: dict[str, str] = {
    "rebase": "xi", "grep": "Of", "clone": "uc", "difftool": "x", "add": "ip", "commit": "pt",
    "checkout": "p", "reset": "p", "stash": "p", "restore": "p", "log": "O", "diff": "O",
    "show": "O", "archive": "o", "format-patch": "o", "fetch": "u", "ls-remote": "u",
    "apply": "", "tag": "e", "blame": "S",
}  # fmt: skip
_SHORT_VALUE_OPTIONS: dict[str, str] = {
    "commit": "mCcFtSu", "log": "nSGLU", "diff": "SGUl", "show": "SGUn", "grep": "eABCmf",
    "tag": "mFu", "merge": "mFsXS", "stash": "m", "branch": "u", "clone": "bojc", "push": "o",
    "checkout": "bB", "switch": "cC", "rebase": "sXCS", "clean": "e", "blame": "LSCM",
}  # fmt: skip
_SAFE_CONFIG = word_set(
    "user.name user.email core.quotepath core.abbrev core.autocrlf init.defaultbranch diff.renames "
    "diff.context diff.algorithm log.date log.decorate log.abbrevcommit log.follow log.showroot "
    "commit.gpgsign tag.gpgsign gc.auto"
)
_SAFE_CONFIG_VALUES = {
    "core.pager": ("", "cat"),
    "core.fsmonitor": ("false",),
    "pull.rebase": ("true", "false", "merges"),
}
_SAFE_SECTIONS = word_set("color advice status")
# Keys whose values may be shown: no URL with a password, no header, no token.
_PUBLIC_KEY = re.compile(
    r"(?:user|core|init|pull|push|fetch|merge|rebase|commit|tag|diff|log|status|color|advice|gc|"
    r"rerere|format|branch|extensions|index|pack|alias|gpg|submodule|lfs)\..+|remote\..+\.url|"
    r"remote\.pushdefault"
)
_PRIVATE_KEY = re.compile(r"pass|token|secret|auth|header|cookie|credential")
_STRATEGIES = word_set("ort recursive resolve octopus ours subtree")
_MESSAGE_SUBCOMMANDS = word_set("commit tag notes merge")  # -F reads the message from a file
_STRATEGY_SUBCOMMANDS = word_set("merge rebase pull")  # -s has another meaning in the others
_LISTING_OPERANDS = {  # subcommands that only read if their first operand is one of these
    "stash": {"list", "show"}, "worktree": {"list"}, "remote": {"get-url"},
    "reflog": {"show", "exists"}, "submodule": {"status", "summary"}, "notes": {"list", "show"},
    "bisect": {"log"}, "bundle": {"verify", "list-heads"},
}  # fmt: skip
_ANY_PATH_SUBCOMMANDS = word_set("clone init worktree bundle hash-object")  # take any path
# Their paths are other repositories, patches, or files of a repository that begins further up.
_OUTSIDE_PATH_SUBCOMMANDS = word_set(
    "fetch pull push ls-remote apply am submodule range-diff mv rm restore checkout add clean"
)
_BRANCH_READ_OPTIONS = word_set(
    "-a -r -v -vv --all --remotes --verbose --list -l --show-current --merged --no-merged "
    "--contains --sort --format --column --no-column --color --no-color --points-at --abbrev "
    "-n --ignore-case -i"
)


_GLOBAL_FLAGS = word_set(
    "--no-pager -P --no-replace-objects --literal-pathspecs --no-optional-locks --no-advice "
    "--icase-pathspecs"
)
_GLOBAL_VALUE_OPTIONS = word_set(
    "--git-dir --work-tree --namespace --exec-path --config-env --super-prefix --attr-source"
)


_EXCLUDING_PATHSPEC = re.compile(r":(?:[!^]|\(exclude\))/?(.*)", re.DOTALL)
_UNTRACKED_OPTIONS = ("--untracked", "--no-index", "--no-exclude-standard")


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

    def list_folders(self) -> list[str]:
        return [word.text for word in self.folders if word.text]


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
        if text in _GLOBAL_FLAGS:
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
            at += text in _GLOBAL_VALUE_OPTIONS
    subcommand = words[at] if at < len(words) else None
    return GitCommand(subcommand, tuple(words[at + 1 :]), tuple(folders), tuple(doubts))


def analyze_git(words: Sequence[Word]) -> Effects:
    """The effects of a git command."""
    line = parse_git_command(words)
    doubts = list(line.doubts)
    name = line.subcommand.text if line.subcommand else "version"
    if name is None:
        return Effects(doubts=(*doubts, "the git subcommand is known only when the command runs"))
    if name not in _READ_SUBCOMMANDS and name not in _WRITE_SUBCOMMANDS:
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
        w for w in line.arguments if name in _OUTSIDE_PATH_SUBCOMMANDS and may_leave_folder(w)
    ]
    if outside and line.folders:
        doubts.append("a path relative to another folder")
    is_reading = name in _READ_SUBCOMMANDS or _is_listing(name, line.arguments)
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
    excluded = [m[1] for w in words if (m := _EXCLUDING_PATHSPEC.fullmatch(w.text or ""))]
    return SearchFilter(globs=tuple(FileGlob(text, is_excluded=True) for text in excluded))


def _searches_untracked(name: str, arguments: Sequence[Word]) -> bool:
    """Whether `git grep` reads more files than those in the index or a commit."""
    heads = [w.text or "" for w in arguments]
    return name == "grep" and any(
        full.startswith(head) for head in heads if len(head) > 3 for full in _UNTRACKED_OPTIONS
    )


def _check_options(
    name: str, rest: Sequence[Word], doubts: list[str], reads: list[Word]
) -> list[Word]:
    """Add doubts and reads of the options; return the files that the options write."""
    writes: list[Word] = []
    shows_stash = name == "stash" and _is_listing(name, rest)  # where -p shows a patch
    risky = "" if shows_stash else _SHORT_RUN_OPTIONS.get(name, "")
    valued = _SHORT_VALUE_OPTIONS.get(name, "")
    for at, word in enumerate(rest):
        text = word.text
        if text == "--":
            break
        if text is None or len(text) < 2 or text[0] != "-":
            continue
        following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
        if text.startswith("--"):
            head, equals, value = text.partition("=")
            if head in _SAFE_OPTIONS:
                continue
            if name in _MESSAGE_SUBCOMMANDS and "--file".startswith(head) and len(head) > 3:
                reads.append(Word(word.source, value) if equals else following)
            elif "--strategy".startswith(head) and len(head) > 4:
                _check_strategy(name, value if equals else following.text, doubts)
            elif any(full.startswith(head) for full in _WRITE_OPTIONS) and len(head) > 2:
                writes.append(Word(word.source, value) if equals else following)
                doubts.append(f"git {name} {head} writes a file")
            elif any(full.startswith(head) for full in _RUN_OPTIONS) and len(head) > 2:
                doubts.append(f"git {name} {head} runs a program or opens a file")
            continue
        for place, letter in enumerate(text[1:], 2):
            if letter == "s" and name in _STRATEGY_SUBCOMMANDS:
                _check_strategy(name, text[place:] or following.text, doubts)
                break
            if letter == "F" and name in _MESSAGE_SUBCOMMANDS:
                reads.append(Word(word.source, text[place:]) if text[place:] else following)
                break
            if letter in risky:
                doubts.append(f"git {name} -{letter} runs a program or opens a file")
            if letter in valued:
                break
    return writes


def _check_strategy(name: str, value: str | None, doubts: list[str]) -> None:
    if value not in _STRATEGIES:
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
    if name == "bisect" and not {"run", "view", "visualize"}.isdisjoint(texts):
        doubts.append("git bisect run and view run a command")
    if name == "remote" and texts[:1] and texts[0] not in ("-v", "get-url", "show", "prune"):
        doubts.append("changes the remotes of the repository")
    if name in ("clone", "fetch", "pull", "push", "ls-remote") and any(
        t.startswith("-") and "ssh:" in t for t in texts
    ):
        doubts.append("a URL that looks like an option")
    if name in _ANY_PATH_SUBCOMMANDS and any(may_leave_folder(w) for w in rest):
        doubts.append("a path outside of the folder")
    if name in ("apply", "am") and any(t.startswith(("--dir", "--unsafe")) for t in texts):
        doubts.append("changes files outside of the folder")
    if any(map(_SIGNATURE_FORMAT.search, texts)):
        doubts.append("the format runs the program that checks signatures")
    if name == "var" and not all(t.startswith("GIT_") for t in texts):
        doubts.append("git var prints the whole configuration, with its secrets")
    if name == "help":
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
        only_options = all(t.startswith("-") for t in texts)
        return all(h in _BRANCH_READ_OPTIONS for h in heads) and (
            only_options or bool(listing & set(heads))
        )
    if name == "remote":
        return all(t in ("-v", "--verbose") for t in texts) or texts[:1] == ["get-url"]
    if name not in _LISTING_OPERANDS:
        return False
    if name == "stash" and not texts:
        return False
    if name == "reflog" and all(t.startswith("-") for t in texts):
        return True
    return bool(texts) and texts[0] in _LISTING_OPERANDS[name]


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
    return bool(_PUBLIC_KEY.fullmatch(key)) and not _PRIVATE_KEY.search(key)


def _is_safe_config(text: str | None) -> bool:
    if text is None:
        return False
    key, _, value = text.partition("=")
    key = key.lower()
    if key in _SAFE_CONFIG_VALUES:
        return value in _SAFE_CONFIG_VALUES[key]
    section, _, name = key.partition(".")
    return key in _SAFE_CONFIG or (section in _SAFE_SECTIONS and "." not in name)
