"""What a git command does: git runs programs by many of its options, variables and subcommands.

`git status` and its like only read. A broad rule (`git:*`) covers the subcommands listed here with
plain options; the rest is a doubt. Hooks of the repository are the repository's own.
"""

from collections.abc import Sequence

import msgspec

from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.ast import Word
from treadle.policy.wordset import word_set

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
_RUN_OPTIONS = (
    "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--open-files-in-pager",
    "--extcmd", "--tool", "--template", "--config", "--config-env", "--textconv", "--filters",
    "--exclude-from",
    "--no-index", "--ignore-revs-file", "--contents", "--separate-git-dir", "--reference",
    "--upload-archive", "--remote", "--server-option", "--sendmail-cmd", "--interactive",
    "--edit-description", "--git-dir", "--pathspec-from-file", "--stdin", "--file",
    "--signature-file", "--description-file", "--stdin-paths",
)  # fmt: skip
_WRITE_OPTIONS = ("--output", "--output-directory", "--prefix", "--build-fake-ancestor")
_SAFE_OPTIONS = frozenset(  # full names that share a beginning with one above
    [
        "--output-indicator-new",
        "--output-indicator-old",
        "--output-indicator-context",
        "--no-ext-diff",
        "--no-textconv",
        "--remotes",
        "--exclude",
        "--exclude-standard",
        "--no-edit",
        "--edit",
        "--text",
        "--to",
        "--no-template",
        "--continue",
        "--into-name",
        "--intent-to-add",
    ]
)
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
_SAFE_SECTIONS = word_set("color advice status")
_STRATEGIES = word_set("ort recursive resolve octopus ours subtree")
_MESSAGE_SUBCOMMANDS = word_set("commit tag notes merge")  # which -F reads from a file
_STRATEGY_SUBCOMMANDS = word_set("merge rebase pull")  # to others -s is something else
_LISTING_OPERANDS = {  # subcommands that only read when their first operand is one of these, or absent
    "stash": {"list", "show"}, "worktree": {"list"}, "remote": {"get-url"},
    "reflog": {"show", "exists"}, "submodule": {"status", "summary"}, "notes": {"list", "show"},
    "bisect": {"log"}, "bundle": {"verify", "list-heads"},
}  # fmt: skip
_ANY_PATH_SUBCOMMANDS = word_set(
    "clone init worktree bundle hash-object"
)  # with paths that may lead anywhere
# Paths of these are other repositories, patches, or files of one that begins further up.
_OUTSIDE_PATH_SUBCOMMANDS = word_set(
    "fetch pull push ls-remote apply am submodule range-diff mv rm restore checkout add clean"
)
_BRANCH_READ_OPTIONS = word_set(
    "-a -r -v -vv --all --remotes --verbose --list -l --show-current --merged --no-merged "
    "--contains --sort --format --column --no-column --color --no-color --points-at --abbrev "
    "-n --ignore-case -i"
)


class GitCommand(msgspec.Struct, frozen=True):
    """A git command line taken apart: global options, subcommand, the rest."""

    subcommand: Word | None
    arguments: tuple[Word, ...]
    folders: tuple[Word, ...] = ()  # -C
    doubts: tuple[str, ...] = ()
    plain_globals: bool = True  # the rules may look past the global options


def parse_git_command(words: Sequence[Word]) -> GitCommand:
    """Take the words after `git` apart."""
    folders: list[Word] = []
    doubts: list[str] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if text is None or not text.startswith("-"):
            break
        at += 1
        if text in ("--no-pager", "-P", "--no-replace-objects", "--literal-pathspecs",
                    "--no-optional-locks", "--no-advice", "--icase-pathspecs"):  # fmt: skip
            continue
        if text == "--help" and at < len(words):
            return GitCommand(Word(text, "help"), tuple(words[at:]), tuple(folders), tuple(doubts))
        if text in ("--version", "--help", "-v", "-h"):
            return GitCommand(Word(text, "version"), (), tuple(folders), tuple(doubts))
        if text == "-C" and at < len(words):
            folders.append(words[at])
            at += 1
        elif text == "-c" and at < len(words):
            if not _is_safe_config(words[at].text):
                doubts.append("git -c sets configuration that can run programs")
            at += 1
        else:
            doubts.append(f"git {text} changes where git finds programs or configuration")
            if text in ("--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env",
                        "--super-prefix", "--attr-source"):  # fmt: skip
                at += 1
    subcommand = words[at] if at < len(words) else None
    return GitCommand(subcommand, tuple(words[at + 1 :]), tuple(folders), tuple(doubts))


def analyze_git(words: Sequence[Word]) -> Effects:
    """The effects of a git command."""
    line = parse_git_command(words)
    doubts = list(line.doubts)
    name = line.subcommand.text if line.subcommand else "version"
    if name is None:
        return Effects(doubts=(*doubts, "a git subcommand that is not static"))
    if name not in _READ_SUBCOMMANDS and name not in _WRITE_SUBCOMMANDS:
        config = _classify_config(line.arguments) if name == "config" else ""
        if config:
            return Effects(
                is_read_only=config == "get" and not doubts, doubts=tuple(doubts), reads=line.folders,
                reads_cwd=True,
            )  # fmt: skip
        doubts.append(f"git {name} may be an alias, or runs programs")
    reads: list[Word] = []
    writes = _check_options(name, line.arguments, doubts, reads)
    doubts += _check_operands(name, line.arguments)
    reached = [
        w for w in line.arguments if name in _OUTSIDE_PATH_SUBCOMMANDS and may_leave_folder(w)
    ]
    if reached and line.folders:
        doubts.append("a path as seen from another folder")
    plain = not writes and (name in _READ_SUBCOMMANDS or _is_listing(name, line.arguments))
    return Effects(
        is_read_only=plain, reads=(*line.folders, *reached, *reads), writes=tuple(writes),
        mentions=line.arguments, doubts=tuple(doubts), reads_cwd=True, is_recursive=name == "grep",
    )  # fmt: skip


def _check_options(
    name: str, rest: Sequence[Word], doubts: list[str], reads: list[Word]
) -> list[Word]:
    """Look at the options; answer the files that they write."""
    writes: list[Word] = []
    listing = name == "stash" and _is_listing(name, rest)  # there -p is for a patch to show
    risky, valued = _SHORT_RUN_OPTIONS.get(name, ""), _SHORT_VALUE_OPTIONS.get(name, "")
    risky = "" if listing else risky
    for at, word in enumerate(rest):
        text = word.text
        if text == "--":
            break
        if text is None or len(text) < 2 or text[0] != "-":
            continue
        if text.startswith("--"):
            head, equals, value = text.partition("=")
            if head in _SAFE_OPTIONS:
                continue
            following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
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
                following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
                _check_strategy(name, text[place:] or following.text, doubts)
                break
            if letter == "F" and name in _MESSAGE_SUBCOMMANDS:
                following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
                reads.append(Word(word.source, text[place:]) if text[place:] else following)
                break
            if letter in risky:
                doubts.append(f"git {name} -{letter} runs a program or opens a file")
            if letter in valued:
                break
    return writes


def _check_strategy(name: str, value: str | None, doubts: list[str]) -> None:
    if value not in _STRATEGIES:
        doubts.append(f"git {name} runs a program for a strategy of this name")


def _check_operands(name: str, rest: Sequence[Word]) -> list[str]:
    texts = [w.text or "" for w in rest]
    doubts = [f"{t.partition('::')[0]}:: is a transport that runs a program"
              for t in texts if "::" in t.partition("/")[0] and name != "log"]  # fmt: skip
    if name == "submodule" and "foreach" in texts:
        doubts.append("git submodule foreach runs a command")
    if name == "bisect" and not {"run", "view", "visualize"}.isdisjoint(texts):
        doubts.append("git bisect run and view run a command")
    if name == "remote" and texts[:1] and texts[0] not in ("-v", "get-url", "show", "prune"):
        doubts.append("changes where the repository talks to")
    if name in ("clone", "fetch", "pull", "push", "ls-remote") and any(
        t.startswith("-") and "ssh:" in t for t in texts
    ):
        doubts.append("an address that looks like an option")
    if name in _ANY_PATH_SUBCOMMANDS and any(may_leave_folder(w) for w in rest):
        doubts.append("a path outside of here")
    if name in ("apply", "am") and any(t.startswith(("--dir", "--unsafe")) for t in texts):
        doubts.append("changes files outside of here")
    if name == "help":
        doubts.append("git help may start a browser or a pager")
    return doubts


def may_leave_folder(word: Word) -> bool:
    """Whether the word may be a path that leads out of the folder."""
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


def _classify_config(rest: Sequence[Word]) -> str:
    """What `git config` does, if it is harmless: "get" one value, "list" all, or "set" one."""
    texts = [w.text or "?" for w in rest]
    if texts[:1] == ["--local"]:
        texts = texts[1:]
    if len(texts) == 2 and texts[0] in ("--get", "get", "--get-all"):
        return "get"
    if texts in (["--list"], ["-l"], ["list"]):
        return "list"
    pair = texts[1:] if texts[:1] == ["set"] else texts
    return "set" if len(pair) == 2 and _is_safe_config("=".join(pair)) else ""


def _is_safe_config(text: str | None) -> bool:
    if text is None:
        return False
    key, _, value = text.partition("=")
    if key.lower() == "core.pager":
        return value in ("", "cat")
    if key.lower() == "core.fsmonitor":
        return value == "false"
    if key.lower() == "pull.rebase":
        return value in ("true", "false", "merges")
    section, _, name = key.lower().partition(".")
    return key.lower() in _SAFE_CONFIG or (section in _SAFE_SECTIONS and "." not in name)
