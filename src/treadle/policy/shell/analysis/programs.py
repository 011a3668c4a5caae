"""The programs that are known: a table, and the few that need code of their own.

To add one: a line in the table if its options say it all, else a function of its words. Leave out
what is not certain; an unknown program only costs a question.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from treadle.policy.shell.analysis.awk import analyze_awk
from treadle.policy.shell.analysis.builtins import (
    analyze_builtin,
    analyze_date,
    analyze_find,
    analyze_tar,
)
from treadle.policy.shell.analysis.effects import Effects, ProgramSpec, analyze_by_spec
from treadle.policy.shell.analysis.file_transfer import FILE_TRANSFER_PROGRAMS
from treadle.policy.shell.analysis.git import analyze_git
from treadle.policy.shell.analysis.options import CommandOption, OptionGrammar, scan_options
from treadle.policy.shell.analysis.sed import analyze_sed
from treadle.policy.shell.ast import SimpleCommand, Word
from treadle.policy.shell.program_names import SHELLS, get_program_name
from treadle.policy.wordset import word_set


def _make_reader(
    value: str = "", values: str = "", *, reads: str = "", writes: str = "", runs: str = "",
    operands: str = "read", recurses: str = "", follows: bool = False,
) -> ProgramSpec:  # fmt: skip
    grammar = OptionGrammar(
        value, word_set(values), word_set(reads), word_set(writes), word_set(runs)
    )
    return ProgramSpec(operands, grammar, recursive_options=recurses, follows_symlinks=follows)


def _make_writer(
    operands: str, value: str = "", values: str = "", runs: str = "", recurses: str = ""
) -> ProgramSpec:
    grammar = OptionGrammar(value, word_set(values), runs=word_set(runs))
    return ProgramSpec(operands, grammar, is_read_only=False, recursive_options=recurses)


def _make_printer(value: str = "", runs: str = "") -> ProgramSpec:
    """Prints something of its own; operands are text."""
    return ProgramSpec("text", OptionGrammar(value, runs=word_set(runs)))


_PROGRAMS: dict[str, ProgramSpec] = {
    "ls": _make_reader("IwT", "--ignore --width --tabsize --hide", recurses="R"),
    "dir": _make_reader("IwT"),
    "cat": _make_reader(),
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
        operands="pattern", recurses="always",
    ),
    "cut": _make_reader("bcdf", "--bytes --characters --delimiter --fields --output-delimiter"),
    "fold": _make_reader("w", "--width"),
    "fmt": _make_reader("wgp", "--width --goal --prefix"),
    "expand": _make_reader("t", "--tabs"),
    "unexpand": _make_reader("t", "--tabs"),
    "paste": _make_reader("d", "--delimiters"),
    "join": _make_reader("12aejotv"),
    "comm": _make_reader("", "--output-delimiter"),
    "cmp": _make_reader("in", "--ignore-initial --bytes"),
    "rev": _make_reader(),
    "column": _make_reader("scoNHRW"),
    "sort": _make_reader(
        "kotTS", "--key --field-separator --buffer-size --parallel --sort --batch-size",
        reads="--random-source", writes="-o --output",
        runs="--compress-program --files0-from -T --temporary-directory",
    ),
    "diff": _make_reader(
        "UCxXFIW", "--exclude --label --ignore-matching-lines --width",
        reads="-X --exclude-from --from-file --to-file", recurses="always", follows=True,
        runs="-l --paginate -r --recursive",  # it follows links on its way
    ),
    "stat": _make_reader("c", "--format --printf"),
    "file": _make_reader(
        "mfFeP", reads="-m --magic-file",
        runs="-f --files-from -C --compile -z -Z --uncompress --uncompress-noreport",
    ),
    "du": _make_reader(
        "dBtX", "--max-depth --block-size --threshold --exclude", reads="-X --exclude-from",
        runs="--files0-from -L --dereference", recurses="",
    ),
    "df": _make_reader("Bxt"),
    "tree": _make_reader("LPIHTo", writes="-o", runs="-l --fromfile -R", recurses=""),
    "realpath": _make_reader("", "--relative-to --relative-base"),
    "readlink": _make_reader(),
    "md5sum": _make_reader(runs="-c --check"),
    "sha1sum": _make_reader(runs="-c --check"),
    "sha256sum": _make_reader(runs="-c --check"),
    "sha512sum": _make_reader(runs="-c --check"),
    "cksum": _make_reader("a", runs="-c --check"),
    "b2sum": _make_reader("l", runs="-c --check"),
    "od": _make_reader("AjNSt"),
    "hexdump": _make_reader("efns", reads="-f"),
    "strings": _make_reader("neTt"),
    "base64": _make_reader("w", "--wrap"),
    "jq": _make_reader(
        "L", "--indent --arg --argjson", reads="--slurpfile --rawfile",
        runs="-f --from-file -L --slurpfile --rawfile", operands="pattern",
    ),
    "tr": _make_printer(),
    "seq": _make_printer("fs"),
    "basename": _make_printer("s"),
    "dirname": _make_printer(),
    "pwd": _make_printer(),
    "true": ProgramSpec("text", is_print_only=True),
    "false": ProgramSpec("text", is_print_only=True),
    ":": ProgramSpec("text", is_print_only=True),
    "sleep": _make_printer(),
    "nproc": _make_printer(),
    "arch": _make_printer(),
    "uname": _make_printer(),
    "which": _make_printer(),
    "type": _make_printer(),
    "uptime": _make_printer(),
    "cal": _make_printer(),
    "tty": _make_printer(),
    "exit": ProgramSpec("text", is_print_only=True),
    "return": ProgramSpec("text", is_print_only=True),
    "break": ProgramSpec("text"),
    "continue": ProgramSpec("text"),
    "shift": ProgramSpec("text"),
    "wait": _make_printer("p", runs="-p"),
    "expr": _make_printer(),
    "factor": _make_printer(),
    "chmod": _make_writer("write", "", "--reference", recurses="R"),
    "chown": _make_writer("write", "", "--reference --from", recurses="R"),
    "chgrp": _make_writer("write", "", "--reference", recurses="R"),
    "rm": _make_writer("write", recurses="rR"),
    "rmdir": _make_writer("write"),
    "unlink": _make_writer("write"),
    "shred": _make_writer("write", "ns"),
    "mkdir": _make_writer("write", "m", "--mode"),
    "touch": _make_writer("write", "drt", "--date --reference --time"),
    "truncate": _make_writer("write", "sr", "--size --reference"),
    "tee": _make_writer("write"),
    "mv": _make_writer("move", "tS", "--target-directory --suffix", recurses="always"),
    "cp": _make_writer("copy", "tS", "--target-directory --suffix", "-L --dereference", "rRa"),
    "ln": _make_writer("link", "tS", "--target-directory --suffix"),
    "install": _make_writer("copy", "tSmog", "--target-directory --mode", runs="--strip-program"),
    "man": ProgramSpec(
        "names", OptionGrammar("CLmMSselpErPH", word_set("--pager --config-file --manpath --extension"),
        runs=word_set("-P --pager -H --html -C --config-file -l --local-file -M --manpath -T -X -p "
                  "--preprocessor --gxditview --browser")), is_read_only=False,
    ),
    "less": ProgramSpec("read", OptionGrammar("oOkbhjpPtTxyz", runs=word_set("-o -O -k --lesskey-file "
                    "--log-file --LOG-FILE --lesskey-src --lesskey-content")), is_read_only=False),
    "bat": ProgramSpec("read", OptionGrammar(runs=word_set("--pager cache")), is_read_only=False),
    "shuf": _make_reader("inor", reads="--random-source", writes="-o --output"),
    "pr": _make_reader("DhlNSsWw"),
    "base32": _make_reader("w", "--wrap"),
    "basenc": _make_reader("w", "--wrap"),
    "sum": _make_reader(),
    "sha224sum": _make_reader(runs="-c --check"),
    "sha384sum": _make_reader(runs="-c --check"),
    "ptx": _make_reader("AFMRSTWbgiow", operands="write"),
    "ul": _make_reader("t"),
    "vdir": _make_reader("IwT"),
    "look": _make_reader("t", operands="pattern"),
    "iconv": _make_reader("ft", "--from-code --to-code", writes="-o --output"),
    "more": ProgramSpec("read", OptionGrammar("n"), is_read_only=False),
    **{name: _make_reader() for name in ("zcat", "bzcat", "xzcat", "zstdcat", "gzcat")},
    **{
        name: _make_reader("efmABC", "--regexp --max-count", reads="-f --file", operands="pattern")
        for name in ("zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep")
    },
    **{
        name: _make_writer("write", "S", "--suffix")
        for name in word_set(
            "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 compress uncompress"
        )
    },
    "dig": ProgramSpec("text", OptionGrammar("fbkpqtxcy", reads=word_set("-f -k")), is_read_only=False),
    "fd": ProgramSpec("pattern", OptionGrammar("xXeEtdcSoj", word_set("--exec --exec-batch --type --extension "
                  "--exclude --max-depth --min-depth --exact-depth --size --changed-within "
                  "--changed-before --owner --threads --color --format --max-results --and"),
                  reads=word_set("--base-directory --search-path --ignore-file -C"),
                  runs=word_set("-x -X --exec --exec-batch -L --follow")), is_read_only=False),
    "ssh": ProgramSpec("none", OptionGrammar("oFiJlpEDLRWbcemQSwBI",
                   runs=word_set("-o -F -J -E -D -L -R -w -S -I")), is_read_only=False),
    "sftp": ProgramSpec("text", OptionGrammar("oFSbDi", runs=word_set("-o -F -S -b -D")), is_read_only=False),
    "wget": ProgramSpec("text", OptionGrammar("OoaieUPTtwQ", word_set("--output-document --output-file"),
        writes=word_set("-O --output-document -o --output-file -a --append-output -P "
                    "--directory-prefix --save-cookies --rejected-log --hsts-file"),
        runs=word_set("-r --recursive -m --mirror -p --page-requisites --content-disposition "
                  "--trust-server-names --warc-tempdir --warc-dedup --input-metalink "
                  "-e --execute --use-askpass --config -i --input-file --post-file --body-file "
                  "--warc-file")), is_read_only=False),
    "unzip": ProgramSpec("first", OptionGrammar("dxP", writes=word_set("-d"), runs=word_set("-:")), is_read_only=False),
    "make": ProgramSpec("text", OptionGrammar("fICoWE", word_set("--file --makefile --directory --include-dir "
                    "--eval"), reads=word_set("-f --file --makefile -C --directory -I --include-dir"),
                    runs=word_set("-E --eval")), is_read_only=False),
    "patch": ProgramSpec("write", OptionGrammar("BDFVYdgiprz", word_set("--directory --input --output"),
                     reads=word_set("-i --input"),
                     writes=word_set("-o --output -d --directory -r --reject-file -B --prefix"),
                     runs=word_set("-e --ed")), is_read_only=False),
    "csplit": ProgramSpec("first", OptionGrammar("bfn", word_set("--prefix"), writes=word_set("-f --prefix")),
                      is_read_only=False),
    "cpio": ProgramSpec("none", OptionGrammar("OFIEDHCRM", word_set("--file --directory --pattern-file"),
                    writes=word_set("-O -F --file -D --directory"), reads=word_set("-I"),
                    runs=word_set("-E --pattern-file --rsh-command")), is_read_only=False),
    "docker": ProgramSpec("text", OptionGrammar("", runs=word_set("-v --volume --mount --privileged --pid")),
                      is_read_only=False),
}  # fmt: skip

# Programs that run code given on the line by these options (or on standard input without words).
_INLINE_CODE_OPTIONS: dict[str, frozenset[str]] = {
    "python": word_set("-c -m"), "pypy": word_set("-c -m"), "ipython": word_set("-c -m"),
    "bpython": word_set("-c -m"), "perl": word_set("-e -E"), "ruby": word_set("-e"), "irb": frozenset(),
    "node": word_set("-e -p --eval --print -r --require --import"),
    "nodejs": word_set("-e -p --eval --print -r --require --import"),
    "ts-node": word_set("-e -p --eval --print -r --require"), "tsx": word_set("-e -p --eval --print"),
    "deno": word_set("eval"), "bun": word_set("-e -p --eval --print"), "php": word_set("-r -B -R -E"),
    "lua": word_set("-e"), "luajit": word_set("-e"), "Rscript": word_set("-e"), "R": word_set("-e"),
    "osascript": word_set("-e"), "tclsh": frozenset(), "expect": word_set("-c"), "wish": frozenset(),
    "gdb": word_set("-ex -eval-command --ex --eval-command -iex --init-eval-command"),
    "lldb": word_set("-o --one-line -O --one-line-before-file -s"),
    "vim": word_set("-c --cmd"), "vi": word_set("-c --cmd"), "nvim": word_set("-c --cmd"),
    "view": word_set("-c --cmd"), "emacs": word_set("--eval -eval --execute -execute"),
    "ed": frozenset(), "ex": frozenset(), "busybox": frozenset(), "toybox": frozenset(),
    "sqlite3": frozenset(), "psql": word_set("-c --command"), "mysql": word_set("-e --execute"),
    "mariadb": word_set("-e --execute"), "duckdb": frozenset(), "socat": frozenset(),
    "nc": word_set("-e -c --exec --sh-exec --lua-exec"), "netcat": word_set("-e -c"),
    "ncat": word_set("-e -c --exec --sh-exec --lua-exec"), "m4": frozenset(), "bc": frozenset(),
    "dc": frozenset(), "gnuplot": word_set("-e"), "octave": word_set("--eval"), "jshell": frozenset(),
    "groovy": word_set("-e"), "scala": word_set("-e"), "elixir": word_set("-e --eval"),
    "iex": word_set("-e --eval"), "erl": word_set("-eval"), "ghc": word_set("-e"), "ghci": word_set("-e"),
    "julia": word_set("-e -E --eval --print"), "guile": word_set("-c"), "sbcl": word_set("--eval"),
    "racket": word_set("-e --eval"), "clojure": word_set("-e --eval -M"), "clj": word_set("-e --eval -M"),
    "swift": word_set("-e"), "kotlin": word_set("-e"), "raku": word_set("-e"), "nix": word_set("-c --expr"),
    "nix-shell": word_set("--run --command -E -p"), "npx": word_set("-c --call"),
    "npm": word_set("-c --call"), "openssl": word_set("engine"), "ansible": word_set("-a --args"),
    "tmux": frozenset(), "screen": frozenset(),
}  # fmt: skip
_JQ_UNSAFE = re.compile(r"""(?<![.\w"'-])env\b|\$ENV|\b(?:import|include|modulemeta)\b""")
# Options of programs that are not known otherwise: they name a program to run, or a file.
_RISKY_OPTIONS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for names, pattern in {
        "gcc g++ cc c++ clang clang++": r"-wrapper|-fplugin|-B|-specs|-fuse-ld=.*/|-Xclang|-load|@",
        "rustc": r"-C|--codegen|-Z|@",
        "go": r"--?(?:exec|toolexec|vettool|overlay|modfile|ldflags=.*extld)",
        "cargo": r"--config|-Z",
        "npm pnpm yarn bun": r"--(?:script-shell|shell|node-options|(?:user|global)config)",
        "gradle mvn ant": r"-I|--init-script|-s$|--settings|-gs|--global-settings",
        "just": r"--(?:shell|chooser|justfile)|-f",
        "cmake": r"-E|-P|-C",
        "pip pip3": r"--log",
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
        "helm": r"--post-renderer",
        "docker podman": r"--(?:cap-add|device|security-opt|userns|volumes-from|env-file)",
        "yq": r"-i|--inplace|.*\b(?:load|env|strenv|envsubst)",
        "openssl": r"-(?:in|inkey|key|out|CAfile|config|engine|provider|writerand)\b",
    }.items()
    for name in names.split()
}
_GREP_RECURSIVE = re.compile(r"^rec|d(?:irectories=)?rec")  # -d recurse, in all its spellings
_DATABASE_PROGRAMS = word_set("sqlite3 duckdb")  # whose first word is a file
_PLUS_COMMAND_PROGRAMS = word_set("less more most vi vim nvim view gvim emacs nano")
_SCHEDULERS = word_set("at batch crontab systemd-run launchctl schtasks atd")
_MULTICALL_PROGRAMS = frozenset({"busybox", "toybox", "coreutils"})

_ANALYZERS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "git": analyze_git,
    "find": analyze_find,
    "gfind": analyze_find,
    "sed": analyze_sed,
    "gsed": analyze_sed,
    "awk": analyze_awk,
    "gawk": analyze_awk,
    "mawk": analyze_awk,
    "nawk": analyze_awk,
    "tar": analyze_tar,
    "bsdtar": analyze_tar,
    "date": analyze_date,
    **FILE_TRANSFER_PROGRAMS,
}
# Left out: what a repository's own files may take the place of (yarn, pnpm), or extend (pytest).
_VERSION_OPTIONS: dict[str, frozenset[str]] = {
    "--version": word_set(
        "python python3 node npm npx cargo rustc go git java ruby gcc clang make cmake uv pip pip3 "
        "ruff mypy docker bash rg deno bun"
    ),
    "-V": word_set("python python3 cargo rustc uv pip pip3 ruff mypy rg"),
    "version": word_set("go git docker"),  # to others it is a script, a target or a package
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "ggrep": "grep", "gsort": "sort", "batcat": "bat"}


def analyze_effects(command: SimpleCommand) -> Effects:
    """What the command does, leaving out what it does through inner commands."""
    name = get_program_name(command.argv[0] if command.argv else None)
    if name is None or (not command.argv):
        return Effects()
    name = _ALIASES.get(name, name)
    words = command.argv[1:]
    if len(words) == 1 and name in _VERSION_OPTIONS.get(words[0].text or "", ()):
        return Effects(is_read_only=True)
    special = _ANALYZERS.get(name)
    if special is not None:
        return special(words)
    builtin = analyze_builtin(name, words)
    if builtin is not None:
        return builtin
    if name == "uniq":
        return _analyze_input_output(words, "fsw")
    if name == "xxd":
        return _analyze_input_output(words, "cglosR")
    if name in _SCHEDULERS:
        return Effects(doubts=("runs something later, or elsewhere",))
    if name in _PLUS_COMMAND_PROGRAMS and any((w.text or "").startswith("+") for w in words):
        return Effects(has_inline_code=True, doubts=("+ gives it a command",))
    risky = _RISKY_OPTIONS.get(name)
    if risky is not None and any(risky.match(w.text or "") for w in words):
        return replace(
            _analyze_interpreter(name, words), doubts=("an option that runs or opens more",)
        )
    program = _PROGRAMS.get(name)
    if program is not None:
        found = analyze_by_spec(program, words)
        if name == "strings" and any((w.text or "").startswith("@") for w in words):
            return Effects(doubts=("options from a file",))
        if name == "make" and any(
            w.is_process_substitution or w.text in ("-", "-f-", "--file=-") for w in words
        ):
            return Effects(has_inline_code=True)
        if name == "jq" and any(_JQ_UNSAFE.search(w.text or "") for w in words):
            return Effects(doubts=("a jq program that reads the environment or other files",))
        if name == "grep" and any(_GREP_RECURSIVE.search(w.text or "") for w in words):
            return replace(found, is_recursive=True)
        if name == "unzip":
            return replace(found, writes=(), primary_writes=found.writes)
        if name == "wget":
            return replace(
                found,
                primary_writes=(*found.primary_writes, *_list_downloads(words, program.grammar)),
            )
        if name == "ssh" and _has_remote_command(words, program.grammar):
            return replace(found, has_inline_code=True)
        return found
    return _analyze_interpreter(name, words)


def _list_downloads(words: Sequence[Word], grammar: OptionGrammar) -> Iterator[Word]:
    """The files that wget names after the addresses."""
    for item in scan_options(words, grammar):
        if isinstance(item, Word) and item.text:
            path = item.text.partition("://")[2].partition("/")[2].partition("#")[0]
            yield Word(item.source, path.partition("?")[0].rpartition("/")[2] or "index.html")


def _has_remote_command(words: Sequence[Word], grammar: OptionGrammar) -> bool:
    return len([item for item in scan_options(words, grammar) if isinstance(item, Word)]) > 1


def _analyze_input_output(words: Sequence[Word], value: str) -> Effects:
    """`uniq IN OUT`: the second operand is written, whatever it looks like."""
    found = list(scan_options(words, OptionGrammar(value, may_permute=False)))
    operands = [item for item in found if isinstance(item, Word)]
    values = [item.value for item in found if isinstance(item, CommandOption) and item.value]
    return Effects(
        is_read_only=len(operands) < 2, reads=tuple(operands[:1]), writes=tuple(operands[1:]),
        mentions=tuple(values),
    )  # fmt: skip


def _analyze_interpreter(name: str, words: Sequence[Word]) -> Effects:
    name = name.rpartition("/")[2]
    base = name if name in _INLINE_CODE_OPTIONS else name.rstrip("0123456789.")
    if name in _MULTICALL_PROGRAMS:
        return Effects(has_inline_code=True, doubts=("one program that is many others",))
    if base in _INLINE_CODE_OPTIONS:
        options = _INLINE_CODE_OPTIONS[base]
        texts = [w.text or "" for w in words]
        letters = {o[1] for o in options if len(o) == 2 and o[0] == "-"}
        inline = not texts or any(w.is_process_substitution for w in words) or any(
            t in options or t.partition("=")[0] in options or t == "-"
            or (t[:1] == "-" and t[1:2] != "-" and not letters.isdisjoint(t)) for t in texts
        )  # fmt: skip
        opened = (
            [w for w in words if (w.text or "")[:1] != "-"][:1]
            if base in _DATABASE_PROGRAMS
            else []
        )
        return Effects(
            has_inline_code=inline or not options,
            reads=tuple(opened),
            mentions=tuple(words),
            is_opaque=True,
        )
    inline = not words if name in SHELLS else any(
        _is_inline_code(word, words[at:]) for at, word in enumerate(words, 1)
    )  # fmt: skip
    return Effects(has_inline_code=inline, mentions=tuple(words), is_opaque=True)


def _is_inline_code(word: Word, following: Sequence[Word]) -> bool:
    """Whether an argument is an interpreter, given code: `uv run python -c …`."""
    name = (word.text or "").rpartition("/")[2]
    if name in SHELLS:
        return not following or any((w.text or "").startswith("-") for w in following[:1])
    known = name in _INLINE_CODE_OPTIONS or name.rstrip("0123456789.") in _INLINE_CODE_OPTIONS
    return known and bool(following) and _analyze_interpreter(name, following).has_inline_code
