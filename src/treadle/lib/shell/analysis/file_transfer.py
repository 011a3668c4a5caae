"""The effects of programs that transfer files: dd, curl, rsync, scp, zip, tar, split.

Each has its own syntax for the files that it reads and writes. What is not known to be harmless is
a doubt.
"""

import re
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from treadle.lib.shell.analysis.git import may_leave_folder
from treadle.lib.shell.analysis.options import (
    OptionGrammar,
    ProgramSpec,
    analyze_by_spec,
    scan_options,
)
from treadle.lib.shell.ast import Effects, Word
from treadle.lib.text.word_set import word_set

_CURL = ProgramSpec(
    "text",
    OptionGrammar(
        "odTKHXAebcFuUxmwrCtYyzEDPQ",
        word_set(
            "--output --data --upload-file --config --header --request --form --user --dump-header "
            "--data-raw --data-binary --data-ascii --data-urlencode --json --url-query "
            "--form-string --user-agent --referer --proxy --max-time --connect-timeout --retry "
            "--retry-delay --url --write-out --range --continue-at --cacert --resolve --limit-rate"
        ),
        reads=word_set("-T --upload-file -b --cookie"),
        writes=word_set(
            "-o --output -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr "
            "--etag-save --hsts --alt-svc --libcurl --output-dir"
        ),
        runs=word_set(
            "--proto --proto-default -n --netrc --netrc-optional --variable -K --config -O "
            "--remote-name --remote-name-all -J --netrc-file --engine --cert -E --key "
            "--unix-socket --abstract-unix-socket"
        ),
    ),
    is_read_only=False,
)
_FILE_ARGUMENT = re.compile(r"(?:@|=<)([^;,]+)")
_URL_PREFIX = re.compile(r"https?://", re.IGNORECASE)


def _analyze_curl(words: Sequence[Word]) -> Effects:
    effects = analyze_by_spec(_CURL, words)
    reads, doubts = list(effects.reads), list(effects.doubts)
    _, urls = scan_options(words, _CURL.grammar)
    if any(_has_url_glob(w.text or "") for w in (*urls, *effects.reads, *effects.writes)):
        doubts.append("curl expands this name to other names")
    for word in words:
        text = word.text or ""
        if text.lower().startswith("file:"):
            reads.append(Word(word.source, re.sub(r"(?i)file:(?://[^/]*)?", "", text)))
        elif "file:" in text.lower():
            doubts.append("a file where a URL is expected")
        elif not (word in urls and _URL_PREFIX.match(text)):
            # `-d @file`, `-F x=@file`, `-H @file`: the rest may be a file to send.
            reads += [Word(word.source, path.strip('"')) for path in _FILE_ARGUMENT.findall(text)]
        if "%output{" in text:
            doubts.append("a format that writes a file")
    return Effects(reads=tuple(reads), writes=effects.writes, doubts=tuple(doubts))


def _has_url_glob(text: str) -> bool:
    """Whether curl expands it; in a URL, # begins a fragment."""
    return any(c in text for c in "{[") or ("#" in text and not _URL_PREFIX.match(text))


def _analyze_dd(words: Sequence[Word]) -> Effects:
    values = [(w, *(w.text or "").partition("=")[::2]) for w in words]
    return Effects(
        reads=tuple(Word(w.source, value) for w, key, value in values if key == "if"),
        primary_writes=tuple(Word(w.source, value) for w, key, value in values if key == "of"),
    )


_RSYNC = OptionGrammar(
    "efBTM",
    word_set(
        "--rsh --rsync-path --exclude --include --filter --files-from --exclude-from --suffix "
        "--bwlimit --max-size --min-size --max-delete --timeout --contimeout --port --chmod "
        "--chown --usermap --groupmap --block-size --modify-window --protocol --iconv --info "
        "--debug --out-format --log-file-format --checksum-choice --compress-choice "
        "--compress-level --skip-compress --sockopts --address --outbuf --stop-at --stop-after"
    ),
    reads=word_set(
        "--exclude-from --include-from --password-file --compare-dest --copy-dest --link-dest"
    ),
    writes=word_set(
        "--log-file --write-batch --only-write-batch --backup-dir --temp-dir -T --partial-dir"
    ),
    runs=word_set(
        "--files-from --config --early-input --remote-option "
        "-e --rsh --rsync-path --daemon --remove-source-files --read-batch -M -L --copy-links "
        "--copy-unsafe-links"
    ),
)
_SCP = OptionGrammar("oFSiJlPcDX", runs=word_set("-o -F -S -J -D"))
_ZIP = OptionGrammar(
    "btniPxOZ",
    writes=word_set("-O --output-file -b"),
    runs=word_set("-T --test -TT --unzip-command -m --move -@"),
)
_SUFFIX = re.compile(r"\.\w+")
_SPLIT = OptionGrammar(
    "abClnt",
    word_set("--additional-suffix --suffix-length --bytes --lines --number"),
    runs=word_set("--filter"),
)


def _scan_operands(words: Sequence[Word], grammar: OptionGrammar) -> tuple[list[Word], Effects]:
    """The operands, and the effects of the options."""
    options, operands = scan_options(words, grammar)
    named = [(o.name, o.value) for o in options if o.name not in grammar.runs]
    return operands, Effects(
        reads=tuple(v for name, v in named if v is not None and name in grammar.reads),
        writes=tuple(v for name, v in named if v is not None and name in grammar.writes),
        doubts=tuple(
            f"{o.name} does more than the command's name says"
            for o in options
            if o.name in grammar.runs
        ),
        is_recursive=any(o.name in ("-r", "-R", "-a", "--recursive", "--archive") for o in options),
    )


def _make_copy_analyzer(grammar: OptionGrammar) -> Callable[[Sequence[Word]], Effects]:
    """From all operands but the last to the last; names on other hosts are not local files."""

    def analyze(words: Sequence[Word]) -> Effects:
        operands, effects = _scan_operands(words, grammar)
        is_local = [":" not in (w.text or "").partition("/")[0] for w in operands]
        sources = [w for w, local in zip(operands[:-1], is_local, strict=False) if local]
        target = tuple(operands[-1:]) if len(operands) > 1 and is_local[-1] else ()
        return replace(
            effects,
            reads=(*effects.reads, *sources),
            primary_writes=target,
            copies=tuple((source, into) for into in target for source in sources),
        )

    return analyze


def _analyze_zip(words: Sequence[Word]) -> Effects:
    operands, effects = _scan_operands(words, _ZIP)
    reads = (*effects.reads, *operands[1:])
    return replace(effects, reads=reads, primary_writes=tuple(operands[:1]), follows_symlinks=True)


def _analyze_split(words: Sequence[Word]) -> Effects:
    operands, effects = _scan_operands(words, _SPLIT)
    prefix = operands[1] if len(operands) > 1 else Word("x", "x")
    options, _ = scan_options(words, _SPLIT)
    suffixes = [o.value.text or "" for o in options if o.name == "--additional-suffix" and o.value]
    doubts = effects.doubts
    is_hidden = (prefix.text or ".").rpartition("/")[2].startswith(".")
    if is_hidden or not all(_SUFFIX.fullmatch(suffix) for suffix in suffixes):
        doubts += ("files whose names are not known",)
    return Effects(reads=tuple(operands[:1]), primary_writes=(prefix,), doubts=doubts)


FILE_TRANSFER_PROGRAMS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "curl": _analyze_curl,
    "dd": _analyze_dd,
    "rsync": _make_copy_analyzer(_RSYNC),
    "scp": _make_copy_analyzer(_SCP),
    "zip": _analyze_zip,
    "split": _analyze_split,
}


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
    is_listing = bool(names & {"-t", "--list"})
    members = () if is_listing else operands
    if len(writes) == 1 and writes[0].text is not None:
        members = [replace(w, text=f"{writes[0].text}/{w.text}") for w in members if w.text]
    return Effects(
        is_read_only=is_listing,
        reads=(*reads, *archive),
        primary_writes=(*writes, *members),
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
