"""The programs that are known: a table, and the few that need code of their own.

To add one: a line in the table if its options say it all, else a function of its words. Leave out
what is not certain; an unknown program only costs a question.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from treadle.policy.listed import listed
from treadle.policy.shell.awk import awk_effects
from treadle.policy.shell.carriers import CARRIERS
from treadle.policy.shell.effects import Effects, Program, table_effects
from treadle.policy.shell.facts import Part, Word
from treadle.policy.shell.git import git_effects
from treadle.policy.shell.options import Grammar, Option, scan
from treadle.policy.shell.sed import sed_effects
from treadle.policy.shell.special import (
    builtin_effects,
    date_effects,
    find_effects,
    tar_effects,
)
from treadle.policy.shell.wrappers import SHELLS, program_name


def _reader(
    value: str = "", values: str = "", *, reads: str = "", writes: str = "", runs: str = "",
    operands: str = "read", recurses: str = "", follows: bool = False,
) -> Program:  # fmt: skip
    grammar = Grammar(value, listed(values), listed(reads), listed(writes), listed(runs))
    return Program(operands, grammar, recurses=recurses, follows=follows)


def _writer(
    operands: str, value: str = "", values: str = "", runs: str = "", recurses: str = ""
) -> Program:
    grammar = Grammar(value, listed(values), runs=listed(runs))
    return Program(operands, grammar, plain=False, recurses=recurses)


def _says(value: str = "", runs: str = "") -> Program:
    """Prints something of its own; operands are text."""
    return Program("text", Grammar(value, runs=listed(runs)))


_TABLE: dict[str, Program] = {
    "ls": _reader("IwT", "--ignore --width --tabsize --hide", recurses="R"),
    "dir": _reader("IwT"),
    "cat": _reader(),
    "tac": _reader("s", "--separator"),
    "nl": _reader("bdfhilnsvw"),
    "head": _reader("nc", "--lines --bytes"),
    "tail": _reader("ncs", "--lines --bytes --sleep-interval --pid"),
    "wc": _reader(reads="--files0-from", runs="--files0-from"),
    "grep": _reader(
        "efmABCdD", "--regexp --max-count --context --include --exclude --exclude-dir "
        "--directories --devices --after-context --before-context",
        reads="-f --file --exclude-from", runs="-R --dereference-recursive",
        operands="pattern", recurses="r",
    ),
    "rg": _reader(
        "efgmABCtTjMrEd", "--glob --iglob --regexp --type --type-not --context --max-count "
        "--max-depth --replace --sort --sortr --threads --colors --color --encoding --engine "
        "--after-context --before-context --max-columns --max-filesize --type-add --path-separator",
        reads="-f --file --ignore-file", runs="--pre --hostname-bin -L --follow -z --search-zip",
        operands="pattern", recurses="always",
    ),
    "cut": _reader("bcdf", "--bytes --characters --delimiter --fields --output-delimiter"),
    "fold": _reader("w", "--width"),
    "fmt": _reader("wgp", "--width --goal --prefix"),
    "expand": _reader("t", "--tabs"),
    "unexpand": _reader("t", "--tabs"),
    "paste": _reader("d", "--delimiters"),
    "join": _reader("12aejotv"),
    "comm": _reader("", "--output-delimiter"),
    "cmp": _reader("in", "--ignore-initial --bytes"),
    "rev": _reader(),
    "column": _reader("scoNHRW"),
    "sort": _reader(
        "kotTS", "--key --field-separator --buffer-size --parallel --sort --batch-size",
        reads="--random-source", writes="-o --output",
        runs="--compress-program --files0-from -T --temporary-directory",
    ),
    "diff": _reader(
        "UCxXFIW", "--exclude --label --ignore-matching-lines --width",
        reads="-X --exclude-from --from-file --to-file", recurses="always", follows=True,
        runs="-l --paginate -r --recursive",  # it follows links on its way
    ),
    "stat": _reader("c", "--format --printf"),
    "file": _reader(
        "mfFeP", reads="-m --magic-file",
        runs="-f --files-from -C --compile -z -Z --uncompress --uncompress-noreport",
    ),
    "du": _reader(
        "dBtX", "--max-depth --block-size --threshold --exclude", reads="-X --exclude-from",
        runs="--files0-from -L --dereference", recurses="",
    ),
    "df": _reader("Bxt"),
    "tree": _reader("LPIHTo", writes="-o", runs="-l --fromfile -R", recurses=""),
    "realpath": _reader("", "--relative-to --relative-base"),
    "readlink": _reader(),
    "md5sum": _reader(runs="-c --check"),
    "sha1sum": _reader(runs="-c --check"),
    "sha256sum": _reader(runs="-c --check"),
    "sha512sum": _reader(runs="-c --check"),
    "cksum": _reader("a", runs="-c --check"),
    "b2sum": _reader("l", runs="-c --check"),
    "od": _reader("AjNSt"),
    "hexdump": _reader("efns", reads="-f"),
    "strings": _reader("neTt"),
    "base64": _reader("w", "--wrap"),
    "jq": _reader(
        "L", "--indent --arg --argjson", reads="--slurpfile --rawfile",
        runs="-f --from-file -L --slurpfile --rawfile", operands="pattern",
    ),
    "tr": _says(),
    "seq": _says("fs"),
    "basename": _says("s"),
    "dirname": _says(),
    "pwd": _says(),
    "true": Program("text", data=True),
    "false": Program("text", data=True),
    ":": Program("text", data=True),
    "sleep": _says(),
    "nproc": _says(),
    "arch": _says(),
    "uname": _says(),
    "which": _says(),
    "type": _says(),
    "uptime": _says(),
    "cal": _says(),
    "tty": _says(),
    "exit": Program("text", data=True),
    "return": Program("text", data=True),
    "break": Program("text"),
    "continue": Program("text"),
    "shift": Program("text"),
    "wait": _says("p", runs="-p"),
    "expr": _says(),
    "factor": _says(),
    "chmod": _writer("write", "", "--reference", recurses="R"),
    "chown": _writer("write", "", "--reference --from", recurses="R"),
    "chgrp": _writer("write", "", "--reference", recurses="R"),
    "rm": _writer("write", recurses="rR"),
    "rmdir": _writer("write"),
    "unlink": _writer("write"),
    "shred": _writer("write", "ns"),
    "mkdir": _writer("write", "m", "--mode"),
    "touch": _writer("write", "drt", "--date --reference --time"),
    "truncate": _writer("write", "sr", "--size --reference"),
    "tee": _writer("write"),
    "mv": _writer("move", "tS", "--target-directory --suffix", recurses="always"),
    "cp": _writer("copy", "tS", "--target-directory --suffix", "-L --dereference", "rRa"),
    "ln": _writer("link", "tS", "--target-directory --suffix"),
    "install": _writer("copy", "tSmog", "--target-directory --mode", runs="--strip-program"),
    "man": Program(
        "names", Grammar("CLmMSselpErPH", listed("--pager --config-file --manpath --extension"),
        runs=listed("-P --pager -H --html -C --config-file -l --local-file -M --manpath -T -X -p "
                  "--preprocessor --gxditview --browser")), plain=False,
    ),
    "less": Program("read", Grammar("oOkbhjpPtTxyz", runs=listed("-o -O -k --lesskey-file "
                    "--log-file --LOG-FILE --lesskey-src --lesskey-content")), plain=False),
    "bat": Program("read", Grammar(runs=listed("--pager cache")), plain=False),
    "shuf": _reader("inor", reads="--random-source", writes="-o --output"),
    "pr": _reader("DhlNSsWw"),
    "base32": _reader("w", "--wrap"),
    "basenc": _reader("w", "--wrap"),
    "sum": _reader(),
    "sha224sum": _reader(runs="-c --check"),
    "sha384sum": _reader(runs="-c --check"),
    "ptx": _reader("AFMRSTWbgiow", operands="write"),
    "ul": _reader("t"),
    "vdir": _reader("IwT"),
    "look": _reader("t", operands="pattern"),
    "iconv": _reader("ft", "--from-code --to-code", writes="-o --output"),
    "more": Program("read", Grammar("n"), plain=False),
    **{name: _reader() for name in ("zcat", "bzcat", "xzcat", "zstdcat", "gzcat")},
    **{
        name: _reader("efmABC", "--regexp --max-count", reads="-f --file", operands="pattern")
        for name in ("zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep")
    },
    **{
        name: _writer("write", "S", "--suffix")
        for name in listed(
            "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 compress uncompress"
        )
    },
    "dig": Program("text", Grammar("fbkpqtxcy", reads=listed("-f -k")), plain=False),
    "fd": Program("pattern", Grammar("xXeEtdcSoj", listed("--exec --exec-batch --type --extension "
                  "--exclude --max-depth --min-depth --exact-depth --size --changed-within "
                  "--changed-before --owner --threads --color --format --max-results --and"),
                  reads=listed("--base-directory --search-path --ignore-file -C"),
                  runs=listed("-x -X --exec --exec-batch -L --follow")), plain=False),
    "ssh": Program("none", Grammar("oFiJlpEDLRWbcemQSwBI",
                   runs=listed("-o -F -J -E -D -L -R -w -S -I")), plain=False),
    "sftp": Program("text", Grammar("oFSbDi", runs=listed("-o -F -S -b -D")), plain=False),
    "wget": Program("text", Grammar("OoaieUPTtwQ", listed("--output-document --output-file"),
        writes=listed("-O --output-document -o --output-file -a --append-output -P "
                    "--directory-prefix --save-cookies --rejected-log --hsts-file"),
        runs=listed("-r --recursive -m --mirror -p --page-requisites --content-disposition "
                  "--trust-server-names --warc-tempdir --warc-dedup --input-metalink "
                  "-e --execute --use-askpass --config -i --input-file --post-file --body-file "
                  "--warc-file")), plain=False),
    "unzip": Program("first", Grammar("dxP", writes=listed("-d"), runs=listed("-:")), plain=False),
    "make": Program("text", Grammar("fICoWE", listed("--file --makefile --directory --include-dir "
                    "--eval"), reads=listed("-f --file --makefile -C --directory -I --include-dir"),
                    runs=listed("-E --eval")), plain=False),
    "patch": Program("write", Grammar("BDFVYdgiprz", listed("--directory --input --output"),
                     reads=listed("-i --input"),
                     writes=listed("-o --output -d --directory -r --reject-file -B --prefix"),
                     runs=listed("-e --ed")), plain=False),
    "csplit": Program("first", Grammar("bfn", listed("--prefix"), writes=listed("-f --prefix")),
                      plain=False),
    "cpio": Program("none", Grammar("OFIEDHCRM", listed("--file --directory --pattern-file"),
                    writes=listed("-O -F --file -D --directory"), reads=listed("-I"),
                    runs=listed("-E --pattern-file --rsh-command")), plain=False),
    "docker": Program("text", Grammar("", runs=listed("-v --volume --mount --privileged --pid")),
                      plain=False),
}  # fmt: skip

# Programs that run code given on the line by these options (or on standard input without words).
_INLINE: dict[str, frozenset[str]] = {
    "python": listed("-c -m"), "pypy": listed("-c -m"), "ipython": listed("-c -m"),
    "bpython": listed("-c -m"), "perl": listed("-e -E"), "ruby": listed("-e"), "irb": frozenset(),
    "node": listed("-e -p --eval --print -r --require --import"),
    "nodejs": listed("-e -p --eval --print -r --require --import"),
    "ts-node": listed("-e -p --eval --print -r --require"), "tsx": listed("-e -p --eval --print"),
    "deno": listed("eval"), "bun": listed("-e -p --eval --print"), "php": listed("-r -B -R -E"),
    "lua": listed("-e"), "luajit": listed("-e"), "Rscript": listed("-e"), "R": listed("-e"),
    "osascript": listed("-e"), "tclsh": frozenset(), "expect": listed("-c"), "wish": frozenset(),
    "gdb": listed("-ex -eval-command --ex --eval-command -iex --init-eval-command"),
    "lldb": listed("-o --one-line -O --one-line-before-file -s"),
    "vim": listed("-c --cmd"), "vi": listed("-c --cmd"), "nvim": listed("-c --cmd"),
    "view": listed("-c --cmd"), "emacs": listed("--eval -eval --execute -execute"),
    "ed": frozenset(), "ex": frozenset(), "busybox": frozenset(), "toybox": frozenset(),
    "sqlite3": frozenset(), "psql": listed("-c --command"), "mysql": listed("-e --execute"),
    "mariadb": listed("-e --execute"), "duckdb": frozenset(), "socat": frozenset(),
    "nc": listed("-e -c --exec --sh-exec --lua-exec"), "netcat": listed("-e -c"),
    "ncat": listed("-e -c --exec --sh-exec --lua-exec"), "m4": frozenset(), "bc": frozenset(),
    "dc": frozenset(), "gnuplot": listed("-e"), "octave": listed("--eval"), "jshell": frozenset(),
    "groovy": listed("-e"), "scala": listed("-e"), "elixir": listed("-e --eval"),
    "iex": listed("-e --eval"), "erl": listed("-eval"), "ghc": listed("-e"), "ghci": listed("-e"),
    "julia": listed("-e -E --eval --print"), "guile": listed("-c"), "sbcl": listed("--eval"),
    "racket": listed("-e --eval"), "clojure": listed("-e --eval -M"), "clj": listed("-e --eval -M"),
    "swift": listed("-e"), "kotlin": listed("-e"), "raku": listed("-e"), "nix": listed("-c --expr"),
    "nix-shell": listed("--run --command -E -p"), "npx": listed("-c --call"),
    "npm": listed("-c --call"), "openssl": listed("engine"), "ansible": listed("-a --args"),
    "tmux": frozenset(), "screen": frozenset(),
}  # fmt: skip
_JQ_READS = re.compile(r"""(?<![.\w"'-])env\b|\$ENV|\b(?:import|include|modulemeta)\b""")
# Options of programs that are not known otherwise: they name a program to run, or a file.
_RISKY: dict[str, re.Pattern[str]] = {
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
_GREP_RECURSES = re.compile(r"^rec|d(?:irectories=)?rec")  # -d recurse, in all its spellings
_OPENING = listed("sqlite3 duckdb")  # whose first word is a file
_PLUS = listed("less more most vi vim nvim view gvim emacs nano")
_LATER = listed("at batch crontab systemd-run launchctl schtasks atd")
_MULTICALL = frozenset({"busybox", "toybox", "coreutils"})

_SPECIAL: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "git": git_effects,
    "find": find_effects,
    "gfind": find_effects,
    "sed": sed_effects,
    "gsed": sed_effects,
    "awk": awk_effects,
    "gawk": awk_effects,
    "mawk": awk_effects,
    "nawk": awk_effects,
    "tar": tar_effects,
    "bsdtar": tar_effects,
    "date": date_effects,
    **CARRIERS,
}
# Left out: what a repository's own files may take the place of (yarn, pnpm), or extend (pytest).
_VERSIONS: dict[str, frozenset[str]] = {
    "--version": listed(
        "python python3 node npm npx cargo rustc go git java ruby gcc clang make cmake uv pip pip3 "
        "ruff mypy docker bash rg deno bun"
    ),
    "-V": listed("python python3 cargo rustc uv pip pip3 ruff mypy rg"),
    "version": listed("go git docker"),  # to others it is a script, a target or a package
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "ggrep": "grep", "gsort": "sort", "batcat": "bat"}


def effects_of(part: Part) -> Effects:
    """What the command does, leaving out what it does through inner commands."""
    name = program_name(part.argv[0] if part.argv else None)
    if name is None or (not part.argv):
        return Effects()
    name = _ALIASES.get(name, name)
    words = part.argv[1:]
    if len(words) == 1 and name in _VERSIONS.get(words[0].text or "", ()):
        return Effects(plain=True)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    builtin = builtin_effects(name, words)
    if builtin is not None:
        return builtin
    if name == "uniq":
        return _input_output(words, "fsw")
    if name == "xxd":
        return _input_output(words, "cglosR")
    if name in _LATER:
        return Effects(doubts=("runs something later, or elsewhere",))
    if name in _PLUS and any((w.text or "").startswith("+") for w in words):
        return Effects(inline=True, doubts=("+ gives it a command",))
    risky = _RISKY.get(name)
    if risky is not None and any(risky.match(w.text or "") for w in words):
        return replace(_interpreter(name, words), doubts=("an option that runs or opens more",))
    program = _TABLE.get(name)
    if program is not None:
        found = table_effects(program, words)
        if name == "strings" and any((w.text or "").startswith("@") for w in words):
            return Effects(doubts=("options from a file",))
        if name == "make" and any(w.stream or w.text in ("-", "-f-", "--file=-") for w in words):
            return Effects(inline=True)
        if name == "jq" and any(_JQ_READS.search(w.text or "") for w in words):
            return Effects(doubts=("a jq program that reads the environment or other files",))
        if name == "grep" and any(_GREP_RECURSES.search(w.text or "") for w in words):
            return replace(found, recurses=True)
        if name == "unzip":
            return replace(found, writes=(), makes=found.writes)
        if name == "wget":
            return replace(found, makes=(*found.makes, *_downloads(words, program.grammar)))
        if name == "ssh" and _remote_command(words, program.grammar):
            return replace(found, inline=True)
        return found
    return _interpreter(name, words)


def _downloads(words: Sequence[Word], grammar: Grammar) -> Iterator[Word]:
    """The files that wget names after the addresses."""
    for item in scan(words, grammar):
        if isinstance(item, Word) and item.text:
            path = item.text.partition("://")[2].partition("/")[2].partition("#")[0]
            yield Word(item.source, path.partition("?")[0].rpartition("/")[2] or "index.html")


def _remote_command(words: Sequence[Word], grammar: Grammar) -> bool:
    return len([item for item in scan(words, grammar) if isinstance(item, Word)]) > 1


def _input_output(words: Sequence[Word], value: str) -> Effects:
    """`uniq IN OUT`: the second operand is written, whatever it looks like."""
    found = list(scan(words, Grammar(value, permutes=False)))
    operands = [item for item in found if isinstance(item, Word)]
    values = [item.value for item in found if isinstance(item, Option) and item.value]
    return Effects(
        plain=len(operands) < 2, reads=tuple(operands[:1]), writes=tuple(operands[1:]),
        mentions=tuple(values),
    )  # fmt: skip


def _interpreter(name: str, words: Sequence[Word]) -> Effects:
    name = name.rpartition("/")[2]
    base = name if name in _INLINE else name.rstrip("0123456789.")
    if name in _MULTICALL:
        return Effects(inline=True, doubts=("one program that is many others",))
    if base in _INLINE:
        options = _INLINE[base]
        texts = [w.text or "" for w in words]
        letters = {o[1] for o in options if len(o) == 2 and o[0] == "-"}
        inline = not texts or any(w.stream for w in words) or any(
            t in options or t.partition("=")[0] in options or t == "-"
            or (t[:1] == "-" and t[1:2] != "-" and not letters.isdisjoint(t)) for t in texts
        )  # fmt: skip
        opened = [w for w in words if (w.text or "")[:1] != "-"][:1] if base in _OPENING else []
        return Effects(
            inline=inline or not options, reads=tuple(opened), mentions=tuple(words), opaque=True
        )
    inline = not words if name in SHELLS else any(
        _is_code(word, words[at:]) for at, word in enumerate(words, 1)
    )  # fmt: skip
    return Effects(inline=inline, mentions=tuple(words), opaque=True)


def _is_code(word: Word, following: Sequence[Word]) -> bool:
    """Whether an argument is an interpreter, given code: `uv run python -c …`."""
    name = (word.text or "").rpartition("/")[2]
    if name in SHELLS:
        return not following or any((w.text or "").startswith("-") for w in following[:1])
    known = name in _INLINE or name.rstrip("0123456789.") in _INLINE
    return known and bool(following) and _interpreter(name, following).inline
