"""The ways in which one command may be written: what a rule about it means.

An allow rule means the words as they stand; a deny or ask rule means the command by any path, with
its options in any order and spelling. Knows no rules and no files.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.policy.listed import listed
from treadle.policy.shell.facts import Word
from treadle.policy.shell.git import git_line
from treadle.policy.shell.wrappers import program_name

Texts = tuple[str | None, ...]


class Forms(msgspec.Struct, frozen=True):
    """The ways in which a command may be written and still be the same.

    `strict` are the ways that an allow rule may be meant for; `wide` those that a deny rule is, by
    any path to the program.
    """

    strict: tuple[Texts, ...]
    wide: tuple[Texts, ...]


_NO_FORMS = Forms((), ())


def forms_of(argv: Sequence[Word]) -> Forms:
    """All forms of a command."""
    if not argv:
        return _NO_FORMS
    texts = tuple(w.text for w in argv)
    strict = [texts]
    name = program_name(argv[0])
    if name is not None and name != texts[0]:
        strict.append((name, *texts[1:]))
    wide = list(strict)
    base = (texts[0] or "").rstrip("/").rpartition("/")[2]
    if base == "git" and len(texts) > 1 and (texts[1] or "").startswith("-"):
        line = git_line(argv[1:])
        if line.subcommand is not None:
            plain = ("git", line.subcommand.text, *(w.text for w in line.rest))
            wide.append(plain)
            if not line.doubts and name == "git":
                strict.append(plain)
    if base:
        for spelled in {base, base.lower()} - {form[0] for form in wide}:
            wide += [(spelled, *form[1:]) for form in tuple(wide)]
    return Forms(tuple(strict), tuple(wide))


def means(texts: Texts, wanted: Texts, *, prefix: bool) -> bool:
    """Whether a deny or ask rule for `wanted` means this command.

    Options count wherever they stand and however they are spelled; a word behind an option may be
    its value, and does not hide the words that follow.
    """
    words, flags = _taken_apart(wanted)
    theirs, at = _taken_apart(texts)[1], 0
    behind_option = False
    for text in texts:
        is_option = _is_option(text) and at > 0
        if is_option:
            pass
        elif at < len(words) and text == words[at]:
            at += 1
        elif not behind_option and (at < len(words) or not prefix):
            return False
        behind_option = is_option and "=" not in (text or "")
    if at < len(words):
        return False
    name = f"{words[0]} {words[1]}" if words[0] == "git" and len(words) > 1 else words[0] or ""
    return all(any(_same(flag, other, name) for other in theirs) for flag in flags)


def _is_option(text: str | None) -> bool:
    return text is not None and len(text) > 1 and text[0] == "-"


@lru_cache(maxsize=1024)
def _taken_apart(texts: Texts) -> tuple[Texts, frozenset[str]]:
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


# Options that are another name of each other, by program.
_NAMES: dict[str, tuple[frozenset[str], ...]] = {
    "rm": (listed("-r -R --recursive"), listed("-f --force"), listed("-d --dir")),
    "cp": (listed("-r -R --recursive"), listed("-f --force"), listed("-a --archive")),
    "chmod": (listed("-R --recursive"),),
    "chown": (listed("-R --recursive"),),
    "git push": (listed("-f --force"), listed("-d --delete"), listed("-u --set-upstream")),
    "git commit": (listed("-a --all"), listed("-n --no-verify")),
    "git add": (listed("-A --all"), listed("-f --force"), listed("-u --update")),
    "git clean": (listed("-f --force"),),
    "git checkout": (listed("-f --force"),),
    "git switch": (listed("-f --force --discard-changes"),),
    "git branch": (listed("-d --delete -D"), listed("-f --force -D"), listed("-m --move -M")),
    "git tag": (listed("-d --delete"), listed("-f --force")),
    "git rebase": (listed("-i --interactive"), listed("-f --force-rebase")),
    "git fetch": (listed("-f --force"), listed("-p --prune")),
    "npm": (listed("-g --global"), listed("-f --force")),
    "docker": (listed("-f --force"), listed("-v --volume"), listed("-a --all")),
    "kubectl": (listed("-f --filename"), listed("-A --all-namespaces")),
    "curl": (listed("-X --request"), listed("-o --output"), listed("-d --data")),
    "pip": (listed("-U --upgrade"), listed("-r --requirement")),
}


def _same(wanted: str, given: str, name: str) -> bool:
    """Whether an option is the one that a rule names: itself, shortened, or its other name."""
    if wanted == given:
        return True
    given = given.partition("=")[0]
    if given.startswith("--") and len(given) > 3 and wanted.startswith(given):
        return True
    return any(
        wanted in names
        and any(n == given or (given[:2] == "--" and len(given) > 3 and n.startswith(given))
                for n in names)
        for names in _NAMES.get(name, ())
    )  # fmt: skip
