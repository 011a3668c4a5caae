"""The known programs: a table, and functions for those that a table cannot describe.

To add one: a line in the table if its options tell everything, else a function of its words. Leave
out what is not certain: an unknown program only costs the user a question.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from treadle.lib.shell.analysis.awk import analyze_awk
from treadle.lib.shell.analysis.builtins import analyze_builtin
from treadle.lib.shell.analysis.date import analyze_date
from treadle.lib.shell.analysis.effects import Effects, OperandKind, ProgramSpec, analyze_by_spec
from treadle.lib.shell.analysis.file_transfer import FILE_TRANSFER_PROGRAMS
from treadle.lib.shell.analysis.find import analyze_find
from treadle.lib.shell.analysis.git import analyze_git
from treadle.lib.shell.analysis.options import OptionGrammar, scan_options
from treadle.lib.shell.analysis.search_filter import parse_grep_filter, parse_rg_filter
from treadle.lib.shell.analysis.sed import analyze_sed
from treadle.lib.shell.analysis.tar import analyze_tar
from treadle.lib.shell.ast import SimpleCommand, Word
from treadle.lib.shell.program_names import SHELLS, get_program_name, strip_version
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set


def _make_reader(
    value: str = "", values: str = "", *, reads: str = "", writes: str = "", runs: str = "",
    operands: OperandKind = "read", recurses: str = "", recursive: bool = False,
    follows: bool = False, names: bool = False,
) -> ProgramSpec:  # fmt: skip
    grammar = OptionGrammar(
        value, word_set(values), word_set(reads), word_set(writes), word_set(runs)
    )
    return ProgramSpec(
        operands, grammar, True, recursive,
        recursive_options=recurses, follows_symlinks=follows, shows_names_only=names,
    )  # fmt: skip


def _make_writer(
    operands: OperandKind, value: str = "", values: str = "", *, reads: str = "", writes: str = "",
    runs: str = "", recurses: str = "", recursive: bool = False,
) -> ProgramSpec:  # fmt: skip
    grammar = OptionGrammar(
        value, word_set(values), word_set(reads), word_set(writes), word_set(runs)
    )
    return ProgramSpec(operands, grammar, False, recursive, recursive_options=recurses)


def _make_printer(value: str = "", runs: str = "") -> ProgramSpec:
    """A program that prints information of its own; operands are text."""
    grammar = OptionGrammar(value, runs=word_set(runs))
    return ProgramSpec("text", grammar, is_print_only=not runs)


_PROGRAMS: dict[str, ProgramSpec] = {
    "ls": _make_reader("IwT", "--ignore --width --tabsize --hide", names=True),
    "tac": _make_reader("s", "--separator"),
    "nl": _make_reader("bdfhilnsvw"),
    "head": _make_reader("nc", "--lines --bytes"),
    "tail": _make_reader("ncs", "--lines --bytes --sleep-interval --pid"),
    "wc": _make_reader(reads="--files0-from", runs="--files0-from"),
    "grep": _make_reader(
        "efmABCdD", "--regexp --max-count --context --include --exclude --exclude-dir "
        "--directories --devices --after-context --before-context",
        reads="-f --file --exclude-from", runs="-R --dereference-recursive",
        operands="pattern", recurses="r",
    ),
    "rg": _make_reader(
        "efgmABCtTjMrEd", "--glob --iglob --regexp --type --type-not --context --max-count "
        "--max-depth --replace --sort --sortr --threads --colors --color --encoding --engine "
        "--after-context --before-context --max-columns --max-filesize --type-add --path-separator",
        reads="-f --file --ignore-file", runs="--pre --hostname-bin -L --follow -z --search-zip",
        operands="pattern", recursive=True,
    ),
    "cut": _make_reader("bcdf", "--bytes --characters --delimiter --fields --output-delimiter"),
    "fold": _make_reader("w", "--width"),
    "fmt": _make_reader("wgp", "--width --goal --prefix"),
    **dict.fromkeys(("dir", "vdir"), _make_reader("IwT", names=True)),
    **dict.fromkeys(("expand", "unexpand"), _make_reader("t", "--tabs")),
    "paste": _make_reader("d", "--delimiters"),
    "join": _make_reader("12aejotv"),
    "comm": _make_reader("", "--output-delimiter"),
    "cmp": _make_reader("in", "--ignore-initial --bytes"),
    "column": _make_reader("scoNHRW"),
    "sort": _make_reader(
        "kotTS", "--key --field-separator --buffer-size --parallel --sort --batch-size",
        reads="--random-source", writes="-o --output",
        runs="--compress-program --files0-from -T --temporary-directory",
    ),
    "diff": _make_reader(
        "UCxXFIW", "--exclude --label --ignore-matching-lines --width",
        reads="-X --exclude-from --from-file --to-file", recursive=True, follows=True,
        runs="-l --paginate -r --recursive",  # recursive diff follows symlinks
    ),
    "stat": _make_reader("c", "--format --printf", names=True),
    "file": _make_reader(
        "mfFeP", reads="-m --magic-file",
        runs="-f --files-from -C --compile -z -Z --uncompress --uncompress-noreport",
    ),
    "du": _make_reader(
        "dBtX", "--max-depth --block-size --threshold --exclude", reads="-X --exclude-from",
        runs="--files0-from -L --dereference", names=True,
    ),
    "df": _make_reader("Bxt"),
    "tree": _make_reader("LPIHTo", writes="-o", runs="-l --fromfile -R"),
    "realpath": _make_reader("", "--relative-to --relative-base", names=True),
    "readlink": _make_reader(names=True),
    **dict.fromkeys(
        word_set("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum"),
        _make_reader(runs="-c --check"),
    ),
    "cksum": _make_reader("a", runs="-c --check"),
    "b2sum": _make_reader("l", runs="-c --check"),
    "od": _make_reader("AjNSt"),
    "hexdump": _make_reader("efns", reads="-f"),
    "strings": _make_reader("neTt"),
    "jq": _make_reader(
        "L", "--indent --arg --argjson", reads="--slurpfile --rawfile",
        runs="-f --from-file -L --slurpfile --rawfile", operands="pattern",
    ),
    **dict.fromkeys(
        word_set(
            "tr dirname pwd sleep nproc arch uname which type uptime cal tty expr factor printenv"
        ),
        _make_printer(),
    ),
    "seq": _make_printer("fs"),
    "basename": _make_printer("s"),
    **dict.fromkeys(word_set("true false : exit return"), ProgramSpec("text", is_print_only=True)),
    **dict.fromkeys(word_set("break continue shift"), ProgramSpec("text")),
    "wait": _make_printer("p", runs="-p"),
    **dict.fromkeys(("chmod", "chgrp"), _make_writer("write", "", "--reference", recurses="R")),
    "chown": _make_writer("write", "", "--reference --from", recurses="R"),
    "rm": _make_writer("write", recurses="rR"),
    **dict.fromkeys(("rmdir", "unlink", "tee"), _make_writer("write")),
    "shred": _make_writer("write", "ns"),
    "mkdir": _make_writer("write", "m", "--mode"),
    "touch": _make_writer("write", "drt", "--date --reference --time"),
    "truncate": _make_writer("write", "sr", "--size --reference"),
    "mv": _make_writer("move", "tS", "--target-directory --suffix", recursive=True),
    "cp": _make_writer(
        "copy", "tS", "--target-directory --suffix", runs="-L --dereference", recurses="rRa",
    ),
    "ln": _make_writer("link", "tS", "--target-directory --suffix"),
    "install": _make_writer("copy", "tSmog", "--target-directory --mode", runs="--strip-program"),
    "man": _make_writer(
        "names", "CLmMSselpErPH", "--pager --config-file --manpath --extension",
        runs="-P --pager -H --html -C --config-file -l --local-file -M --manpath -T -X -p "
        "--preprocessor --gxditview --browser",
    ),
    "less": _make_writer(
        "read", "oOkbhjpPtTxyz",
        runs="-o -O -k --lesskey-file --log-file --LOG-FILE --lesskey-src --lesskey-content",
    ),
    "bat": _make_writer("read", runs="--pager cache"),
    "shuf": _make_reader("inor", reads="--random-source", writes="-o --output"),
    "pr": _make_reader("DhlNSsWw"),
    "ptx": _make_reader("AFMRSTWbgiow", operands="write"),
    "ul": _make_reader("t"),
    "look": _make_reader("t", operands="pattern"),
    "iconv": _make_reader("ft", "--from-code --to-code", writes="-o --output"),
    "more": _make_writer("read", "n"),
    **dict.fromkeys(word_set("base64 base32 basenc"), _make_reader("w", "--wrap")),
    **dict.fromkeys(
        word_set("cat rev sum zcat bzcat xzcat zstdcat gzcat"), _make_reader(),
    ),
    **dict.fromkeys(
        word_set("zgrep zegrep zfgrep bzgrep xzgrep"),
        _make_reader("efmABC", "--regexp --max-count", reads="-f --file", operands="pattern"),
    ),
    **dict.fromkeys(
        word_set(
            "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 compress uncompress"
        ),
        _make_writer("write", "S", "--suffix"),
    ),
    "dig": _make_writer("text", "fbkpqtxcy", reads="-f -k"),
    "fd": _make_writer(
        "pattern", "xXeEtdcSoj", "--exec --exec-batch --type --extension --exclude --max-depth "
        "--min-depth --exact-depth --size --changed-within --changed-before --owner --threads "
        "--color --format --max-results --and",
        reads="--base-directory --search-path --ignore-file -C",
        runs="-x -X --exec --exec-batch -L --follow",
    ),
    "ssh": _make_writer("none", "oFiJlpEDLRWbcemQSwBI", runs="-o -F -J -E -D -L -R -w -S -I"),
    "sftp": _make_writer("text", "oFSbDi", runs="-o -F -S -b -D"),
    "wget": _make_writer(
        "text", "OoaieUPTtwQ", "--output-document --output-file",
        writes="-O --output-document -o --output-file -a --append-output -P --directory-prefix "
        "--save-cookies --rejected-log --hsts-file",
        runs="-r --recursive -m --mirror -p --page-requisites --content-disposition "
        "--trust-server-names --warc-tempdir --warc-dedup --input-metalink -e --execute "
        "--use-askpass --config -i --input-file --post-file --body-file --warc-file",
    ),
    "unzip": _make_writer("first", "dxP", writes="-d", runs="-:"),
    "make": _make_writer(
        "text", "fICoWE", "--file --makefile --directory --include-dir --eval",
        reads="-f --file --makefile -C --directory -I --include-dir", runs="-E --eval",
    ),
    "patch": _make_writer(
        "write", "BDFVYdgiprz", "--directory --input --output", reads="-i --input",
        writes="-o --output -d --directory -r --reject-file -B --prefix", runs="-e --ed",
    ),
    "csplit": _make_writer("first", "bfn", "--prefix", writes="-f --prefix"),
    "cpio": _make_writer(
        "none", "OFIEDHCRM", "--file --directory --pattern-file", reads="-I",
        writes="-O -F --file -D --directory", runs="-E --pattern-file --rsh-command",
    ),
}  # fmt: skip

# Programs that run code given by these options, or on standard input if there are no words.
_INLINE_CODE_OPTIONS: dict[str, frozenset[str]] = {
    name: word_set(options)
    for options, names in {
        "-c -m": "python pypy ipython bpython",
        "-e -E": "perl",
        "-e": "ruby lua luajit Rscript R osascript gnuplot groovy scala ghc ghci swift kotlin raku",
        "": "irb tclsh wish ed ex busybox toybox sqlite3 duckdb socat m4 bc dc jshell tmux screen",
        "-e -p --eval --print -r --require --import": "node nodejs",
        "-e -p --eval --print -r --require": "ts-node",
        "-e -p --eval --print": "tsx bun",
        "eval": "deno",
        "-r -B -R -E": "php",
        "-c": "expect guile",
        "-ex -eval-command --ex --eval-command -iex --init-eval-command": "gdb",
        "-o --one-line -O --one-line-before-file -s": "lldb",
        "-c --cmd": "vim vi nvim view",
        "--eval -eval --execute -execute": "emacs",
        "-c --command": "psql",
        "-e --execute": "mysql mariadb",
        "-e -c --exec --sh-exec --lua-exec": "nc ncat",
        "-e -c": "netcat",
        "--eval": "octave sbcl",
        "-e --eval": "elixir iex racket",
        "-eval": "erl",
        "-e -E --eval --print": "julia",
        "-e --eval -M": "clojure clj",
        "-c --expr": "nix",
        "--run --command -E -p": "nix-shell",
        "-c --call": "npx npm",
        "engine": "openssl",
        "-a --args": "ansible",
    }.items()
    for name in names.split()
}
_JQ_UNSAFE = compile_lazily(r"""(?<![.\w"'-])env\b|\$ENV|\b(?:import|include|modulemeta)\b""")
# Options of otherwise unknown programs that name a program to run, or a file.
_RISKY_OPTIONS: dict[str, re.Pattern[str]] = {
    name: compile_lazily(pattern)
    for names, pattern in {
        "gcc g++ cc c++ clang clang++": r"-wrapper|-fplugin|-B|-specs|-fuse-ld=.*/|-Xclang|-load|@",
        "rustc": r"-C|--codegen|-Z|@",
        "go": r"--?ldflags=.*extld",
        "ip": r"netns|vrf",
        "tcpdump": r"-\w*z",
        "nmap": r"--script|--datadir|--servicedb",
        "ag ack": r"--pager",
        "pandoc": r"--(?:lua-)?filter|-F|-L|--pdf-engine|--extract-media",
        "apt apt-get aptitude": r"-o|-c|--option|--config-file",
        "ssh-keygen ssh-add": r"-D|-s",
        "protoc": r"--plugin",
        "sqlite3": r"\.(?:shell|system|read|open|output|once|log|load|import)|.*(?:load_|edit\()",
        "java": r"-(?:javaagent|agentlib|agentpath|XX:On)|@",
        "yq": r"-i|--inplace|.*\b(?:load|env|strenv|envsubst)",
        "openssl": r"-(?:in|inkey|key|out|CAfile|config|engine|provider|writerand)\b",
    }.items()
    for name in names.split()
}
_GREP_RECURSIVE = compile_lazily(r"^rec|d(?:irectories=)?rec")  # all spellings of `-d recurse`
_DATABASE_PROGRAMS = word_set("sqlite3 duckdb")  # their first operand is a file
_PLUS_COMMAND_PROGRAMS = word_set("less more most vi vim nvim view gvim emacs nano")
_SCHEDULERS = word_set("at batch crontab systemd-run launchctl schtasks atd")
_MULTICALL_PROGRAMS = frozenset({"busybox", "toybox", "coreutils"})


def _analyze_input_output(words: Sequence[Word], value: str) -> Effects:
    """`uniq IN OUT`: the second operand is written, even if it looks like an option."""
    options, operands = scan_options(words, OptionGrammar(value, may_permute=False))
    return Effects(
        is_read_only=len(operands) < 2,
        reads=tuple(operands[:1]),
        writes=tuple(operands[1:]),
        mentions=tuple(o.value for o in options if o.value),
    )


_ANALYZERS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "git": analyze_git,
    **dict.fromkeys(("find", "gfind"), analyze_find),
    **dict.fromkeys(("sed", "gsed"), analyze_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), analyze_awk),
    **dict.fromkeys(("tar", "bsdtar"), analyze_tar),
    "date": analyze_date,
    "uniq": partial(_analyze_input_output, value="fsw"),
    "xxd": partial(_analyze_input_output, value="cglosR"),
    **FILE_TRANSFER_PROGRAMS,
}
# Without programs that files of a repository can replace (yarn, pnpm) or extend (pytest).
_VERSION_OPTIONS: dict[str, frozenset[str]] = {
    "--version": word_set(
        "python python3 node npm npx cargo rustc go git java ruby gcc clang make cmake uv pip pip3 "
        "ruff mypy docker bash rg deno bun"
    ),
    "-V": word_set("python python3 cargo rustc uv pip pip3 ruff mypy rg"),
    "version": word_set("go git docker"),  # elsewhere a script, target or package
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "ggrep": "grep", "gsort": "sort", "batcat": "bat"}


def analyze_effects(command: SimpleCommand) -> Effects:
    """What the command does itself, without what its inner commands do."""
    name = get_program_name(command.argv[0] if command.argv else None)
    if name is None:
        return Effects()
    name = _ALIASES.get(name, name)
    words = command.argv[1:]
    if len(words) == 1 and name in _VERSION_OPTIONS.get(words[0].text or "", ()):
        return Effects(is_read_only=True)
    if name == "env" and not words:  # commands get an environment without secrets
        return Effects(is_read_only=True)
    analyzer = _ANALYZERS.get(name)
    if analyzer is not None:
        return analyzer(words)
    builtin = analyze_builtin(name, words)
    if builtin is not None:
        return builtin
    if name in _SCHEDULERS:
        return Effects(doubts=("runs something later or elsewhere",))
    if name in _PLUS_COMMAND_PROGRAMS and any((w.text or "").startswith("+") for w in words):
        return Effects(has_inline_code=True, doubts=("an argument with + is a command",))
    risky = _RISKY_OPTIONS.get(name)
    if risky is not None and any(risky.match(w.text or "") for w in words):
        doubt = "an option that runs a program or opens a file"
        return replace(_analyze_interpreter(name, words), doubts=(doubt,))
    spec = _PROGRAMS.get(name)
    if spec is not None:
        return _adjust_effects(name, words, spec, analyze_by_spec(spec, words))
    return _analyze_interpreter(name, words)


def _adjust_effects(
    name: str, words: Sequence[Word], spec: ProgramSpec, effects: Effects
) -> Effects:
    """The effects of a program of the table, with what the table cannot express."""
    texts = [w.text or "" for w in words]
    if name == "strings" and any(text.startswith("@") for text in texts):
        return Effects(doubts=("options from a file",))
    if name == "make" and (
        any(w.is_process_substitution for w in words) or {"-", "-f-", "--file=-"} & {*texts}
    ):
        return Effects(has_inline_code=True)
    if name == "jq" and any(map(_JQ_UNSAFE.search, texts)):
        return Effects(doubts=("a jq program that reads the environment or other files",))
    if name == "rg":
        return replace(effects, search=parse_rg_filter(scan_options(words, spec.grammar)[0]))
    if name == "grep":
        search = parse_grep_filter(scan_options(words, spec.grammar)[0])
        is_recursive = effects.is_recursive or any(map(_GREP_RECURSIVE.search, texts))
        return replace(effects, search=search, is_recursive=is_recursive)
    if name == "unzip":
        return replace(effects, writes=(), primary_writes=effects.writes)
    if name == "wget":
        downloads = _list_downloads(words, spec.grammar)
        return replace(effects, primary_writes=(*effects.primary_writes, *downloads))
    if name == "ssh" and len(scan_options(words, spec.grammar)[1]) > 1:
        return replace(effects, has_inline_code=True)  # a command to run on the host
    return effects


def _list_downloads(words: Sequence[Word], grammar: OptionGrammar) -> Iterator[Word]:
    """The files that wget names after the URLs."""
    _, urls = scan_options(words, grammar)
    for url in urls:
        if url.text:
            path = url.text.partition("://")[2].partition("/")[2].partition("#")[0]
            yield Word(url.source, path.partition("?")[0].rpartition("/")[2] or "index.html")


def _analyze_interpreter(name: str, words: Sequence[Word]) -> Effects:
    name = name.rpartition("/")[2]
    if name in _MULTICALL_PROGRAMS:
        return Effects(has_inline_code=True, doubts=("a program that contains many others",))
    base = _find_interpreter(name)
    if base is None:
        is_inline = not words if name in SHELLS else any(
            _is_inline_code(word, words[at:]) for at, word in enumerate(words, 1)
        )  # fmt: skip
        return Effects(has_inline_code=is_inline, mentions=tuple(words), is_opaque=True)
    options = _INLINE_CODE_OPTIONS[base]
    texts = [w.text or "" for w in words]
    letters = {o[1] for o in options if len(o) == 2 and o[0] == "-"}
    is_inline = not texts or any(w.is_process_substitution for w in words) or any(
        t in options or t.partition("=")[0] in options or t == "-"
        or (t[:1] == "-" and t[1:2] != "-" and not letters.isdisjoint(t)) for t in texts
    )  # fmt: skip
    operands = [w for w in words if (w.text or "")[:1] != "-"]
    return Effects(
        has_inline_code=is_inline or not options,
        reads=tuple(operands[:1]) if base in _DATABASE_PROGRAMS else (),
        mentions=tuple(words),
        is_opaque=True,
    )


def is_interpreter(name: str) -> bool:
    """Whether the program runs any script that it is given."""
    return name in SHELLS or _find_interpreter(name.rpartition("/")[2]) is not None


def _find_interpreter(name: str) -> str | None:
    """The entry of an interpreter: `python` for `python3.11`."""
    return next((n for n in (name, strip_version(name)) if n in _INLINE_CODE_OPTIONS), None)


def _is_inline_code(word: Word, following: Sequence[Word]) -> bool:
    """Whether an argument is an interpreter with code after it: `uv run python -c …`."""
    name = (word.text or "").rpartition("/")[2]
    if name in SHELLS:
        return not following or (following[0].text or "").startswith("-")
    is_known = _find_interpreter(name) is not None
    return is_known and bool(following) and _analyze_interpreter(name, following).has_inline_code
