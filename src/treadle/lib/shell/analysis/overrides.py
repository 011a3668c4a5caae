"""Words that make a program run other code than its first words say, or print secrets.

`make test` runs the tests of this project; `make test SHELL=./x` runs x. Such words name another
project, program, plugin, configuration or host. A prefix rule covers them only if it contains them.
Paths outside of the workspace are found by permissions/, which uses this module.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from treadle.lib.shell.analysis.override_options import (
    ABBREVIATION_PROGRAMS,
    OVERRIDE_OPTIONS,
    OVERRIDE_WORDS,
    PROJECT_OPTIONS,
    RUNNER_WORDS,
    SCRIPT_RUNNERS,
    TARGET_PROGRAMS,
    WORD_OPTION_PROGRAMS,
)
from treadle.lib.shell.analysis.safe_options import (
    MAY_BE_PATH,
    SAFE_PROGRAMS,
    SafeOptions,
    find_safe_options,
)
from treadle.lib.shell.ast import Word, strip_version
from treadle.lib.text.word_set import word_set

_MAX_SUBCOMMANDS = 4  # with the values of options before them: `helm -n prod get`
_ASSIGNMENT = re.compile(r"([\w.%+-]+?)([:+?!]*)=(.*)", re.DOTALL)
_DATA_VARIABLES = re.compile(r"V|VERBOSE|DEBUG|TESTS?|TESTNAME|FILES?|PKGS?|PACKAGES?|CI|Q|K|NAME")
_SWITCH = re.compile(r"\d*|true|false|yes|no|on|off|y|n", re.IGNORECASE)
_PLAIN_VALUE = re.compile(r"(?:\w[\w./,:+@=-]*)?")
_CMAKE_PROGRAM_VARIABLE = re.compile(
    r"COMPILER|LAUNCHER|TOOLCHAIN|COMMAND|PROGRAM|EXECUTABLE|LINKER|PATH|RULE|FLAGS|INCLUDE|"
    r"EMULATOR|TOOL|TIDY|CPPCHECK|CPPLINT|FETCHCONTENT|SHELL|SCRIPT|"
    r"_(?:AR|RANLIB|STRIP|LD|RC|EXE|BIN|DIR|ROOT|URL)$|MAKE$"
)
_CMAKE_LIST = "CMAKE_EXPORT_COMPILE_COMMANDS"  # writes a list, and runs nothing
_SAFE_MAVEN_PROPERTY = re.compile(
    r"-D(?:(?:it\.)?test|\w*[sS]kip[\w.]*|maven\.test\.\w+|failIfNoTests|revision|style\.color|"
    r"checkstyle\.skip|surefire\.\w*[fF]ail\w*)(?:=[\w.#*,$+!-]*)?"
)
_CONTAINER_WORDS = {
    "compose": re.compile(r"^(?:config|convert)$"),
    "build": re.compile(r"://|^git@|^github\.com/"),
}
_REMOTE_REQUIREMENT = re.compile(
    r"(?:-[rcfk]=?|--(?:requirement|constraint|filename|kustomize)=?|.*@\s*)?"
    r"(?:(?:\w+\+)?\w+://|\w+\+\w+:|git@|(?:github|gitlab|bitbucket|gist):|git(?:hub|lab)\.com/)"
)
_REPOSITORY_NAME = re.compile(r"[\w-]+/[\w.-]+(?:#.*)?")  # for npm: of GitHub
_NODE_MANAGERS = word_set("npm pnpm yarn bun npx pnpx bunx")
_SOURCE_PROGRAMS = _NODE_MANAGERS | word_set(
    "pip pip3 pipx uv uvx poetry pdm deno gem helm kubectl oc"
)
_INSTALLING = word_set("install i add ci update pip tool dlx x exec link apply create replace")
_WORKSPACE_OPTIONS = ("-w", "--workspace", "--filter", "-F")

_TRANSFER_PROGRAMS = word_set("curl wget wget2 curlie")
# Their options with a value that is no address.
_TRANSFER_VALUES = word_set(
    "-H --header -d --data --data-raw --data-ascii --data-binary --data-urlencode --json -F --form "
    "--form-string -o --output -X --request -A --user-agent -e --referer -u --user -m --max-time "
    "--connect-timeout --retry --retry-delay --retry-max-time -w --write-out -b --cookie -r "
    "--range --limit-rate --max-redirs --oauth2-bearer --aws-sigv4 -z -C -y -Y -O "
    "--output-document -P --timeout -T --tries -t --wait --method --body-data --post-data"
)
_SERVER_OPTION = re.compile(
    r"-\w*[x:]|--(?:proxy|preproxy|socks|connect-to|resolve|doh-url|dns|url|next|interface|"
    r"haproxy|variable|expand|proto|execute|base|input-file|referer=.*://|use-askpass)"
)


_NOTHING_KNOWN = SafeOptions("")
# Programs for which a word with `@` names a package, a commit or a person.
_AT_NAMES = word_set("npm npx pnpm pnpx yarn bun bunx deno git gh turbo nx lerna brew docker")
# After `--`, or after their first operand, follow the words of a program of the project.
_SCRIPT_SUBCOMMANDS = frozenset({"test", "run", "bench", "t", "r"})
# After how many operands.
_SCRIPT_COMMANDS: dict[tuple[str, ...], int] = {
    **{(name, "run"): 2 for name in ("go", "uv", "poetry", "pdm", "deno", "swift", "docker")},
    **dict.fromkeys((("docker", "create"), ("docker", "exec")), 2),
    ("docker", "compose", "run"): 3, ("docker", "compose", "exec"): 3,
}  # fmt: skip
_MIXED_OPTION_PROGRAMS = word_set("cmake ctest dotnet swift")
_CONTAINER_PROGRAMS = word_set("docker podman nerdctl finch docker-compose podman-compose")
_CONTAINER_GROUPS = word_set("container image builder buildx")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)  # without a value it is one of the host
_HEADER = re.compile(r"(?i:accept|x-github-api-version|if-none-match|time-zone)\s*:.*")
_NETWORK = re.compile(r"(?!host$|container:|ns:)[\w.-]+")
_SAFE_VALUES = {
    ("go", "-ldflags"): re.compile(r"(?:-[sw]|-X [\w./-]+=[\w.+-]*|\s)*"),
    ("go", "-gcflags"): re.compile(r"(?:all=)?(?:-[NlmBS]|\s)*"),
    ("go", "-o"): re.compile(r"(?:[\w./-]*/)?[\w-]+(?:\.(?:exe|test|so|wasm|dll|\d+))*"),
    ("pytest", "-p"): re.compile(r"no:\w+"),
    **dict.fromkeys((("gh", "-X"), ("gh", "--method")), re.compile("GET|HEAD")),
    **dict.fromkeys((("gh", "-H"), ("gh", "--header")), _HEADER),
    **dict.fromkeys((("curl", "-F"), ("curl", "--form")), re.compile(r"[^@<]*")),
    **dict.fromkeys((("curl", "-b"), ("curl", "--cookie")), re.compile(r".+=.*")),
    ("curl", "--data-urlencode"): re.compile(r"[^@]*|[^@=]*=.*"),
    **dict.fromkeys((("docker", o) for o in ("-e", "--env", "--build-arg")), _VARIABLE),
    **dict.fromkeys((("docker", "--network"), ("docker", "--net")), _NETWORK),
}


class Overrides(msgspec.Struct, frozen=True):
    """The words of a command that a prefix rule has to contain."""

    words: tuple[Word, ...] = ()
    # A rule that names only the program (`make:*`) covers these: targets, and other projects.
    targets: tuple[Word, ...] = ()
    # The same: options of a program of which nothing is known.
    unknown: tuple[Word, ...] = ()


def find_overrides(name: str, words: Sequence[Word]) -> Overrides:
    """The overrides in the command `name words…`."""
    name, words = _normalize_name(name), drop_script_words(name, words)
    if name in _CONTAINER_PROGRAMS:
        name, words = "docker", _normalize_container(name, words)
    inner = _find_inner_program(name, words)
    own = words if inner is None else words[:inner]
    check = _CHECKS.get(name)
    projects = (*_find_words(name, own, is_project=True),)
    overrides = (*_find_words(name, own, is_project=False), *_find_subcommands(name, own))
    if name not in _AT_NAMES:  # elsewhere `@x` is a file with more arguments
        overrides += tuple(word for word in own if (word.text or "").startswith("@"))
    unknown = tuple(_list_unknown_options(name, own))
    if name in SAFE_PROGRAMS or name in OVERRIDE_OPTIONS:
        overrides += tuple(w for w in unknown if not any(w is other for other in projects))
        unknown = ()
    found = Overrides(
        (*overrides, *(check(own) if check is not None else ())),
        (*projects, *_list_targets(name, own), *_list_servers(name, own)),
        unknown,
    )
    if inner is None:
        return found
    others = find_overrides(words[inner].text or "", words[inner + 1 :])
    words_of_both = (*found.words, *others.words)
    return Overrides(words_of_both, (*found.targets, *others.targets), others.unknown)


def _list_unknown_options(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """The options that are not known to be harmless, up to the words of a script or a program."""
    texts = [w.text or "" for w in words]
    if name == "node" and "--test" not in texts:
        return  # it runs a script
    is_word = name in WORD_OPTION_PROGRAMS and name not in _MIXED_OPTION_PROGRAMS  # `-DX=1`, `-j4`
    operands = ["--test"] if name == "node" else [t for t in texts if t[:1] not in ("-", "+", "")]
    safe = find_safe_options(name, operands, is_word=is_word)
    if safe is None and name in OVERRIDE_OPTIONS:
        return  # only what is dangerous is known
    safe = safe or _NOTHING_KNOWN
    first = operands[0] if operands else ""
    limits = (_SCRIPT_COMMANDS.get((name, *operands[:count])) for count in (2, 1))
    limit, passed = next(filter(None, limits), 0), 0
    is_value = has_script = False
    for word, text, following in _pair_words(words):
        if is_value:
            is_value = False
            continue
        if text == "--" and name == "docker" and not passed:
            continue
        if text == "--" and name == "gh":  # git gets what follows
            yield word
        if text == "--" and (name != "cargo" or _SCRIPT_SUBCOMMANDS.intersection(operands[:1])):
            return
        if text[:1] == "-" and len(text) > 1 and text != "--":
            if has_script:
                return
            # A value never begins with a dash: pytest loads `-p x` wherever it stands.
            is_value = safe.takes_next(text) and following[:1] != "-"
            if not safe.covers(text, following):
                is_value = _is_safe_value(name, text, following)
                if not is_value:
                    yield word
                is_value = is_value and "=" not in text
        else:
            passed += bool(passed) or text == first
            has_script = name == "node" or 0 < limit <= passed


def _is_safe_value(name: str, text: str, following: str) -> bool:
    """Whether the value of an option that can do more is a harmless one."""
    head, equals, value = text.partition("=")
    pattern = _SAFE_VALUES.get((name, head))
    return pattern is not None and bool(pattern.fullmatch(value if equals else following))


def drop_script_words(name: str, words: Sequence[Word]) -> Sequence[Word]:
    """Without the words that `npm test -- …` passes to the script of the project."""
    texts = [w.text for w in words]
    return words[: texts.index("--")] if name in SCRIPT_RUNNERS and "--" in texts else words


def _normalize_name(name: str) -> str:
    base = name if name.startswith("./") else name.rpartition("/")[2]
    plain = strip_version(base)
    is_known = plain in OVERRIDE_OPTIONS or plain in SAFE_PROGRAMS or plain == "python"
    return plain if is_known else base


def _normalize_container(name: str, words: Sequence[Word]) -> Sequence[Word]:
    """`docker container run` and `docker-compose up` as `docker run` and `docker compose up`."""
    if name.endswith("-compose"):
        return (Word("compose", "compose"), *words)
    return words[1:] if words and words[0].text in _CONTAINER_GROUPS else words


def _find_inner_program(name: str, words: Sequence[Word]) -> int | None:
    """The index of the program that `python -m`, `uv run` or `npx` runs, if it is a known one."""
    texts = [w.text or "" for w in words]
    if name == "python":
        return texts.index("-m") + 1 if "-m" in texts[:3] and texts[-1] != "-m" else None
    if name not in RUNNER_WORDS:
        return None
    runner_words = RUNNER_WORDS[name]
    first = next((at for at, t in enumerate(texts, 1) if t in runner_words), len(texts))
    start = first if runner_words else 0
    names = (_normalize_name(text) for text in texts[start:])
    known = (at for at, n in enumerate(names, start) if n in OVERRIDE_OPTIONS or n in SAFE_PROGRAMS)
    return next(known, None)


def _find_words(name: str, words: Sequence[Word], *, is_project: bool) -> Iterator[Word]:
    options = OVERRIDE_OPTIONS.get(name, {})
    for word, text, following in _pair_words(words):
        if text.startswith(("-", "/")) and any(
            _is_option(name, option, text, following, needs_path)
            for option, needs_path in options.items()
            if (option in PROJECT_OPTIONS) == is_project
        ):
            yield word


def _find_subcommands(name: str, words: Sequence[Word]) -> Iterator[Word]:
    pattern = OVERRIDE_WORDS.get(name)
    operands = [w for w in words if (w.text or "-")[0] != "-"]
    if name not in ("kubectl", "oc"):  # they take any number of kinds: `get pod/a secret/b`
        operands = operands[:_MAX_SUBCOMMANDS]
    return (w for w in operands if pattern is not None and pattern.fullmatch(w.text or ""))


def _pair_words(words: Sequence[Word]) -> Iterator[tuple[Word, str, str]]:
    """Each word with its text and the text of the next word."""
    texts = [*(w.text or "" for w in words), ""]
    return zip(words, texts, texts[1:], strict=False)


def _is_option(name: str, option: str, text: str, following: str, needs_path: bool) -> bool:
    """Whether `text` is the option: with a joined value, abbreviated, or among joined letters."""
    head, equals, value = text.partition("=")
    value = value if equals else following
    if option.startswith("--"):
        named, _, wanted = option.partition("=")
        if wanted:
            return head == named and value.startswith(wanted)
        may_abbreviate = name in ABBREVIATION_PROGRAMS and len(head) > 4
        is_same = head == option or (may_abbreviate and option.startswith(head))
        is_same = is_same or (option.endswith(".") and head.startswith(option))
    elif len(option) > 2 and option[-1] != ":":
        is_same = head in (option, "-" + option)
    elif len(option) > 2 or name in WORD_OPTION_PROGRAMS:
        is_same, value = text.startswith(option), text[len(option) :] or following
    else:
        letters = re.match(r"-[A-Za-z]{0,3}", text)
        is_joined = letters is not None and option[1] in letters[0]
        is_same = not text.startswith("--") and (text[:2] == option or is_joined)
        value = text.partition(option[1])[2] or following
    return is_same and (not needs_path or bool(MAY_BE_PATH.search(value)))


def _list_targets(name: str, words: Sequence[Word]) -> Iterator[Word]:
    if name not in TARGET_PROGRAMS:
        return
    is_value = False
    for word in words:
        text = word.text or ""
        if not is_value and text[:1] not in ("-", "") and not _ASSIGNMENT.fullmatch(text):
            yield word
        is_value = text in TARGET_PROGRAMS[name]


def _list_servers(name: str, words: Sequence[Word]) -> Iterator[Word]:
    """What a program that transfers files connects to beside its first address: a rule that names
    an address is for that one."""
    if name not in _TRANSFER_PROGRAMS:
        return
    before, has_address = "", False
    for word in words:
        text = word.text or ""
        is_address = text[:1] not in ("-", "") and before not in _TRANSFER_VALUES
        if (is_address and has_address) or _SERVER_OPTION.match(text):
            yield word
        has_address, before = has_address or is_address, text


# ---------------------------------------------------------------- programs with their own syntax


def _check_make(words: Sequence[Word]) -> Iterator[Word]:
    """Variables: a recipe is a shell script, and a variable in it may name a program."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text or "")
        if match is None or (word.text or "").startswith("-"):
            continue
        variable, operator, value = match.groups()
        is_data = _DATA_VARIABLES.fullmatch(variable) and _PLAIN_VALUE.fullmatch(value)
        # The value of `V!=x` is a command.
        is_shell = "!" in operator or variable.lstrip(".").startswith(("SHELL", "MAKE"))
        if is_shell or not (is_data or _SWITCH.fullmatch(value)):
            yield word


def _check_cmake(words: Sequence[Word]) -> Iterator[Word]:
    texts = [w.text or "" for w in words]
    if "--" in texts:
        yield from find_overrides("make", words[texts.index("--") + 1 :]).words
    for word, text, following in _pair_words(words):
        if text.startswith("-D"):
            variable, _, value = (text[2:] or following).partition("=")
            name = variable.partition(":")[0].upper()
            is_program = name != _CMAKE_LIST and _CMAKE_PROGRAM_VARIABLE.search(name)
            if is_program or not value.replace("_", "").isalnum():
                yield word


def _check_maven(words: Sequence[Word]) -> Iterator[Word]:
    for word, text, following in _pair_words(words):
        definition = "-D" + following if text in ("-D", "--define") else text
        if definition.startswith("-D") and not _SAFE_MAVEN_PROPERTY.fullmatch(definition):
            yield word


def _check_container(words: Sequence[Word]) -> Iterator[Word]:
    """What prints the values of variables, and a build of files from elsewhere."""
    operands = [w for w in words if (w.text or "-")[0] != "-"]
    pattern = _CONTAINER_WORDS.get(operands[0].text or "") if operands else None
    return (w for w in operands[1:] if pattern is not None and pattern.search(w.text or ""))


def _make_source_check(name: str) -> Callable[[Sequence[Word]], Iterator[Word]]:
    """Packages and scripts from the network that are not names of packages of a registry."""

    def check(words: Sequence[Word]) -> Iterator[Word]:
        operands = [w.text or "" for w in words if (w.text or "-")[0] != "-"]
        kind = operands[0] if operands else ""
        is_installing, previous = kind in _INSTALLING, ""
        for word in words:
            text = word.text or ""
            is_repository = is_installing and name in _NODE_MANAGERS
            is_repository = is_repository and previous not in _WORKSPACE_OPTIONS
            is_repository = is_repository and bool(_REPOSITORY_NAME.fullmatch(text))
            is_source = is_installing or text in operands[:2]
            is_risky = name in _NODE_MANAGERS and text == kind and text in ("x", "set", "plugin")
            if is_risky or is_repository or (is_source and _REMOTE_REQUIREMENT.match(text)):
                yield word
            previous = text

    return check


def _check_gh(words: Sequence[Word]) -> Iterator[Word]:
    """`gh api` of another server."""
    texts = [word.text or "" for word in words]
    return (
        word
        for word, text in zip(words, texts, strict=True)
        if texts[0] == "api" and "//" in text and not text.startswith("https://api.github.com/")
    )


def _check_cargo(words: Sequence[Word]) -> Iterator[Word]:
    """An option of the tests' own program that writes a file."""
    return (word for word in words if (word.text or "").startswith("--logfile"))


def _check_httpie(words: Sequence[Word]) -> Iterator[Word]:
    """Fields with the content of a file: `a@file`, `a=@file`."""
    return (word for word in words if re.search(r"\w[:=]*@", word.text or ""))


def _check_tsc(words: Sequence[Word]) -> Iterator[Word]:
    """`--noEmit false` writes files."""
    pairs = _pair_words(words)
    return (word for word, text, following in pairs if (text, following) == ("--noEmit", "false"))


def _check_python(words: Sequence[Word]) -> Iterator[Word]:
    """Options of Django that load other code."""
    options = ("--settings", "--pythonpath", "--testrunner")
    is_django = bool(words) and (words[0].text or "").endswith("manage.py")
    return (w for w in words if is_django and (w.text or "").startswith(options))


_CHECKS: dict[str, Callable[[Sequence[Word]], Iterator[Word]]] = {
    **dict.fromkeys(("make", "gmake", "xcodebuild", "just", "task", "go-task"), _check_make),
    "cmake": _check_cmake,
    **dict.fromkeys(("mvn", "mvnw", "./mvnw", "mvnd"), _check_maven),
    "docker": _check_container,
    **{name: _make_source_check(name) for name in _SOURCE_PROGRAMS},
    "python": _check_python,
    "cargo": _check_cargo,
    "gh": _check_gh,
    "tsc": _check_tsc,
    **dict.fromkeys(("http", "https", "xh", "xhs"), _check_httpie),
}
