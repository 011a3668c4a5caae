"""Builtins of the shell and programs whose words have a grammar of their own: find, tar, date.

The same promises as the table's: what is not known to be harmless is a doubt or not plain.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.git import may_leave_folder
from treadle.policy.shell.analysis.options import CommandOption, OptionGrammar, scan_options
from treadle.policy.shell.ast import Word
from treadle.policy.wordset import word_set

_VARIABLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PRINTF_COUNT = re.compile(r"%[-#+ '0-9.*]*[hjlLqtz]*n")
_INTEGER = re.compile(r"-?[0-9]+")
_STATE_BUILTINS = word_set(
    "source . alias unalias hash enable trap bind complete compgen compopt fc history let "
    "mapfile readarray getopts shopt umask ulimit export declare typeset local readonly unset "
    "dirs disown fg bg suspend logout caller exec"
)
_STATE_DOUBT = "changes the shell that later commands run in"


def analyze_builtin(name: str, words: Sequence[Word]) -> Effects | None:
    """The effects of a builtin, or None when `name` is not one."""
    if name == "echo":
        return Effects(is_read_only=True, is_print_only=True)
    if name == "printf":
        if words and (words[0].text is None or words[0].text.startswith("-v")):
            return Effects(doubts=("printf -v sets a variable, and runs what its subscript holds",))
        formats = words[1:2] if words and words[0].text == "--" else words[:1]
        if any(_PRINTF_COUNT.search((w.text or "").replace("%%", "")) for w in formats):
            return Effects(doubts=("printf %n sets a variable",))
        return Effects(is_read_only=True, is_print_only=True)
    if name in ("[", "[[", "test"):
        return _analyze_test(name, words)
    if name in ("cd", "pushd", "popd"):
        return Effects()  # the judge looks at where it leads
    if name == "command":
        return Effects(is_read_only=True, is_print_only=True)  # only `command -v` is left unwrapped
    if name == "set":
        return _analyze_set(words)
    if name == "read":
        texts = [w.text or "?" for w in words]
        fine = all(t in ("-r", "-s") or _VARIABLE_NAME.fullmatch(t) for t in texts)
        return Effects(is_read_only=fine, doubts=() if fine else (_STATE_DOUBT,))
    if name in _STATE_BUILTINS:
        return Effects(doubts=(_STATE_DOUBT,))
    return None


def _analyze_set(words: Sequence[Word]) -> Effects:
    texts = [w.text or "?" for w in words]
    fine = bool(texts)
    names = {"pipefail", "errexit", "nounset", "xtrace"}
    for at, text in enumerate(texts):
        if at and re.fullmatch(r"[-+][eux]*o", texts[at - 1]):
            fine = fine and text in names
        else:
            fine = fine and bool(re.fullmatch(r"[-+][eux]*o?", text)) and len(text) > 1
    return Effects(is_read_only=fine, doubts=() if fine else (_STATE_DOUBT,))


def _analyze_test(name: str, words: Sequence[Word]) -> Effects:
    texts = [w.text for w in words]
    if name != "[[" and not _has_static_operators(words):
        return Effects(doubts=("a test in which a value may become an operator",))
    if any(t in ("-v", "-R") for t in texts):
        return Effects(doubts=("-v evaluates a subscript, which can run commands",))
    if name == "[[":
        for at, text in enumerate(texts):
            if text in ("-eq", "-ne", "-lt", "-le", "-gt", "-ge"):
                sides = [*texts[max(at - 1, 0) : at], *texts[at + 1 : at + 2]]
                if not all(side and _INTEGER.fullmatch(side) for side in sides):
                    return Effects(doubts=("[[ evaluates arithmetic, which can run commands",))
    return Effects(is_read_only=True, is_print_only=True)


def _has_static_operators(words: Sequence[Word]) -> bool:
    """Whether each operator of a test stands where only a static word can be one."""
    if all(w.text is not None for w in words):
        return True
    words = [w for w in words if w.text not in ("[", "]")]
    if any(w.may_split for w in words):
        return False
    if words and words[0].text == "!":
        words = words[1:]
    # A value alone, one behind an operator, one beside an operator.
    return len(words) <= 3 and (len(words) < 2 or words[len(words) - 2].text is not None)


_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
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


def analyze_find(words: Sequence[Word]) -> Effects:
    """`find`: paths, then an expression in which some words run, write or delete."""
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    plain, at, expression = True, 0, False
    while at < len(words):
        word = words[at]
        text = word.text or ""
        at += 1
        if word.text is None:
            reads.append(word)
        elif text in _FIND_RUNS:
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
            plain = plain and text != "-files0-from"
        elif text in ("-L", "-follow"):
            doubts.append("follows links")
        elif text in _FIND_VALUES:
            at += 1
            expression = True
        elif text in _FIND_FLAGS:
            expression = expression or text not in ("-H", "-P")
        elif text.startswith("-"):
            plain = False
        elif expression:
            doubts.append("a word where none is expected")
        else:
            reads.append(word)
    return Effects(
        is_read_only=plain and not writes, reads=tuple(reads), writes=tuple(writes),
        doubts=tuple(doubts), reads_cwd=not reads,
    )  # fmt: skip


_TAR = OptionGrammar(
    short_value_options="fCTXIFHgbKNVL",
    long_value_options=frozenset({"--file", "--directory", "--exclude"}),
    writes=word_set("-C --directory --one-top-level -g --listed-incremental"),
    reads=frozenset({"-X", "--exclude-from"}),
    runs=word_set(
        "-T --files-from --checkpoint-action --to-command --use-compress-program -I --info-script "
        "--new-volume-script -F --rmt-command --rsh-command --remove-files --absolute-names -P "
        "--index-file --transform --xform --volno-file -h --dereference"
    ),
)


def analyze_tar(words: Sequence[Word]) -> Effects:
    """`tar`: lists, packs or unpacks; its archive is read or written accordingly."""
    words = _expand_old_style(list(words))
    letters: set[str] = set()
    archive: list[Word] = []
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    operands: list[Word] = []
    for item in scan_options(words, _TAR):
        if isinstance(item, Word):
            operands.append(item)
            continue
        letters.add(item.name)
        if item.name in _TAR.runs:
            doubts.append(f"{item.name} runs a program or reaches outside")
        elif item.name in ("-f", "--file") and item.value is not None:
            archive.append(item.value)
            if ":" in (item.value.text or ""):
                doubts.append("an archive on another machine")
        elif item.value is not None:
            (writes if item.name in _TAR.writes else reads).append(item.value)
    if letters & {"-c", "--create", "-r", "--append", "-u", "--update"}:
        for folder in writes:  # -C: where the files are that follow
            if any(may_leave_folder(w) for w in (folder, *operands)) or folder.text is None:
                doubts.append("files of another folder")
            reads += [replace(w, text=f"{folder.text}/{w.text}") for w in operands if w.text]
        return Effects(
            primary_writes=tuple(archive),
            reads=(*reads, *operands),
            doubts=tuple(doubts),
            is_recursive=True,
        )
    listing = bool(letters & {"-t", "--list"})
    return Effects(
        is_read_only=listing,
        reads=(*reads, *archive),
        primary_writes=tuple(writes),
        doubts=tuple(doubts),
    )


def _expand_old_style(words: list[Word]) -> list[Word]:
    """`tar cfI A P` as `tar -c -f A -I P`: old letters take their values from the words after."""
    if not words or not words[0].text or words[0].text.startswith("-"):
        return words
    made: list[Word] = []
    rest = words[1:]
    for letter in words[0].text:
        made.append(Word(words[0].source, "-" + letter))
        if letter in _TAR.short_value_options and rest:
            made.append(rest.pop(0))
    return made + rest


_DATE = OptionGrammar(
    short_value_options="dfrs", long_value_options=frozenset({"--date", "--file", "--reference", "--set"}),
    reads=frozenset({"-f", "--file", "-r", "--reference"}), runs=frozenset({"-s", "--set"}),
)  # fmt: skip


def analyze_date(words: Sequence[Word]) -> Effects:
    """`date`: prints, unless it is told to read a file or to set the clock."""
    reads: list[Word] = []
    doubts: list[str] = []
    for item in scan_options(words, _DATE):
        if isinstance(item, CommandOption):
            if item.name in _DATE.runs:
                doubts.append("sets the clock")
            elif item.name in _DATE.reads and item.value is not None:
                reads.append(item.value)
        elif not (item.text or "").startswith("+"):
            doubts.append("sets the clock")
    return Effects(is_read_only=True, reads=tuple(reads), doubts=tuple(doubts))
