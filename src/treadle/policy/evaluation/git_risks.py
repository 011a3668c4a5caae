"""What a git command sends, overwrites on a remote, or discards. Used by `risks.py`."""

from collections.abc import Iterator, Sequence

from treadle.core.contracts.policy import Risk
from treadle.lib.files.file_view import FileView
from treadle.lib.git.config import read_config
from treadle.lib.git.repository import list_repositories
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set
from treadle.policy.shell.analysis.git import parse_git_command
from treadle.policy.shell.ast import Word

_NETWORK_SUBCOMMANDS = word_set("clone fetch pull push ls-remote send-email svn p4")
_REMOTE_SUBCOMMANDS = word_set("fetch pull push ls-remote")
_LOCAL_PATHS = ("/", "./", "../", "~/", "file:///")
_URL_KEYS = compile_lazily(r"url$|insteadof$|^include")
_FORCE_OPTIONS = ("--force", "--mirror", "--delete", "--prune")
_REMOTE_ACTIONS = {"remote": ("update", "prune", "show"), "submodule": ("update",), "lfs": ("",)}


def list_git_risks(words: Sequence[Word]) -> Iterator[Risk]:
    """The risks of the words after `git`."""
    command = parse_git_command(words)
    name, texts = command.name, [word.text or word.source for word in command.arguments]
    names = [text for text in texts if not text.startswith("-")]
    if name in _NETWORK_SUBCOMMANDS or (names[:1] and names[0] in _REMOTE_ACTIONS.get(name, ())):
        yield Risk("network", names[0] if names else "")
    if name in ("push", "send-email"):
        yield Risk("send", " ".join(names))
    if name == "push" and _is_forced(texts):
        yield Risk("force_push", " ".join(names))
    if _discards(name, texts, names):
        yield Risk("discard", f"git {' '.join([name, *texts])}")
    if name == "rm" and "--cached" not in texts:
        is_recursive = _has_letter(texts, "r")
        for target in names:
            yield Risk("recursive_delete" if is_recursive else "delete", target)


def find_local_remotes(words: Sequence[Word], file_system: FileView, cwd: str) -> tuple[str, ...]:
    """The folders of this machine that the command uses as remotes; () if it may use the network,
    too. A name counts only if all remotes of the repository are such folders."""
    command = parse_git_command(words)
    texts = [word.text or "" for word in command.arguments]
    names = [text for text in texts if not text.startswith("-")]
    if command.folders or command.doubts or any(text.startswith("--repo") for text in texts):
        return ()
    takes_path = command.name in ("clone", *_REMOTE_SUBCOMMANDS)
    if takes_path and names and names[0].startswith(_LOCAL_PATHS):
        return (names[0].removeprefix("file://"),)
    if command.name not in _REMOTE_SUBCOMMANDS:
        return ()
    config = [
        entry
        for repository in list_repositories(file_system, cwd)
        for entry in read_config(file_system, f"{repository.common}/config") or ()
    ]
    urls = [one for one in config if _URL_KEYS.search(one[0])]
    is_known = not names or any(key == f"remote.{names[0].lower()}.url" for key, _ in urls)
    if not is_known or not all(
        key.startswith("remote.") and url.startswith(_LOCAL_PATHS) for key, url in urls
    ):
        return ()
    return tuple(dict.fromkeys(url.removeprefix("file://") for _, url in urls))


def _is_forced(texts: Sequence[str]) -> bool:
    """Whether a push can overwrite or delete what is on the remote."""
    return (
        any(text.startswith(_FORCE_OPTIONS) for text in texts)
        or _has_letter(texts, "f")
        or _has_letter(texts, "d")
        or any(text[:1] in ("+", ":") for text in texts)
    )


def _discards(name: str, texts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether changes or commits may be lost."""
    is_forced = "--force" in texts or _has_letter(texts, "f")
    match name:
        case "reset":
            return any(text in ("--hard", "--merge", "--keep") for text in texts)
        case "checkout":
            return is_forced or "--" in texts or "." in names
        case "restore":
            is_staged = "--staged" in texts or _has_letter(texts, "S")
            return not is_staged or "--worktree" in texts or _has_letter(texts, "W")
        case "clean":
            return not ("--dry-run" in texts or _has_letter(texts, "n"))
        case "stash":
            return names[:1] in (["drop"], ["clear"])
        case "branch":
            is_deleted = "--delete" in texts or _has_letter(texts, "d")
            return _has_letter(texts, "D") or (is_deleted and is_forced)
        case "switch":
            return is_forced or "--discard-changes" in texts
        case "worktree":
            return names[:1] == ["remove"] and is_forced
        case "filter-branch" | "filter-repo" | "gc" | "reflog" | "update-ref":
            return name in ("filter-branch", "filter-repo") or "expire" in names or "-d" in texts
    return False


def _has_letter(texts: Sequence[str], letter: str) -> bool:
    """Whether a short option has the letter: `-f`, or `-xdf`."""
    return any(text[:1] == "-" and text[1:2] != "-" and letter in text for text in texts)
