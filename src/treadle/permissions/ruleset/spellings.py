"""The spellings of one command that a rule matches.

An allow rule matches the words as written; a deny or ask rule matches the command by any path, with
its options in any order and spelling. Knows no rules and no files.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.ast import Word, get_program_name
from treadle.lib.text.word_set import word_set

WordTexts = tuple[str | None, ...]


class Spellings(msgspec.Struct, frozen=True):
    """The spellings of a command."""

    strict: tuple[WordTexts, ...]  # for allow rules
    loose: tuple[WordTexts, ...]  # for deny and ask rules: by any path to the program


_NO_SPELLINGS = Spellings((), ())


def list_spellings(argv: Sequence[Word]) -> Spellings:
    """All spellings of a command."""
    if not argv:
        return _NO_SPELLINGS
    texts = tuple(w.text for w in argv)
    strict = [texts]
    name = get_program_name(argv[0])
    if name is not None and name != texts[0]:
        strict.append((name, *texts[1:]))
    loose = list(strict)
    base = (texts[0] or "").rstrip("/").rpartition("/")[2]
    if base == "git" and len(texts) > 1 and (texts[1] or "").startswith("-"):
        line = parse_git_command(argv[1:])
        if line.subcommand is not None:
            plain = ("git", line.subcommand.text, *(w.text for w in line.arguments))
            loose.append(plain)
            if not line.doubts and name == "git":
                strict.append(plain)
    if base:
        for name in {base, base.lower()} - {words[0] for words in loose}:
            loose += [(name, *words[1:]) for words in tuple(loose)]
    return Spellings(tuple(strict), tuple(loose))


def matches_loosely(texts: WordTexts, wanted: WordTexts, *, prefix: bool) -> bool:
    """Whether a deny or ask rule for `wanted` matches this command.

    Options match at any position and in any spelling. A word after an option may be its value, and
    does not hide the words after it.
    """
    words, options = _split_options(wanted)
    other_options, at = _split_options(texts)[1], 0
    is_after_option = False
    for text in texts:
        is_option = _is_option(text) and at > 0
        if is_option:
            pass
        elif at < len(words) and text == words[at]:
            at += 1
        elif not is_after_option and (at < len(words) or not prefix):
            return False
        is_after_option = is_option and "=" not in (text or "")
    if at < len(words):
        return False
    name = f"{words[0]} {words[1]}" if words[0] == "git" and len(words) > 1 else words[0] or ""
    return all(any(_is_same_option(o, other, name) for other in other_options) for o in options)


def _is_option(text: str | None) -> bool:
    return text is not None and len(text) > 1 and text[0] == "-"


@lru_cache(maxsize=1024)
def _split_options(texts: WordTexts) -> tuple[WordTexts, frozenset[str]]:
    """Plain words in order, and options as a set (`-rf` is -r and -f)."""
    words: list[str | None] = []
    flags: set[str] = set()
    for at, text in enumerate(texts):
        if at and text and text.startswith("--") and len(text) > 2:
            flags.add(text)
        elif at and text and _is_option(text):
            flags.update("-" + c for c in text[1:])
        else:
            words.append(text)
            if at > 2 and (text or "").startswith("+") and texts[1] == "push":
                flags.add("--force")  # `git push origin +main`
    return tuple(words), frozenset(flags)


# Options with the same meaning, by program.
_OPTION_SYNONYMS: dict[str, tuple[frozenset[str], ...]] = {
    "rm": (word_set("-r -R --recursive"), word_set("-f --force"), word_set("-d --dir")),
    "cp": (word_set("-r -R --recursive"), word_set("-f --force"), word_set("-a --archive")),
    "chmod": (word_set("-R --recursive"),),
    "chown": (word_set("-R --recursive"),),
    "git push": (word_set("-f --force"), word_set("-d --delete"), word_set("-u --set-upstream")),
    "git commit": (word_set("-a --all"), word_set("-n --no-verify")),
    "git add": (word_set("-A --all"), word_set("-f --force"), word_set("-u --update")),
    "git clean": (word_set("-f --force"),),
    "git checkout": (word_set("-f --force"),),
    "git switch": (word_set("-f --force --discard-changes"),),
    "git branch": (word_set("-d --delete -D"), word_set("-f --force -D"), word_set("-m --move -M")),
    "git tag": (word_set("-d --delete"), word_set("-f --force")),
    "git rebase": (word_set("-i --interactive"), word_set("-f --force-rebase")),
    "git fetch": (word_set("-f --force"), word_set("-p --prune")),
    "npm": (word_set("-g --global"), word_set("-f --force")),
    "docker": (word_set("-f --force"), word_set("-v --volume"), word_set("-a --all")),
    "kubectl": (word_set("-f --filename"), word_set("-A --all-namespaces")),
    "curl": (word_set("-X --request"), word_set("-o --output"), word_set("-d --data")),
    "pip": (word_set("-U --upgrade"), word_set("-r --requirement")),
}


def _is_same_option(wanted: str, given: str, name: str) -> bool:
    """Whether an option is the one in a rule, also abbreviated or by another name."""
    if wanted == given:
        return True
    given = given.partition("=")[0]
    is_long = given.startswith("--") and len(given) > 3
    if is_long and wanted.startswith(given):
        return True
    return any(
        wanted in names and any(n == given or (is_long and n.startswith(given)) for n in names)
        for names in _OPTION_SYNONYMS.get(name, ())
    )
