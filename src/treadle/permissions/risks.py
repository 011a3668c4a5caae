"""What a call that needs an approval would write, delete, send or discard, as data for the user.

A function of the call, the folder and the names on disk: it decides nothing, and hosts make the
text. What a program does that is not known here is not listed. Used by `policy.py`.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from treadle.core.contracts.policy import Risk, RiskKind
from treadle.core.contracts.tool import Access
from treadle.lib.files.file_view import CachedFileSystemView, FileSystemView, is_inside
from treadle.lib.git.config import read_config
from treadle.lib.git.repository import find_repositories
from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.analysis.programs import is_interpreter
from treadle.lib.shell.ast import ParsedCommand, SimpleCommand, Word
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set
from treadle.permissions.findings import PolicyContext

_DELETING = word_set("rm rmdir unlink shred")
_OTHER_USER = word_set("sudo doas su pkexec runuser")
_NETWORK_PROGRAMS = word_set(
    "curl wget ssh scp sftp ftp telnet nc ncat netcat socat dig nslookup host ping ping6 whois "
    "traceroute http https xh aria2c rclone gh glab aws gcloud az kubectl helm heroku vercel "
    "netlify flyctl fly ansible mosh lftp mail sendmail"
)
# Subcommands of programs that work locally otherwise: download, or send.
_DOWNLOADS = {
    name: word_set(subcommands)
    for names, subcommands in {
        "npm pnpm bun": "install i ci add update upgrade audit outdated view exec dlx create init",
        "yarn": "install add upgrade up dlx create npm",
        "pip pip3 pipx": "install download index",
        "uv": "sync add pip lock tool",
        "poetry": "install add update lock",
        "cargo": "install fetch update search add",
        "go": "get install mod",
        "gem": "install fetch update",
        "bundle composer": "install update require add",
        "apt apt-get dnf yum apk brew pacman zypper": "install update upgrade add",
        "docker podman": "pull run build login search",
        "conda mamba": "install create update",
    }.items()
    for name in names.split()
}
_UPLOADS = {
    name: word_set(subcommands)
    for names, subcommands in {
        "npm pnpm bun yarn": "publish unpublish deprecate",
        "cargo": "publish yank",
        "twine": "upload",
        "uv poetry flit hatch": "publish",
        "gem": "push yank",
        "docker podman": "push",
        "gh glab": "api create merge close comment edit delete upload",
        "kubectl": "apply create delete patch replace scale exec",
        "helm": "install upgrade uninstall push",
        "terraform tofu": "apply destroy",
        "vercel netlify heroku fly flyctl": "deploy",
        "aws": "cp sync mv rm put-object",
    }.items()
    for name in names.split()
}
_CURL_UPLOADS = (
    "--data", "--form", "--json", "--upload-file", "--post-data", "--post-file", "--body-",
)  # fmt: skip
_SENDING_METHODS = word_set("POST PUT PATCH DELETE")
_IGNORED_PATHS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/stdin", "-")
_MAX_RISKS = 12
_GIT_NETWORK_SUBCOMMANDS = word_set("clone fetch pull push ls-remote send-email svn p4")
_REMOTE_SUBCOMMANDS = word_set("fetch pull push ls-remote")
_LOCAL_PATHS = ("/", "./", "../", "~/", "file:///")
_URL_KEYS = compile_lazily(r"url$|insteadof$|^include")
_FORCE_OPTIONS = ("--force", "--mirror", "--delete", "--prune")
_REMOTE_ACTIONS = {"remote": ("update", "prune", "show"), "submodule": ("update",), "lfs": ("",)}


def list_risks(
    access: Access,
    context: PolicyContext,
    *,
    is_sandboxed: bool = False,
    view: CachedFileSystemView | None = None,
) -> tuple[Risk, ...]:
    """The risks of a call, each once, in the order of the command. `is_sandboxed`: a command runs
    inside the sandbox, which prevents some of what it would do."""
    finder = _RiskFinder(context, access.cwd or context.root, is_sandboxed, view)
    found = dict.fromkeys(finder.list_risks(access))
    return tuple(found)[:_MAX_RISKS]


class _RiskFinder:
    def __init__(
        self,
        context: PolicyContext,
        cwd: str,
        is_sandboxed: bool,
        view: CachedFileSystemView | None,
    ) -> None:
        self._context = context
        self._roots = (context.root, *context.extra_roots)
        self._is_sandboxed = is_sandboxed
        self._view: FileSystemView = view if view is not None else context.file_system
        self._cwd = cwd

    def list_risks(self, access: Access) -> Iterator[Risk]:
        if access.sandbox == "off":
            yield Risk("no_sandbox")
        elif access.sandbox == "network":
            yield from (Risk("network", host) for host in access.domains or ("",))
        if access.command is not None:
            is_offline = self._is_sandboxed and not self._context.sandbox_network
            for risk in self._list_line_risks(parse_command(access.command)):
                yield risk
                if is_offline and not access.sandbox and risk.kind in ("network", "send"):
                    yield Risk("no_network", risk.target)
        for file in access.files:
            yield from self._check_outside(file.path, [self._cwd])
        if access.url is not None:
            yield Risk("network", _find_host(access.url))

    def _list_line_risks(self, parsed: ParsedCommand) -> Iterator[Risk]:
        is_downloading = False
        for command in (*parsed.commands, *parsed.guessed_commands):
            found = [*self._list_command_risks(command)]
            yield from found
            if is_downloading and command.is_piped and _runs_input(command):
                yield Risk("remote_code", command.source)
            is_downloading = is_downloading or any(one.kind == "network" for one in found)

    def _list_command_risks(self, command: SimpleCommand) -> Iterator[Risk]:
        name = command.program or ""
        if name in _OTHER_USER:
            yield Risk("other_user", name)
        if name == "git":
            yield from self._list_git_risks(command)
        yield from self._list_file_risks(name, command)
        yield from _list_network_risks(name, command.argv[1:])
        for inner in command.inner:
            yield from self._list_command_risks(inner)

    def _list_git_risks(self, command: SimpleCommand) -> Iterator[Risk]:
        """A remote that is a folder of this machine is a path, and not the network."""
        risks, cwds = [*_list_git_risks(command.argv[1:])], self._list_cwds(command)
        remotes = [
            (path, cwd)
            for cwd in cwds
            for path in _find_local_remotes(command.argv[1:], self._view, cwd)
        ]
        if len({cwd for _, cwd in remotes}) < len(cwds) or not remotes:
            yield from risks
            return
        yield from (risk for risk in risks if risk.kind not in ("network", "send"))
        is_written = any(risk.kind == "send" for risk in risks)
        for path, cwd in remotes:
            if is_written:
                yield Risk("write", path)
            yield from self._check_written(path, [cwd], is_written)

    def _list_file_risks(self, name: str, command: SimpleCommand) -> Iterator[Risk]:
        effects = command.effects
        cwds = self._list_cwds(command)
        texts = [word.text or "" for word in command.argv]
        targets = [r.target for r in command.redirects if r.effect in ("write", "both")]
        written = [*filter(None, targets), *effects.writes]
        if name in _DELETING:
            kind: RiskKind = "recursive_delete" if effects.is_recursive else "delete"
            for word in effects.primary_writes:
                yield Risk(kind, _get_text(word))
        elif name in ("find", "gfind") and "-delete" in texts:
            yield Risk("recursive_delete", _get_text(next(iter(effects.reads), Word(".", "."))))
        elif name == "rsync" and any(text.startswith("--del") for text in texts):
            yield Risk("recursive_delete", texts[-1])
        elif name != "git":  # its risks have kinds of their own
            written += effects.primary_writes
        for word in written:
            if _get_text(word) not in _IGNORED_PATHS and not _is_descriptor(word):
                yield Risk("write", _get_text(word))
        for word in (*written, *effects.primary_writes):
            if word.text and not word.is_glob:
                yield from self._check_written(word.text, cwds)
        for word in effects.reads:
            if word.text and not word.is_glob:
                yield from self._check_outside(word.text, cwds)

    def _list_cwds(self, command: SimpleCommand) -> tuple[str, ...]:
        return self._view.list_folders(command.cd_paths or (), self._cwd, self._context.home)

    def _check_written(
        self, path: str, cwds: Sequence[str], is_written: bool = True
    ) -> Iterator[Risk]:
        for risk in self._check_outside(path, cwds):
            yield risk
            if self._is_sandboxed and is_written:
                yield Risk("not_kept", risk.target)

    def _check_outside(self, path: str, cwds: Sequence[str]) -> Iterator[Risk]:
        if path in _IGNORED_PATHS:
            return
        for cwd in cwds:
            resolved = self._view.resolve(path, cwd, self._context.home).path
            if not is_inside(resolved, self._roots):
                yield Risk("outside", resolved)


def _list_network_risks(name: str, words: Sequence[Word]) -> Iterator[Risk]:
    texts = [word.text or "" for word in words]
    if len(texts) == 1 and texts[0] in ("--version", "-V", "--help", "-h"):
        return
    subcommands = [text for text in texts if text and not text.startswith("-")]
    host = next(filter(None, map(_find_host, texts)), "")
    uploads = not _UPLOADS.get(name, frozenset()).isdisjoint(subcommands[:3])
    downloads = not _DOWNLOADS.get(name, frozenset()).isdisjoint(subcommands[:1])
    if name in ("rsync", "scp"):
        remote = [text for text in subcommands if ":" in text.partition("/")[0]]
        downloads, host = bool(remote), remote[0].partition(":")[0] if remote else ""
        uploads = bool(remote) and subcommands[-1] in remote
    elif name in _NETWORK_PROGRAMS:
        downloads = True
        uploads = uploads or _sends_data(name, texts)
        if name == "ssh" and subcommands:
            host = subcommands[0].rpartition("@")[2]
    if uploads or downloads:
        yield Risk("network", host)
    if uploads:
        yield Risk("send", host)


def _sends_data(name: str, texts: Sequence[str]) -> bool:
    if name in ("nc", "ncat", "netcat", "mail", "sendmail", "socat"):
        return True
    if name not in ("curl", "wget", "http", "https", "xh"):
        return False
    if not _SENDING_METHODS.isdisjoint(texts) or any(
        text.removeprefix("-X").removeprefix("--request=").removeprefix("--method=")
        in _SENDING_METHODS
        for text in texts
    ):
        return True
    is_short = name == "curl" and any(
        text[:1] == "-" and text[1:2] != "-" and text[1:2] in "dFT" and len(text) > 1
        for text in texts
    )
    return is_short or any(text.startswith(_CURL_UPLOADS) for text in texts)


def _runs_input(command: SimpleCommand) -> bool:
    """Whether the command is an interpreter, which runs what it reads from the pipe."""
    return is_interpreter(command.program or "") or any(map(_runs_input, command.inner))


def _find_host(text: str) -> str:
    """The host of a URL; "" if the text is none."""
    if "://" not in text:
        return ""
    try:
        return urlsplit(text).hostname or ""
    except ValueError:
        return ""


def _is_descriptor(word: Word) -> bool:
    return (word.text or "").startswith("/dev/fd/") or (word.text or "").isdigit()


def _get_text(word: Word) -> str:
    return word.text if word.text is not None else word.source


# ---------------------------------------------------------------- git


def _list_git_risks(words: Sequence[Word]) -> Iterator[Risk]:
    """The risks of the words after `git`."""
    command = parse_git_command(words)
    name, texts = command.name, [word.text or word.source for word in command.arguments]
    names = [text for text in texts if not text.startswith("-")]
    if name in _GIT_NETWORK_SUBCOMMANDS or (
        names[:1] and names[0] in _REMOTE_ACTIONS.get(name, ())
    ):
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


def _find_local_remotes(
    words: Sequence[Word], file_system: FileSystemView, cwd: str
) -> tuple[str, ...]:
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
        for repository in find_repositories(file_system, cwd)[0]
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
