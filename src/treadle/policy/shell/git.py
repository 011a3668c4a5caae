"""What a git command does: git runs programs by many of its options, variables and subcommands.

`git status` and its like only read. A broad rule (`git:*`) covers the subcommands listed here with
plain options; the rest is a doubt. Hooks of the repository are the repository's own.
"""

from collections.abc import Sequence

import msgspec

from treadle.policy.listed import listed
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Word

_READING = listed(
    "status log diff show rev-parse describe blame annotate ls-files ls-tree shortlog "
    "rev-list merge-base name-rev whatchanged diff-tree diff-index diff-files show-ref "
    "for-each-ref count-objects cat-file version show-branch cherry grep var check-ignore"
)
_CHANGING = listed(
    "add am apply archive bisect branch bundle checkout cherry-pick clean clone commit fetch "
    "gc format-patch fsck init ls-remote merge mv notes prune pull push range-diff rebase "
    "reflog remote repack reset restore revert rm sparse-checkout stash submodule switch tag "
    "update-index worktree help hash-object"
)
# Options (long ones may be abbreviated) that run a program, choose one, or open any file.
_RUNS = (
    "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--open-files-in-pager",
    "--extcmd", "--tool", "--template", "--config", "--config-env", "--textconv", "--filters",
    "--exclude-from",
    "--no-index", "--ignore-revs-file", "--contents", "--separate-git-dir", "--reference",
    "--upload-archive", "--remote", "--server-option", "--sendmail-cmd", "--interactive",
    "--edit-description", "--git-dir", "--pathspec-from-file", "--stdin", "--file",
    "--signature-file", "--description-file", "--stdin-paths",
)  # fmt: skip
_WRITES = ("--output", "--output-directory", "--prefix", "--build-fake-ancestor")
_EXACT = frozenset(  # full names that share a beginning with one above
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
_SHORT_RUNS: dict[str, str] = {
    "rebase": "xi", "grep": "Of", "clone": "uc", "difftool": "x", "add": "ip", "commit": "pt",
    "checkout": "p", "reset": "p", "stash": "p", "restore": "p", "log": "O", "diff": "O",
    "show": "O", "archive": "o", "format-patch": "o", "fetch": "u", "ls-remote": "u",
    "apply": "", "tag": "e", "blame": "S",
}  # fmt: skip
_SHORT_VALUES: dict[str, str] = {
    "commit": "mCcFtSu", "log": "nSGLU", "diff": "SGUl", "show": "SGUn", "grep": "eABCmf",
    "tag": "mFu", "merge": "mFsXS", "stash": "m", "branch": "u", "clone": "bojc", "push": "o",
    "checkout": "bB", "switch": "cC", "rebase": "sXCS", "clean": "e", "blame": "LSCM",
}  # fmt: skip
_SAFE_CONFIG = listed(
    "user.name user.email core.quotepath core.abbrev core.autocrlf init.defaultbranch diff.renames "
    "diff.context diff.algorithm log.date log.decorate log.abbrevcommit log.follow log.showroot "
    "commit.gpgsign tag.gpgsign gc.auto"
)
_SAFE_SECTIONS = listed("color advice status")
_STRATEGIES = listed("ort recursive resolve octopus ours subtree")
_MESSAGES = listed("commit tag notes merge")  # which -F reads from a file
_STRATEGY_LETTER = listed("merge rebase pull")  # to others -s is something else
_LISTING = {  # subcommands that only read when their first operand is one of these, or absent
    "stash": {"list", "show"}, "worktree": {"list"}, "remote": {"get-url"},
    "reflog": {"show", "exists"}, "submodule": {"status", "summary"}, "notes": {"list", "show"},
    "bisect": {"log"}, "bundle": {"verify", "list-heads"},
}  # fmt: skip
_PLACED = listed("clone init worktree bundle hash-object")  # with paths that may lead anywhere
# Paths of these are other repositories, patches, or files of one that begins further up.
_REACHING = listed(
    "fetch pull push ls-remote apply am submodule range-diff mv rm restore checkout add clean"
)
_BRANCH_READS = listed(
    "-a -r -v -vv --all --remotes --verbose --list -l --show-current --merged --no-merged "
    "--contains --sort --format --column --no-column --color --no-color --points-at --abbrev "
    "-n --ignore-case -i"
)


class GitLine(msgspec.Struct, frozen=True):
    """A git command line taken apart: global options, subcommand, the rest."""

    subcommand: Word | None
    rest: tuple[Word, ...]
    folders: tuple[Word, ...] = ()  # -C
    doubts: tuple[str, ...] = ()
    plain_globals: bool = True  # the rules may look past the global options


def git_line(words: Sequence[Word]) -> GitLine:
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
            return GitLine(Word(text, "help"), tuple(words[at:]), tuple(folders), tuple(doubts))
        if text in ("--version", "--help", "-v", "-h"):
            return GitLine(Word(text, "version"), (), tuple(folders), tuple(doubts))
        if text == "-C" and at < len(words):
            folders.append(words[at])
            at += 1
        elif text == "-c" and at < len(words):
            if not _safe_config(words[at].text):
                doubts.append("git -c sets configuration that can run programs")
            at += 1
        else:
            doubts.append(f"git {text} changes where git finds programs or configuration")
            if text in ("--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env",
                        "--super-prefix", "--attr-source"):  # fmt: skip
                at += 1
    subcommand = words[at] if at < len(words) else None
    return GitLine(subcommand, tuple(words[at + 1 :]), tuple(folders), tuple(doubts))


def git_effects(words: Sequence[Word]) -> Effects:
    """The effects of a git command."""
    line = git_line(words)
    doubts = list(line.doubts)
    name = line.subcommand.text if line.subcommand else "version"
    if name is None:
        return Effects(doubts=(*doubts, "a git subcommand that is not static"))
    if name not in _READING and name not in _CHANGING:
        config = _config(line.rest) if name == "config" else ""
        if config:
            return Effects(
                plain=config == "get" and not doubts, doubts=tuple(doubts), reads=line.folders,
                here=True,
            )  # fmt: skip
        doubts.append(f"git {name} may be an alias, or runs programs")
    reads: list[Word] = []
    writes = _options(name, line.rest, doubts, reads)
    doubts += _words(name, line.rest)
    reached = [w for w in line.rest if name in _REACHING and leads_out(w)]
    if reached and line.folders:
        doubts.append("a path as seen from another folder")
    plain = not writes and (name in _READING or _lists(name, line.rest))
    return Effects(
        plain=plain, reads=(*line.folders, *reached, *reads), writes=tuple(writes),
        mentions=line.rest, doubts=tuple(doubts), here=True, recurses=name == "grep",
    )  # fmt: skip


def _options(name: str, rest: Sequence[Word], doubts: list[str], reads: list[Word]) -> list[Word]:
    """Look at the options; answer the files that they write."""
    writes: list[Word] = []
    listing = name == "stash" and _lists(name, rest)  # there -p is for a patch to show
    risky, valued = _SHORT_RUNS.get(name, ""), _SHORT_VALUES.get(name, "")
    risky = "" if listing else risky
    for at, word in enumerate(rest):
        text = word.text
        if text == "--":
            break
        if text is None or len(text) < 2 or text[0] != "-":
            continue
        if text.startswith("--"):
            head, equals, value = text.partition("=")
            if head in _EXACT:
                continue
            following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
            if name in _MESSAGES and "--file".startswith(head) and len(head) > 3:
                reads.append(Word(word.source, value) if equals else following)
            elif "--strategy".startswith(head) and len(head) > 4:
                _strategy(name, value if equals else following.text, doubts)
            elif any(full.startswith(head) for full in _WRITES) and len(head) > 2:
                writes.append(Word(word.source, value) if equals else following)
                doubts.append(f"git {name} {head} writes a file")
            elif any(full.startswith(head) for full in _RUNS) and len(head) > 2:
                doubts.append(f"git {name} {head} runs a program or opens a file")
            continue
        for place, letter in enumerate(text[1:], 2):
            if letter == "s" and name in _STRATEGY_LETTER:
                following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
                _strategy(name, text[place:] or following.text, doubts)
                break
            if letter == "F" and name in _MESSAGES:
                following = rest[at + 1] if at + 1 < len(rest) else Word("", None)
                reads.append(Word(word.source, text[place:]) if text[place:] else following)
                break
            if letter in risky:
                doubts.append(f"git {name} -{letter} runs a program or opens a file")
            if letter in valued:
                break
    return writes


def _strategy(name: str, value: str | None, doubts: list[str]) -> None:
    if value not in _STRATEGIES:
        doubts.append(f"git {name} runs a program for a strategy of this name")


def _words(name: str, rest: Sequence[Word]) -> list[str]:
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
    if name in _PLACED and any(leads_out(w) for w in rest):
        doubts.append("a path outside of here")
    if name in ("apply", "am") and any(t.startswith(("--dir", "--unsafe")) for t in texts):
        doubts.append("changes files outside of here")
    if name == "help":
        doubts.append("git help may start a browser or a pager")
    return doubts


def leads_out(word: Word) -> bool:
    """Whether the word may be a path that leads out of the folder."""
    text = word.text or ""
    return text.startswith(("/", "~", "file:")) or ".." in text.split("/")


def _lists(name: str, rest: Sequence[Word]) -> bool:
    texts = [w.text or "?" for w in rest]
    if name in ("branch", "tag"):
        if not texts:
            return True
        heads = [t.partition("=")[0] for t in texts if t.startswith("-")]
        listing = {"--list", "-l", "--contains", "--merged", "--no-merged", "--points-at"}
        only_options = all(t.startswith("-") for t in texts)
        return all(h in _BRANCH_READS for h in heads) and (
            only_options or bool(listing & set(heads))
        )
    if name == "remote":
        return all(t in ("-v", "--verbose") for t in texts) or texts[:1] == ["get-url"]
    if name not in _LISTING:
        return False
    if name == "stash" and not texts:
        return False
    if name == "reflog" and all(t.startswith("-") for t in texts):
        return True
    return bool(texts) and texts[0] in _LISTING[name]


def _config(rest: Sequence[Word]) -> str:
    """What `git config` does, if it is harmless: "get" one value, "list" all, or "set" one."""
    texts = [w.text or "?" for w in rest]
    if texts[:1] == ["--local"]:
        texts = texts[1:]
    if len(texts) == 2 and texts[0] in ("--get", "get", "--get-all"):
        return "get"
    if texts in (["--list"], ["-l"], ["list"]):
        return "list"
    pair = texts[1:] if texts[:1] == ["set"] else texts
    return "set" if len(pair) == 2 and _safe_config("=".join(pair)) else ""


def _safe_config(text: str | None) -> bool:
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
