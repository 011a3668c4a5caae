"""Command patterns of rules, `git status:*` or `npm run *`, and the spellings that they match.

An allow rule matches the words as written; a deny or ask rule matches the command by any path, with
its options in any order and spelling. Knows no rules and no files.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.lib.shell.syntax.words import ASSIGNMENT, InvalidWord, encode_source, read_word
from treadle.lib.text.word_set import word_set

_MAX_SUFFIXES = 200
_WORD_SEPARATOR = "\x1f"
_WORD_SYNTAX = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_QUOTES = re.compile(r"""['"\\]|\|\|""")
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./:,+@% -]+")
WordTexts = tuple[str | None, ...]
_CONTAINER_COMMANDS = word_set(
    "attach commit cp create diff exec export inspect kill logs pause port rename restart rm run "
    "start stats stop top unpause update wait"
)
_IMAGE_COMMANDS = word_set("build history import load pull push save tag")
_CONTAINER_NAMES = {
    **{f"container {name}": name for name in _CONTAINER_COMMANDS},
    **{f"image {name}": name for name in _IMAGE_COMMANDS},
    **dict.fromkeys(("container ls", "container list", "container ps"), "ps"),
    "container remove": "rm",
    **dict.fromkeys(("image ls", "image list"), "images"),
    **dict.fromkeys(("image rm", "image remove"), "rmi"),
    "builder build": "build",
    "buildx build": "build",
}
# npm takes any beginning of a subcommand that is of no other one: from so many letters on.
_NPM_BEGINNINGS = {"publish": 2, "unpublish": 3, "install": 2, "uninstall": 3}
_NPM_NAMES = {
    **{name[:end]: name for name, at in _NPM_BEGINNINGS.items() for end in range(at, len(name))},
    "i": "install", "add": "install", "t": "test", "tst": "test", "run-script": "run", "rum": "run",
    "un": "uninstall", "rm": "uninstall", "remove": "uninstall", "r": "uninstall", "x": "exec",
    "up": "update", "upgrade": "update", "list": "ls", "la": "ls", "ll": "ls", "view": "info",
}  # fmt: skip
_OTHER_NAMES = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), _CONTAINER_NAMES), "npm": _NPM_NAMES,
}  # fmt: skip


class Spellings(msgspec.Struct, frozen=True):
    """The spellings of a command."""

    strict: tuple[WordTexts, ...]  # for allow rules
    loose: tuple[WordTexts, ...]  # for deny and ask rules: by any path to the program


_NO_SPELLINGS = Spellings((), ())


class CommandPattern(msgspec.Struct, frozen=True):
    """The pattern in `Bash(…)`: words, and whether more may follow."""

    words: tuple[str, ...]  # none: it covers every command
    assignments: tuple[str, ...] = ()
    is_prefix: bool = False
    regex: str = ""  # over the joined words, if there is a `*` among them
    # `curl * | sh`: matches commands that are piped in this order, to deny or ask, and no other.
    pipeline: tuple["CommandPattern", ...] = ()

    @property
    def has_program_name(self) -> bool:
        """Whether it names a program."""
        return bool(self.words) and "*" not in self.words[0]

    def allows(self, spellings: Spellings) -> bool:
        """Whether an allow rule matches these words, each at its position."""
        if not self.words:
            return not self.pipeline
        return any(map(self._matches, spellings.strict))

    def is_exact_match(self, argv: Sequence[Word]) -> bool:
        """Whether the rule contains the whole command, to the last word."""
        if self.regex or len(self.words) != len(argv) or not self.words:
            return False
        if self.is_prefix and len(self.words) == 1:
            return False  # it names a program with any arguments
        return tuple(word.text for word in argv) == self.words

    def names_inner(self, outer: SimpleCommand, inner: SimpleCommand) -> bool:
        """Whether the rule, which allows a wrapper, names the program inside it as well."""
        if self.regex or not inner.argv:
            return False
        at = next((at for at, word in enumerate(outer.argv) if word is inner.argv[0]), None)
        return at is not None and len(self.words) > at

    def _matches(self, texts: WordTexts) -> bool:
        if self.regex:
            known = _WORD_SEPARATOR.join(t if t is not None else "\0" for t in texts)
            return re.fullmatch(self.regex, known, re.DOTALL) is not None
        head = texts[: len(self.words)]
        return head == self.words and (self.is_prefix or len(texts) == len(head))

    def forbids(self, spellings: Spellings) -> bool:
        """Whether a deny or ask rule matches: by any path, with options in any order."""
        if self.pipeline:
            return False
        if not self.words or any(map(self._matches, spellings.loose)):
            return True
        return not self.regex and any(
            matches_loosely(texts, self.words, prefix=self.is_prefix) for texts in spellings.loose
        )


def matches_pipeline(pattern: CommandPattern, commands: Sequence[SimpleCommand]) -> bool:
    """Whether commands of a line are piped as the pattern says, with or without others between."""
    at = 0
    for command in commands:
        if not command.is_piped:
            at = 0
        if _forbids_any(pattern.pipeline[at], command):
            at += 1
        if at == len(pattern.pipeline):
            return True
    return False


def _forbids_any(pattern: CommandPattern, command: SimpleCommand) -> bool:
    inner = any(_forbids_any(pattern, one) for one in command.inner)
    return inner or pattern.forbids(list_spellings(command))


def parse_command_pattern(text: str) -> CommandPattern:
    """Parse `git status:*`, `npm run *` or a whole command."""
    if not text:
        raise ValueError("an empty command")
    if text in ("*", ":*", "**"):
        return CommandPattern(())
    if "|" in text and not _QUOTES.search(text):
        parts = [parse_command_pattern(part.strip()) for part in text.split("|")]
        # Further words do not make a pipeline another one.
        return CommandPattern((), pipeline=tuple(replace(p, is_prefix=True) for p in parts))
    prefix = text.endswith(":*") or (text.endswith(" *") and "*" not in text[:-2])
    words = _read_words(text[:-2] if prefix else text)
    texts = [w.text or "" for w in words]
    assigned = 0
    while assigned < len(texts) and ASSIGNMENT.match(texts[assigned]):
        assigned += 1
    if assigned == len(texts):
        raise ValueError("no command after the assignments")
    regex = ""
    if any(w.is_glob and "*" in (w.text or "") for w in words):
        regex = _make_regex(words[assigned:], prefix, text.endswith(" *"))
    return CommandPattern(tuple(texts[assigned:]), tuple(texts[:assigned]), prefix, regex)


def _read_words(text: str) -> list[Word]:
    if _PLAIN_WORDS.fullmatch(text):
        return [Word(word, word) for word in text.split()]
    source = encode_source(text)
    try:
        if re.sub(_WORD_SYNTAX, "", source).strip():
            raise InvalidWord("an open quote")
        return [w for piece in _WORD_SYNTAX.findall(source) for w in read_word(piece, {})]
    except InvalidWord as error:
        hint = "one rule names one command, without operators or expansions"
        raise ValueError(f"{error}; {hint}") from error


def _make_regex(words: list[Word], prefix: bool, ends_with_star: bool) -> str:
    """The pattern of a rule with `*` among its words; a last word `*` is any number of words."""
    if not prefix and words[-1].text == "*" and len(words) > 1:
        words, ends_with_star = words[:-1], True
    joined = _WORD_SEPARATOR.join(
        re.escape(w.text or "").replace(r"\*", ".*") if w.is_glob else re.escape(w.text or "")
        for w in words
    )
    return joined + (f"(?:{_WORD_SEPARATOR}.*)?" if prefix or ends_with_star else "")


def list_spellings(command: SimpleCommand) -> Spellings:
    """All spellings of a command."""
    argv = command.argv
    if not argv:
        return _NO_SPELLINGS
    texts = tuple(w.text for w in argv)
    strict = [texts]
    name = command.program
    if name is not None and name != texts[0]:
        strict.append((name, *texts[1:]))
    strict += [other for words in tuple(strict) for other in _list_other_names(words)]
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
    if command.is_unread:
        # At any depth, the innermost command is at the end of the words.
        names = tuple((word.text or "").rpartition("/")[2] for word in argv[-_MAX_SUFFIXES:])
        loose += [names[at:] for at in range(len(names))]
    return Spellings(tuple(strict), tuple(loose))


def _list_other_names(texts: WordTexts) -> Iterator[WordTexts]:
    """The same command by the other names of its subcommand: `docker container rm`, `npm i`."""
    names = _OTHER_NAMES.get((texts[0] or "").rpartition("/")[2])
    if names is not None:
        for count in (2, 1):
            plain = names.get(" ".join(text or "\0" for text in texts[1 : count + 1]))
            if plain is not None and len(texts) > count:
                yield (texts[0], *plain.split(), *texts[count + 1 :])


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
