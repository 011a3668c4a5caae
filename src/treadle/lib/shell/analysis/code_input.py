"""Whether a command runs what it reads from standard input: `python3 -`, `psql db`, `at now`.

The words of such a command do not say what it does. Looks at words only, and takes a doubtful
command for one of them. Used by permissions/suggestions.py, which suggests no rule for them.
"""

import re
from collections.abc import Sequence

from treadle.lib.shell.analysis.program_table import INLINE_CODE_OPTIONS
from treadle.lib.shell.ast import SHELLS, SimpleCommand, get_program_name, strip_version
from treadle.lib.text.word_set import word_set

# A word, or the value of an option, that stands for standard input or another descriptor.
_INPUT_NAME = re.compile(
    r"(?:--?[\w-]+=|-[A-Za-z])?(?:-|/dev/(?:stdin|fd/\d+)|/proc/(?:self|thread-self|\d+)/fd/\d+)"
)
_DATA_PROGRAMS = word_set("black ruff prettier isort eslint gofmt rustfmt biome git tar curl wget")
_SCHEDULERS = word_set("at batch")
# They read commands from standard input whatever file they open.
_CONSOLES = word_set(
    "psql mysql mariadb sqlite3 duckdb redis-cli mongosh mongo clickhouse-client sqlcmd sqlplus "
    "ed ex vi vim nvim view gdb lldb bc dc jshell ghci irb iex erl ftp sftp telnet nix-shell"
)
_CONSOLE_CODE = re.compile(
    r"-[AtqXxBs]*[cef]|--(?:command|execute|file|eval|batch|query|run)(?:=.*)?|-(?:batch|eval|ex)"
)
# Options before a script that take no value.
_PLAIN_OPTION = re.compile(r"-[uBOqSvwEIb]+|--[\w-]+=.*|--(?:no-warnings|watch|enable-source-maps)")
_LAST_OPTIONS = word_set("--test --version --help -V")  # no script has to follow them
_INTERACTIVE = re.compile(r"-[a-z]*i[a-z]*|--interactive(?:=true)?|--stdin(?:=true)?")
_CONTAINER_PROGRAMS = word_set("docker podman nerdctl finch kubectl oc docker-compose lxc")
# A program that is named after other words runs there.
_CARRIERS = _CONTAINER_PROGRAMS | word_set(
    "ssh uv uvx poetry pdm hatch rye pipenv pixi npx bunx pnpx npm pnpm yarn bundle coverage conda "
    "mamba nix vagrant flatpak distrobox toolbox chroot nsenter unshare"
)
_SEPARATOR = re.compile(r"[\s;|&]+")
_SSH_VALUES = "BbcDEeFIiJLlmOoPpQRSWw"  # letters of its options with a value
_CONSOLE_MODULES = word_set("code asyncio pdb sqlite3")  # of python
_SCRIPT_RUNNERS = SHELLS | (INLINE_CODE_OPTIONS.keys() - word_set("npx npm openssl ansible nix"))


def runs_input(command: SimpleCommand) -> bool:
    """Whether the command, or one that it runs, may take code from its standard input."""
    texts = [word.text or "" for word in command.argv]
    name = (get_program_name(command.argv[0]) or "").rpartition("/")[2] if texts else ""
    return _runs_input(name, texts[1:]) or any(map(runs_input, command.inner))


def _runs_input(name: str, texts: Sequence[str]) -> bool:
    base = name if name in _SCRIPT_RUNNERS else strip_version(name)
    if name in _SCHEDULERS:
        return True
    if name in _CARRIERS:
        if name == "ssh" and _count_ssh_operands(texts) < 2:
            return True  # a shell on the host
        texts = [piece for text in texts for piece in _SEPARATOR.split(text)]
        names = [text.rpartition("/")[2] for text in texts]
        if any(
            inner != "view"  # `npm view`
            and strip_version(inner) in _SCRIPT_RUNNERS
            and _runs_input(inner, texts[at:])
            for at, inner in enumerate(names, 1)
        ):
            return True
    if name not in _DATA_PROGRAMS and any(map(_INPUT_NAME.fullmatch, texts)):
        return True
    if name in _CONTAINER_PROGRAMS:
        return any(map(_INTERACTIVE.fullmatch, texts))
    if name in _CONSOLES:
        operands = [text for text in texts if text[:1] != "-"]
        has_statement = name in ("sqlite3", "duckdb") and len(operands) > 1
        return not has_statement and not any(map(_CONSOLE_CODE.fullmatch, texts))
    return base in _SCRIPT_RUNNERS and not _names_code(base, texts)


def _names_code(base: str, texts: Sequence[str]) -> bool:
    """Whether a script, a module or code is among the words of an interpreter."""
    preloads = ("-r", "--require", "--import") if base != "php" else ("--require",)
    inline = INLINE_CODE_OPTIONS.get(base) or {"-c"}
    letters = {option[1] for option in inline if len(option) == 2 and option[0] == "-"}
    for at, text in enumerate(texts):
        if text[:1] != "-":
            return text not in ("repl", "run") or at + 1 < len(texts)
        if text == "-m":
            return not _CONSOLE_MODULES & {*texts[at + 1 : at + 2]}
        if text.startswith(preloads):
            return False
        is_cluster = text[1:2] != "-" and not letters.isdisjoint(text)
        if text in _LAST_OPTIONS or text.partition("=")[0] in inline or is_cluster:
            return True
        if not _PLAIN_OPTION.fullmatch(text):
            return False
    return False


def _count_ssh_operands(texts: Sequence[str]) -> int:
    count = 0
    is_value = False
    for text in texts:
        is_option = text[:1] == "-" and not is_value and not count
        count += not is_option and not is_value
        is_value = is_option and len(text) == 2 and text[1] in _SSH_VALUES
    return count
