"""The effects of `find`: paths, then an expression in which some words run, write or delete.

Knows the programs that show sizes, counts and other facts about files and none of their content:
what they get from `find` may be any file of the folder.
"""

import re
from collections.abc import Sequence

from treadle.lib.shell.ast import Effects, Word, get_program_name
from treadle.lib.text.word_set import word_set

SEARCH_PROGRAMS = word_set("grep egrep fgrep")
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_ALTERNATIVES = frozenset({"-o", "-or", ",", "!", "-not", "("})
_PLAIN_TESTS = word_set("-name -type -maxdepth -mindepth -mtime -mmin -size -empty -depth -print")
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fls", "-fprintf"})
_FIND_READS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile", "-files0-from"})
_FIND_VALUES = word_set(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -xtype -size "
    "-mtime -atime -ctime -mmin -amin -cmin -user -group -perm -maxdepth -mindepth -printf "
    "-regextype -newermt -links -inum -fstype -lname -ilname -used -uid -gid"
)
_FIND_FLAGS = word_set(
    "-print -print0 -ls -prune -empty -executable -readable -writable -true -false -quit "
    "-depth -d -mount -xdev -nouser -nogroup -not -a -o -and -or -daystart -noleaf -warn "
    "-nowarn -ignore_readdir_race -H -P ( ) ! ,"
)


COUNTING_PROGRAMS = word_set("wc stat du ls file basename dirname md5sum sha1sum sha256sum")
_PLAIN_OPTION = re.compile(r"-[A-Za-z0-9]+")
_READING_OPTIONS = {"file": "fm", "md5sum": "c", "sha1sum": "c", "sha256sum": "c", "du": "X"}


def is_counting_run(words: Sequence[Word]) -> bool:
    """Whether the words are a counting program with plain options (`-l`, `-lh`) and no files."""
    name = get_program_name(words[0]) if words else None
    if name not in COUNTING_PROGRAMS:
        return False
    reading = set(_READING_OPTIONS.get(name or "", ""))
    return all(
        _PLAIN_OPTION.fullmatch(word.text or "") and reading.isdisjoint(word.text or "")
        for word in words[1:]
    )


def find_end_of_run(words: Sequence[Word], start: int) -> int:
    """The place of the `;` or `+` that ends the command of `-exec`."""
    ends = (at for at in range(start, len(words)) if words[at].text in (";", "+"))
    return next(ends, len(words))


def is_counting_exec(run: Sequence[Word]) -> bool:
    """Whether the command of `-exec` shows no content: `wc -l {}`. Names begin with a path."""
    return len(run) > 1 and run[-1].text == "{}" and is_counting_run(run[:-1])


def is_searching_exec(run: Sequence[Word]) -> bool:
    """Whether the command of `-exec` searches in what was found: `grep -l def {}`."""
    is_search = bool(run) and get_program_name(run[0]) in SEARCH_PROGRAMS
    return is_search and run[-1].text == "{}" and all("{}" not in w.source for w in run[:-1])


def list_searched(words: Sequence[Word]) -> tuple[list[Word], list[Word]]:
    """The folders in which a `find` searches, and options of `grep -r` for the names that the
    command of `-exec` gets; no option if it may get others."""
    ends = (i for i, w in enumerate(words) if (w.text or "")[:1] in ("-", "(", "!"))
    folders = [*words[: next(ends, len(words))]] or [Word(".", ".")]
    texts = [word.text for word in words]
    before = texts[: texts.index("-exec")]
    if not _FIND_ALTERNATIVES.isdisjoint(texts) or "-name" not in before:
        return folders, []
    pattern = before[before.index("-name") + 1]
    return folders, [Word(f"--include={pattern}", f"--include={pattern}")] if pattern else []


def analyze_find(words: Sequence[Word]) -> Effects:
    """The effects of a `find` command."""
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    is_read_only, at, in_expression = True, 0, False
    while at < len(words):
        word = words[at]
        text = word.text or ""
        at += 1
        if word.text is None:
            reads.append(word)
        elif text in _FIND_RUNS:
            end = find_end_of_run(words, at)
            run = words[at:end]
            if text == "-exec" and (is_counting_exec(run) or is_searching_exec(run)):
                at, in_expression = end + 1, True
            else:
                doubts.append(f"{text} runs a program")
        elif text == "-delete":
            doubts.append("-delete removes files")
        elif text in _FIND_WRITES:
            writes += words[at : at + 1]
            doubts.append(f"{text} writes a file")
            at += 1
        elif text in _FIND_READS:
            reads += words[at : at + 1]
            at += 1
            is_read_only = is_read_only and text != "-files0-from"
        elif text in ("-L", "-follow"):
            doubts.append("follows symlinks")
        elif text in _FIND_VALUES:
            at += 1
            in_expression = True
        elif text in _FIND_FLAGS:
            in_expression = in_expression or text not in ("-H", "-P")
        elif text.startswith("-"):
            is_read_only = False
        elif in_expression:
            doubts.append("a word where none is expected")
        else:
            reads.append(word)
    return Effects(
        is_read_only=is_read_only and not writes,
        reads=tuple(reads),
        writes=tuple(writes),
        doubts=tuple(doubts),
        reads_cwd=not reads,
        removed_name=_find_removed_name(words) if doubts else "",
    )


def _find_removed_name(words: Sequence[Word]) -> str:
    """The pattern of `find PATHS -name PATTERN -delete` or `… -exec rm -rf {} +`; "" for others."""
    texts = [word.text or "?" for word in words]
    end = next((i for i, t in enumerate(texts) if t in ("-delete", *_FIND_RUNS)), len(texts))
    tests = [text for text in texts[:end] if text[:1] in ("-", "(", ")", "!", ",")]
    is_rm = re.fullmatch(r"-exec rm( -[rf]+)? \{\} [;+]", " ".join(texts[end:])) is not None
    if not (is_rm or texts[end:] == ["-delete"]) or not _PLAIN_TESTS.issuperset(tests):
        return ""
    return texts[texts.index("-name") + 1] if "-name" in tests else ""
