"""The files that git subcommands write, move or copy: `git mv .env x`, `git restore -s old .envrc`.

And whether the pathspecs of a command select a file: `src`, `:/docs`, `*.py`, `:!.env`; there, what
is not certain counts as selected, and as not left out. Knows no rules and no file system.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from os.path import normpath

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.word_set import word_set

_GRAMMARS = {
    "mv": OptionGrammar(),
    "rm": OptionGrammar(),
    "add": OptionGrammar(),
    "archive": OptionGrammar("o", word_set("--format --output --prefix")),
    "clean": OptionGrammar("e", word_set("--exclude")),
    "stash": OptionGrammar("m", word_set("--message")),
    "restore": OptionGrammar("sU", word_set("--source --conflict")),
    "checkout": OptionGrammar("bB", word_set("--conflict --orphan")),
    "clone": OptionGrammar(
        "obujc",
        word_set(
            "--origin --branch --reference --reference-if-able --depth --jobs "
            "--shallow-since --shallow-exclude --filter --separate-git-dir --server-option --config"
        ),
    ),
    "init": OptionGrammar("b", word_set("--initial-branch --object-format --shared")),
    "worktree": OptionGrammar("bB", word_set("--reason --expire")),
    "submodule": OptionGrammar("b", word_set("--branch --name --depth --reference")),
}
# What they put into the index, a stash or another name, a later command can print.
_READING = word_set("mv add stash archive")
_WRITING = word_set("mv rm clean restore checkout stash clone init worktree submodule")
_SAMPLES = (".env", ".envrc", ".env.local", ".npmrc", ".vscode", "x.pem", "x.key", "id_rsa")


_MAGIC = re.compile(r":(?:\(([^)]*)\)|([/!^]*):?)(.*)", re.DOTALL)
_KNOWN_MAGIC = frozenset({"top", "exclude", "/", "!", "^", ""})


def analyze_git_files(name: str, arguments: Sequence[Word], folders: Sequence[Word]) -> Effects:
    """The files among the arguments of a subcommand. `folders`: the values of `git -C`."""
    if name not in _GRAMMARS:
        return Effects()
    options, operands = scan_options(arguments, _GRAMMARS[name])
    names = {option.name for option in options}
    # A restore from the index brings back the user's own files; from elsewhere, any content.
    has_source = not names.isdisjoint(("-s", "--source"))
    if name == "checkout":
        operands, has_source = _split_checkout(arguments, operands)
    elif name in ("stash", "archive"):
        operands = operands[1:]  # the first one is `push`, or a commit
    elif name in ("clone", "init", "worktree", "submodule"):
        operands = _list_new_folders(name, operands)
    files = tuple(_join_folders(word, folders) for word in operands)
    return Effects(
        reads=files if name in _READING else (),
        primary_writes=files if name in _WRITING else (),
        doubts=tuple(f"git reads {w.source} as a pattern" for w in files if _is_risky(w)),
        is_recursive=name == "mv" or "-r" in names or has_source,
    )


def list_searched_paths(arguments: Sequence[Word], folders: Sequence[Word]) -> list[Word]:
    """The paths after `--`, if they are all plain ones; else the search is in the whole folder."""
    at = next((i for i, word in enumerate(arguments) if word.text == "--"), len(arguments))
    paths = arguments[at + 1 :]
    is_plain = all(w.text and not any(c in w.text for c in ":*?[") for w in paths)
    return [_join_folders(word, folders) for word in paths] if is_plain else []


def _list_new_folders(name: str, operands: Sequence[Word]) -> list[Word]:
    """The folder that a clone, a worktree or a submodule is made in, or moved from and to; without
    one it has the name of the repository."""
    if name in ("worktree", "submodule"):
        if name == "worktree" and operands and operands[0].text == "move":
            return [*operands[1:]]
        if not operands or operands[0].text != "add":
            return []
        operands = operands[1:]
    if name in ("init", "worktree"):
        return [*operands[:1]]
    if len(operands) > 1 or not operands or operands[0].text is None:
        return [*operands[1:2]]
    made = operands[0].text.rstrip("/").removesuffix("/.git").removesuffix(".git")
    return [replace(operands[0], text=re.split("[/:]", made)[-1], is_glob=False)]


def _split_checkout(arguments: Sequence[Word], operands: list[Word]) -> tuple[list[Word], bool]:
    """The files, and whether they come from a commit."""
    at = next((i for i, word in enumerate(arguments) if word.text == "--"), None)
    if at is not None:
        files = list(arguments[at + 1 :])
        return files, len(operands) > len(files)
    files = [word for word in operands if word.text != "-"]  # the first may be a file or a branch
    return files, len(files) > 1


def _join_folders(word: Word, folders: Sequence[Word]) -> Word:
    if word.text is None or word.text.startswith("/") or not folders:
        return word
    return replace(word, text="/".join([*(f.text or "" for f in folders), word.text]))


def _is_risky(word: Word) -> bool:
    """Whether git expands the word itself, and it may match files that hold secrets. It also
    expands what the shell found no name for: `[.]env`, `*env`."""
    text = word.text or ""
    if text.startswith(":"):
        return True
    last = text.rpartition("/")[2]
    is_pattern = any(c in last for c in "*?[") and last != "*"
    return is_pattern and any(fnmatchcase(sample, last) for sample in _SAMPLES)


# ------------------------------------------------------------ pathspecs


class _Pathspec(msgspec.Struct, frozen=True):
    path: str  # relative to the top of the repository
    is_excluded: bool
    is_known: bool = True  # every word of its magic is understood


def is_selected(path: str, pathspecs: Sequence[str], prefix: str) -> bool:
    """Whether a command with these pathspecs may show `path`, relative to the top.

    `prefix`: the folder that the command runs in, relative to the top."""
    parsed = [_parse(text, prefix) for text in pathspecs]
    if any(spec.is_excluded and _is_certainly_matched(path, spec) for spec in parsed):
        return False
    including = [spec for spec in parsed if not spec.is_excluded]
    return not including or any(_may_match(path, spec) for spec in including)


def _parse(text: str, prefix: str) -> _Pathspec:
    match = _MAGIC.fullmatch(text)
    magic: set[str] = set()
    if match is not None:
        magic = set(match[1].split(",") if match[1] is not None else match[2])
        text = match[3]
    is_from_top = not magic.isdisjoint(("top", "/"))
    joined = normpath(f"/{text}" if is_from_top else f"/{prefix}/{text}").strip("/")
    is_excluded = not magic.isdisjoint(("exclude", "!", "^"))
    return _Pathspec(joined, is_excluded, magic <= _KNOWN_MAGIC)


def _is_certainly_matched(path: str, spec: _Pathspec) -> bool:
    if not spec.is_known or any(c in spec.path for c in "[\\"):
        return False
    is_inside = spec.path == "" or path == spec.path or path.startswith(spec.path + "/")
    return is_inside or fnmatchcase(path, spec.path)


def _may_match(path: str, spec: _Pathspec) -> bool:
    if not spec.is_known or spec.path.startswith(".."):
        return True
    fixed = re.split(r"[*?\[\\]", spec.path, maxsplit=1)[0]
    if fixed != spec.path:
        return path.lower().startswith(fixed.lower())
    folded = fixed.lower()
    return folded == "" or f"{path.lower()}/".startswith(f"{folded}/")
