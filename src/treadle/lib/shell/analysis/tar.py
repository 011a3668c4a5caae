"""The effects of `tar`: it lists, packs or unpacks."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.lib.shell.analysis.git import may_leave_folder
from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.word_set import word_set

_TAR = OptionGrammar(
    short_value_options="fCTXIFHgbKNVL",
    long_value_options=frozenset({"--file", "--directory", "--exclude"}),
    writes=word_set("-C --directory --one-top-level"),
    reads=frozenset({"-X", "--exclude-from"}),
    harmless=word_set(
        "-c -t -x -r -u -f -v -w -z -j -J -Z -a -O -k -p -m -o -S -W -b -N -V -H -n -s -i "
        "--create --list --extract --get --append --update --file --verbose --gzip --gunzip "
        "--bzip2 --xz --zstd --lzma --lzip --auto-compress --exclude --exclude-vcs "
        "--strip-components --wildcards --no-wildcards --same-owner --no-same-owner "
        "--no-same-permissions --same-permissions --preserve-permissions --numeric-owner --owner "
        "--group --mode --mtime --sort --format --keep-old-files --skip-old-files --overwrite "
        "--totals --to-stdout --no-recursion --one-file-system --full-time --warning --touch "
        "--version --help"
    ),
)


def analyze_tar(words: Sequence[Word]) -> Effects:
    """The effects of a `tar` command: the archive is read or written, depending on the mode."""
    words = _expand_old_style(list(words))
    archive: list[Word] = []
    reads: list[Word] = []
    writes: list[Word] = []
    doubts: list[str] = []
    options, operands = scan_options(words, _TAR)
    names = {option.name for option in options}
    for option in options:
        if not any(option.name in known for known in (_TAR.harmless, _TAR.reads, _TAR.writes)):
            doubts.append(f"{option.name} is not known as a harmless option")
        elif option.name in ("-f", "--file") and option.value is not None:
            archive.append(option.value)
            if ":" in (option.value.text or "") or option.value.is_glob:
                doubts.append("an archive on another machine")
        elif option.value is not None:
            (writes if option.name in _TAR.writes else reads).append(option.value)
    if names & {"-c", "--create", "-r", "--append", "-u", "--update"}:
        for folder in writes:  # -C: the folder of the files after it
            if any(may_leave_folder(w) for w in (folder, *operands)) or folder.text is None:
                doubts.append("files of another folder")
            reads += [replace(w, text=f"{folder.text}/{w.text}") for w in operands if w.text]
        return Effects(
            primary_writes=tuple(archive),
            reads=(*reads, *operands),
            doubts=tuple(doubts),
            is_recursive=True,
        )
    return Effects(
        is_read_only=bool(names & {"-t", "--list"}),
        reads=(*reads, *archive),
        primary_writes=tuple(writes),
        doubts=tuple(doubts),
    )


def _expand_old_style(words: list[Word]) -> list[Word]:
    """`tar cfI A P` as `tar -c -f A -I P`: each letter takes its value from the next words."""
    if not words or not words[0].text or words[0].text.startswith("-"):
        return words
    expanded: list[Word] = []
    rest = words[1:]
    for letter in words[0].text:
        expanded.append(Word(words[0].source, "-" + letter))
        if letter in _TAR.short_value_options and rest:
            expanded.append(rest.pop(0))
    return expanded + rest
