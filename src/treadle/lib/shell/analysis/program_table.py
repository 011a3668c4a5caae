"""The table of known programs: what their operands mean, and which options do more. Tables only.

To add a program: a line here if its options tell everything, else a function of its words in
`programs.py`. Leave out what is not certain: an unknown program only costs the user a question.
"""

import re

from treadle.lib.shell.analysis.options import OperandKind, OptionGrammar, ProgramSpec
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set


def _make_reader(
    value: str = "", values: str = "", *, reads: str = "", writes: str = "", runs: str = "",
    operands: OperandKind = "read", recurses: str = "", recursive: bool = False,
    follows: bool = False, names: bool = False, letters: str = "", words: str = "",
) -> ProgramSpec:  # fmt: skip
    """`letters` and `words`: its harmless options; without them all that have no list are."""
    harmless = word_set(words) | {f"-{letter}" for letter in letters}
    grammar = OptionGrammar(
        value, word_set(values), word_set(reads), word_set(writes), word_set(runs),
        harmless=harmless,
    )  # fmt: skip
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


def _make_printer(value: str = "", runs: str = "", letters: str = "") -> ProgramSpec:
    """A program that prints information of its own; operands are text."""
    harmless = frozenset(f"-{letter}" for letter in letters)
    grammar = OptionGrammar(value, runs=word_set(runs), harmless=harmless)
    return ProgramSpec("text", grammar, is_print_only=not runs and not letters)


PROGRAMS: dict[str, ProgramSpec] = {
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
    "column": _make_reader(
        "CcEHlNnOopRrsTW",
        "--separator --output-separator --table-columns --table-right --output-width",
        letters="CcEHlNnOopRrsTWtxJedL", words="--table --separator --output-separator "
        "--table-columns --table-right --json --output-width --fillrows",
    ),
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
        "mfFeP", "--separator --exclude", reads="-m --magic-file", letters="biLhkNnprsv0EFe",
        words="--brief --mime --mime-type --mime-encoding --extension --dereference "
        "--no-dereference --keep-going --no-pad --print0 --raw --separator --exclude --version "
        "--help --apple",
    ),
    "du": _make_reader(
        "dBtX", "--max-depth --block-size --threshold --exclude",
        runs="--files0-from -L --dereference -X --exclude-from", names=True,
    ),
    "df": _make_reader("Bxt"),
    "tree": _make_reader(
        "LPIHTo", "--filelimit --charset --timefmt --sort", writes="-o",
        letters="adfxLPIpsuhgDFqNQvtcUrinASCJXH", words="--noreport --dirsfirst --filesfirst "
        "--gitignore --prune --du --inodes --device --si --matchdirs --ignore-case --sort "
        "--metafirst --filelimit --charset --timefmt --version --help",
    ),
    "realpath": _make_reader("", "--relative-to --relative-base", names=True),
    "readlink": _make_reader(names=True),
    **dict.fromkeys(
        word_set("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum"),
        _make_reader(runs="-c --check"),
    ),
    "cksum": _make_reader("a", runs="-c --check"),
    "b2sum": _make_reader("l", runs="-c --check"),
    "od": _make_reader("AjNSt"),
    "hexdump": _make_reader("efns", reads="-f", letters="bcCdoxvens"),
    "nm": _make_reader(
        letters="aABCDgnoprSuUPv", words="--demangle --defined-only --undefined-only "
        "--extern-only --dynamic --size-sort --numeric-sort --print-size --no-sort --reverse-sort",
    ),
    "objdump": _make_reader(  # without those that read the sources which an object file names
        "Mj", "--section --disassembler-options", letters="adDfhpjMrRstTxCwz",
        words="--disassemble --disassemble-all --section --file-headers --private-headers "
        "--section-headers --headers --all-headers --syms --dynamic-syms --reloc --dynamic-reloc "
        "--full-contents --demangle --no-show-raw-insn --disassembler-options",
    ),
    "strings": _make_reader(
        "neTt", "--bytes --radix --encoding", letters="adfnetosw0123456789",
        words="--all --data --bytes --radix --encoding --print-file-name",
    ),
    "jq": _make_reader(
        "L", "--indent --arg --argjson", reads="--slurpfile --rawfile",
        runs="-f --from-file -L --library-path --slurpfile --rawfile --run-tests",
        operands="pattern",
    ),
    **dict.fromkeys(
        word_set(
            "tr dirname pwd sleep nproc arch uname which type uptime cal tty expr factor printenv "
            "whoami id groups logname free lscpu locale getconf pidof lsb_release help"
        ),
        _make_printer(),
    ),
    "seq": _make_printer("fs"),
    "ss": _make_printer("f", letters="tuwxnlapeimso460rfOHSdhV"),
    "netstat": _make_printer("A"),
    "lsof": _make_printer("ipucdgsTFr", letters="ipucdgsTFrnPtalRUwbhNOoSx"),
    "pgrep": _make_printer("dgGPstuUF", "-F --pidfile"),
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
    # -S: the name of a backup ends as the line says.
    "mv": _make_writer("move", "tS", "--target-directory", runs="-S --suffix", recursive=True),
    "cp": _make_writer(
        "copy", "tS", "--target-directory", runs="-L --dereference -S --suffix", recurses="rRa",
    ),
    "ln": _make_writer("link", "tS", "--target-directory", runs="-S --suffix"),
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
    **dict.fromkeys(word_set("cat rev sum"), _make_reader()),
    **dict.fromkeys(
        word_set("zcat bzcat xzcat zstdcat gzcat"), _make_reader(letters="cdfkqv", words="--help"),
    ),
    **dict.fromkeys(
        word_set("zgrep zegrep zfgrep bzgrep xzgrep"),
        _make_reader(
            "efmABC", "--regexp --max-count", reads="-f --file", operands="pattern",
            letters="ABCEFGPLHabcefhilmnoqsvwxz", words="--count --max-count --regexp "
            "--ignore-case --invert-match --line-number --files-with-matches --no-filename "
            "--only-matching --word-regexp --help --version",
        ),
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
    "zipinfo": _make_writer("first"),
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
        "write", "OFIEDHCRM", "--file --directory --pattern-file", reads="-I",
        writes="-O -F --file -D --directory",
        runs="-E --pattern-file --rsh-command -i --extract",  # absolute names, too
    ),
}  # fmt: skip

# Programs that run code given by these options, or on standard input if there are no words.
INLINE_CODE_OPTIONS: dict[str, frozenset[str]] = {
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
# Options of otherwise unknown programs that name a program to run, or a file.
RISKY_OPTIONS: dict[str, re.Pattern[str]] = {
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
# Without programs that files of a repository can replace (yarn, pnpm) or extend (pytest).
VERSION_OPTIONS: dict[str, frozenset[str]] = {
    "--version": word_set(
        "python python3 node npm npx cargo rustc go git java ruby gcc clang make cmake uv pip pip3 "
        "ruff mypy docker bash rg deno bun curl php g++ clang++ cc c++"
    ),
    "-V": word_set("python python3 cargo rustc uv pip pip3 ruff mypy rg curl"),
    **dict.fromkeys(("-vV", "-Vv"), word_set("cargo rustc")),
    "-v": word_set("node npm npx perl ruby php"),
    "-version": word_set("java javac"),
    "version": word_set("go git docker cargo"),  # elsewhere a script, target or package
    **dict.fromkeys(
        ("-dumpversion", "-dumpmachine", "-dumpfullversion"), word_set("gcc g++ clang clang++")
    ),
}
