"""The effects of one command, by its program: what it reads, writes and runs.

Programs that a table cannot describe have functions of their words, here or in a module of their
own. Knows programs by their documented options; knows no rules and no file system.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from treadle.lib.shell.analysis.awk import analyze_awk
from treadle.lib.shell.analysis.file_transfer import FILE_TRANSFER_PROGRAMS, analyze_tar
from treadle.lib.shell.analysis.find import analyze_find
from treadle.lib.shell.analysis.git import analyze_git
from treadle.lib.shell.analysis.options import (
    CommandOption,
    OptionGrammar,
    ProgramSpec,
    analyze_by_spec,
    scan_options,
)
from treadle.lib.shell.analysis.program_table import (
    INLINE_CODE_OPTIONS,
    PROGRAMS,
    RISKY_OPTIONS,
    VERSION_OPTIONS,
)
from treadle.lib.shell.analysis.sed import analyze_sed
from treadle.lib.shell.ast import (
    SHELLS,
    Effects,
    FileGlob,
    SearchFilter,
    SimpleCommand,
    Word,
    get_program_name,
    strip_version,
)
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

_JQ_UNSAFE = compile_lazily(r"""(?<![.\w"'-])env\b|\$ENV|\b(?:import|include|modulemeta)\b""")
_GREP_RECURSIVE = compile_lazily(r"^rec|d(?:irectories=)?rec")  # all spellings of `-d recurse`
_DATABASE_PROGRAMS = word_set("sqlite3 duckdb")  # their first operand is a file
_PLUS_COMMAND_PROGRAMS = word_set("less more most vi vim nvim view gvim emacs nano")
_SCHEDULERS = word_set("at batch crontab systemd-run launchctl schtasks atd")
_MULTICALL_PROGRAMS = frozenset({"busybox", "toybox", "coreutils"})


# Types of rg that match no hidden file. A type makes rg search hidden files that it matches.
_PLAIN_TYPES = word_set(
    "c cpp css go html java js json kotlin lua md perl php py python ruby rust scala sql swift "
    "toml ts xml yaml"
)
_VARIABLE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_PRINTF_COUNT = re.compile(r"%[-#+ '0-9.*]*[hjlLqtz]*n")
_PLAIN_FILE = re.compile(r"[\w./][\w./+-]*")  # perl runs what is in a name with a `|`
# Modes without the set-uid bit.
_CLAUSE = r"[ugoa]*(?:[-+=][rwxX]*)+"
_PLAIN_MODE = re.compile(rf"0?[0-7]{{1,3}}|{_CLAUSE}(?:,{_CLAUSE})*")
_MODE_DOUBT = "it may set the set-uid bit of a file"
_MODE_OPTIONS = ("-m", "--mode")
_CHMOD_OPTION = re.compile(r"-[Rvcf]+|--(?:recursive|verbose|changes|silent|quiet|preserve-root)?")
_HOST_OPTION = re.compile(r"-[fsiIdA]+|--(?:fqdn|short|ip-address|all-ip-addresses|domain)")
# One substitution without code, variables, delimiters of its own or embedded expressions.
_SUBSTITUTION = re.compile(
    r"s(?P<mark>[/|#,])(?:(?!(?P=mark))[^$@`\\\n{}(]|\\[.\w/])*(?P=mark)"
    r"(?:(?!(?P=mark))[^$@`\\\n{}]|\\[.n/]|\$[1-9])*(?P=mark)[gimx]*;?"
)
_INTEGER = re.compile(r"-?[0-9]+")
_STATE_BUILTINS = word_set(
    "source . alias unalias hash enable trap bind complete compgen compopt fc history let "
    "mapfile readarray getopts shopt umask ulimit export declare typeset local readonly unset "
    "dirs disown fg bg suspend logout caller exec"
)
_BUILTINS = _STATE_BUILTINS | word_set("echo printf [ [[ test cd pushd popd command set read")
_STATE_DOUBT = "changes the shell that later commands run in"
_ISO_DATE = re.compile(r"-I(?:date|hours|minutes|seconds|ns)?")
_DATE = OptionGrammar(
    "dfrs",
    word_set("--date --file --reference --set"),
    reads=word_set("-f --file -r --reference"),
    runs=word_set("-s --set"),
)


def _analyze_input_output(words: Sequence[Word], value: str) -> Effects:
    """`uniq IN OUT`: the second operand is written, even if it looks like an option."""
    options, operands = scan_options(words, OptionGrammar(value, may_permute=False))
    is_several = any(word.is_glob or word.may_split for word in operands)
    return Effects(
        is_read_only=len(operands) < 2 and not is_several,
        reads=tuple(operands[:1]),
        writes=tuple(operands if is_several else operands[1:]),
        mentions=tuple(o.value for o in options if o.value),
    )


def _analyze_date(words: Sequence[Word]) -> Effects:
    """The effects of a `date` command."""
    words = [word for word in words if not _ISO_DATE.fullmatch(word.text or "")]
    options, operands = scan_options(words, _DATE)
    sets_clock = any(option.name in _DATE.runs for option in options) or any(
        not (word.text or "").startswith("+") for word in operands
    )
    reads = [o.value for o in options if o.name in _DATE.reads and o.value is not None]
    doubts = ("sets the clock",) if sets_clock else ()
    return Effects(is_read_only=True, reads=tuple(reads), doubts=doubts)


def _analyze_ps(words: Sequence[Word]) -> Effects:
    """`ps`: without a dash, `e` shows the variables of each process, and so do some formats."""
    texts = [w.text or "e" for w in words]
    shows_variables = any(
        "env" in text or ("e" in text and text[0] != "-") or (text[0] == "-" and "E" in text)
        for text in texts
        if text
    )
    doubts = ("shows the variables of other processes",) if shows_variables else ()
    return Effects(is_read_only=True, doubts=doubts)


def _analyze_hostname(words: Sequence[Word]) -> Effects:
    """`hostname NAME` changes it."""
    is_printed = all(_HOST_OPTION.fullmatch(w.text or "") for w in words)
    return Effects(is_read_only=is_printed, doubts=() if is_printed else ("sets the host's name",))


def _analyze_perl(words: Sequence[Word]) -> Effects:
    """`perl -pi -e 's/x/y/' FILE` writes the files; any other code is not known."""
    texts = [w.text or "" for w in words]
    if len(texts) > 2 and texts[0] in ("-pi", "-i") and texts[1] in ("-e", "-pe"):
        is_print_loop = "p" in texts[0] + texts[1]
        names = words[3:]
        if is_print_loop and _SUBSTITUTION.fullmatch(texts[2]) and all(
            _PLAIN_FILE.fullmatch(text) for text in texts[3:]
        ):  # fmt: skip
            return Effects(primary_writes=tuple(names), reads=tuple(names))
    return _analyze_interpreter("perl", words)


_ANALYZERS: dict[str, Callable[[Sequence[Word]], Effects]] = {
    "git": analyze_git,
    **dict.fromkeys(("find", "gfind"), analyze_find),
    **dict.fromkeys(("sed", "gsed"), analyze_sed),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), analyze_awk),
    **dict.fromkeys(("tar", "bsdtar"), analyze_tar),
    "date": _analyze_date,
    "ps": _analyze_ps,
    "hostname": _analyze_hostname,
    "perl": _analyze_perl,
    "uniq": partial(_analyze_input_output, value="fsw"),
    "xxd": partial(_analyze_input_output, value="cglosR"),
    **FILE_TRANSFER_PROGRAMS,
}
_MAX_MARKS = 8
_SCRIPTED_GREPS = word_set("zgrep zegrep zfgrep bzgrep xzgrep")
_OBJECT_READERS = word_set("strings nm objdump")
_ADJUSTED = (
    _SCRIPTED_GREPS
    | _OBJECT_READERS
    | word_set("make jq rg grep unzip zipinfo man wget ssh gzip install")
)
_GZIP_LISTING = re.compile(r"-v?[lt]v?|--list|--test")
_MAN_WORD = re.compile(r"-[kfwa]|[\w][\w.+:-]*", re.ASCII)  # no path: that is a file to format
_ZIP_ENDS = ("", ".zip", ".ZIP")
_ZIP_LISTING = {
    "unzip": re.compile(r"-(?=q*[lvtzZ])[lvtzq]*(?:Z1?)?"),
    "zipinfo": re.compile(r"-[12smlvhtzT]+"),
}
_ALIASES = {"egrep": "grep", "fgrep": "grep", "ggrep": "grep", "gsort": "sort", "batcat": "bat"}


def describe_command(command: SimpleCommand) -> SimpleCommand:
    """The command with the name of its program, and with what it does itself, without what the
    commands do that it runs."""
    first = command.argv[0] if command.argv else None
    if first is None or first.text is None or first.is_glob:
        return command
    program = get_program_name(first) if "/" in first.text else first.text
    effects = _analyze(program or "", command.argv[1:])
    return replace(command, program=program, effects=effects)


def _analyze(name: str, words: Sequence[Word]) -> Effects:
    name = _ALIASES.get(name, name)
    if len(words) == 1 and name in VERSION_OPTIONS.get(words[0].text or "", ()):
        return Effects(is_read_only=True)
    if name == "env" and not words:  # commands get an environment without secrets
        return Effects(is_read_only=True)
    analyzer = _ANALYZERS.get(name)
    if analyzer is not None:
        return analyzer(words)
    if name in _BUILTINS:
        return _analyze_builtin(name, words)
    if name in _SCHEDULERS:
        return Effects(doubts=("runs something later or elsewhere",))
    if name in _PLUS_COMMAND_PROGRAMS and any((w.text or "").startswith("+") for w in words):
        return Effects(has_inline_code=True, doubts=("an argument with + is a command",))
    risky = RISKY_OPTIONS.get(name)
    if risky is not None and any(risky.match(w.text or "") for w in words):
        doubt = "an option that runs a program or opens a file"
        return replace(_analyze_interpreter(name, words), doubts=(doubt,))
    if name == "chmod" and not _has_plain_mode(words):
        return Effects(mentions=tuple(words), doubts=(_MODE_DOUBT,))
    spec = PROGRAMS.get(name)
    if spec is not None:
        effects = analyze_by_spec(spec, words)
        return effects if name not in _ADJUSTED else _adjust_effects(name, words, spec, effects)
    return _analyze_interpreter(name, words)


def _adjust_effects(
    name: str, words: Sequence[Word], spec: ProgramSpec, effects: Effects
) -> Effects:
    """The effects of a program of the table, with what the table cannot express."""
    texts = [w.text or "" for w in words]
    if name in _OBJECT_READERS and any(text.startswith("@") for text in texts):
        return Effects(doubts=("options from a file",))
    if name == "make" and (
        any(w.is_process_substitution for w in words) or {"-", "-f-", "--file=-"} & {*texts}
    ):
        return Effects(has_inline_code=True)
    if name == "jq" and any(map(_JQ_UNSAFE.search, texts)):
        return Effects(doubts=("a jq program that reads the environment or other files",))
    if name == "rg":
        return replace(effects, search=_parse_rg_filter(scan_options(words, spec.grammar)[0]))
    if name == "grep":
        search = _parse_grep_filter(scan_options(words, spec.grammar)[0])
        is_recursive = effects.is_recursive or any(map(_GREP_RECURSIVE.search, texts))
        return replace(effects, search=search, is_recursive=is_recursive)
    if name in ("unzip", "zipinfo"):
        if _lists_archive(name, texts):  # `x` may mean `x.zip`
            names = [replace(w, text=f"{w.text}{end}") for w in effects.reads for end in _ZIP_ENDS]
            return replace(effects, is_read_only=True, reads=tuple(names))
        members = scan_options(words, spec.grammar)[1][1:]
        return replace(effects, writes=(), primary_writes=(*effects.writes, *members))
    if name == "install":
        modes = [o.value for o in scan_options(words, spec.grammar)[0] if o.name in _MODE_OPTIONS]
        if not all(mode is not None and _PLAIN_MODE.fullmatch(mode.text or "") for mode in modes):
            return replace(effects, doubts=(*effects.doubts, _MODE_DOUBT))
    if name == "gzip":
        options = [text for text in texts if text[:1] == "-"]
        if options and all(map(_GZIP_LISTING.fullmatch, options)):  # shows sizes
            return Effects(is_read_only=True, reads=effects.primary_writes, shows_names_only=True)
    if name in _SCRIPTED_GREPS and not all(
        _PLAIN_FILE.fullmatch(w.text or "") for w in effects.reads
    ):
        return replace(effects, doubts=("a script that may run what is in a name of a file",))
    if name == "man":
        return replace(effects, is_read_only=all(map(_MAN_WORD.fullmatch, texts)))
    if name == "wget":
        downloads = _list_downloads(words, spec.grammar)
        return replace(effects, primary_writes=(*effects.primary_writes, *downloads))
    if name == "ssh" and len(scan_options(words, spec.grammar)[1]) > 1:
        return replace(effects, has_inline_code=True)  # a command to run on the host
    return effects


def _has_plain_mode(words: Sequence[Word]) -> bool:
    """Whether the options of a `chmod` are known, and its mode has no special bit."""
    texts = [w.text or "" for w in words if not _CHMOD_OPTION.fullmatch(w.text or "")]
    is_known = not any(text.startswith("-") for text in texts[1:])
    return bool(texts) and is_known and bool(_PLAIN_MODE.fullmatch(texts[0]))


def _lists_archive(name: str, texts: Sequence[str]) -> bool:
    """Whether `unzip` or `zipinfo` only shows what an archive contains. Both expand patterns."""
    options = [text for text in texts if text[:1] == "-"]
    is_plain = not any(char in text for text in texts for char in "*?[\\") and all(texts)
    is_listing = name == "zipinfo" or bool(options)
    return is_plain and is_listing and all(map(_ZIP_LISTING[name].fullmatch, options))


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
    options = INLINE_CODE_OPTIONS[base]
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
    if name not in INLINE_CODE_OPTIONS:
        name = strip_version(name)
    return name if name in INLINE_CODE_OPTIONS else None


def _is_inline_code(word: Word, following: Sequence[Word]) -> bool:
    """Whether an argument is an interpreter with code after it: `uv run python -c …`."""
    name = (word.text or "").rpartition("/")[2]
    if name in SHELLS:
        return not following or (following[0].text or "").startswith("-")
    is_known = _find_interpreter(name) is not None
    return is_known and bool(following) and _analyze_interpreter(name, following).has_inline_code


# ------------------------------------------------------------ what a search leaves out


def _parse_rg_filter(options: Sequence[CommandOption]) -> SearchFilter:
    """The filter of `rg`, without the user's own configuration of it."""
    names = [option.name for option in options]
    types = {o.value.text for o in options if o.name in ("-t", "--type") and o.value is not None}
    shows_hidden = (
        not {"--hidden", "-.", "--type-add"}.isdisjoint(names)
        or sum(name in ("-u", "--unrestricted") for name in names) > 1
        or not types <= _PLAIN_TYPES
        or "RIPGREP_CONFIG_PATH" in os.environ
    )
    values = [
        o.value.text or ""
        for o in options
        if o.name in ("-g", "--glob", "--iglob") and o.value is not None
    ]
    globs = tuple(FileGlob(v.removeprefix("!"), v.startswith("!")) for v in values)
    return SearchFilter(not shows_hidden, globs, all(glob.is_excluded for glob in globs))


def _parse_grep_filter(options: Sequence[CommandOption]) -> SearchFilter:
    """The filter of `grep -r`."""
    kinds = {"--exclude": (True, False), "--exclude-dir": (True, True), "--include": (False, False)}
    globs = [
        FileGlob(o.value.text, *kinds[o.name])
        for o in options
        if o.name in kinds and o.value is not None and o.value.text
    ]
    searches_others = not globs or globs[0].is_excluded  # as its manual says
    return SearchFilter(globs=tuple(globs), searches_others=searches_others)


# ------------------------------------------------------------ shell builtins


def _analyze_builtin(name: str, words: Sequence[Word]) -> Effects:
    """The effects of a builtin. What is not known to be harmless is a doubt."""
    if name == "echo":
        return Effects(is_read_only=True, is_print_only=True)
    if name == "printf":
        if words and (words[0].text is None or words[0].text.startswith("-v")):
            return Effects(
                doubts=("printf -v sets a variable, and its subscript can run commands",)
            )
        formats = words[1:2] if words and words[0].text == "--" else words[:1]
        if any(_PRINTF_COUNT.search((w.text or "").replace("%%", "")) for w in formats):
            return Effects(doubts=("printf %n sets a variable",))
        return Effects(is_read_only=True, is_print_only=True)
    if name in ("[", "[[", "test"):
        return _analyze_test(name, words)
    if name in ("cd", "pushd", "popd"):
        return Effects()  # the caller checks the folder
    if name == "command":
        return Effects(is_read_only=True, is_print_only=True)  # only `command -v` is not unwrapped
    if name == "set":
        return _analyze_set(words)
    if name == "read":
        texts = [w.text or "?" for w in words]
        is_safe = all(t in ("-r", "-s") or _VARIABLE_NAME.fullmatch(t) for t in texts)
        return Effects(is_read_only=is_safe, doubts=() if is_safe else (_STATE_DOUBT,))
    return Effects(doubts=(_STATE_DOUBT,))


def _analyze_set(words: Sequence[Word]) -> Effects:
    texts = [w.text or "?" for w in words]
    is_safe = bool(texts)
    for at, text in enumerate(texts):
        if at and re.fullmatch(r"[-+][eux]*o", texts[at - 1]):
            is_safe = is_safe and text in ("pipefail", "errexit", "nounset", "xtrace")
        else:
            is_safe = is_safe and bool(re.fullmatch(r"[-+][eux]*o?", text)) and len(text) > 1
    return Effects(is_read_only=is_safe, doubts=() if is_safe else (_STATE_DOUBT,))


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
    """Whether no value that is not static can be read as an operator of the test."""
    if all(w.text is not None for w in words):
        return True
    words = [w for w in words if w.text not in ("[", "]")]
    if any(w.may_split for w in words):
        return False
    if words and words[0].text == "!":
        words = words[1:]
    # One value; an operator and a value; a value, an operator and a value.
    return len(words) <= 3 and (len(words) < 2 or words[len(words) - 2].text is not None)


def list_values(text: str) -> tuple[str, ...]:
    """The parts of an argument that any program may take for a file: all of it, and what follows
    `-x`, `=`, `@` or `:`, as in `--file=x`, `-fx`, `HEAD:x`, `@x`."""
    joined = text[2:] if text[:1] == "-" and text[1:2] != "-" else ""
    values = [text, joined]
    for mark in "=@:":
        rest = text
        for _ in range(_MAX_MARKS):  # `:0:x` and `-L:name:x` have two
            _, found, rest = rest.partition(mark)
            if not found:
                break
            values.append(rest)
    return tuple(dict.fromkeys(values))
