"""The files that git subcommands write, move or copy: `git mv .env x`, `git restore -s old .envrc`.

Knows no rules and no file system. Used by `git.py`.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from treadle.lib.shell.analysis.effects import Effects
from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Word
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
}
# What they put into the index, a stash or another name, a later command can print.
_READING = word_set("mv add stash archive")
_WRITING = word_set("mv rm clean restore checkout stash")
_SAMPLES = (".env", ".envrc", ".env.local", ".npmrc", ".vscode", "x.pem", "x.key", "id_rsa")


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
    """Whether git expands the word itself, and it may match files that hold secrets."""
    text = word.text or ""
    if text.startswith(":"):
        return True
    last = text.rpartition("/")[2]
    is_pattern = not word.is_glob and any(c in last for c in "*?[") and last != "*"
    return is_pattern and any(fnmatchcase(sample, last) for sample in _SAMPLES)
