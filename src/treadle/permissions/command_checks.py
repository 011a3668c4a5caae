"""What may be wrong with a command line, or with the assignments and the code in a command; and
whether a command only edits.

Looks at words only. Used by `verdict.py`.
"""

import re

from treadle.lib.shell.analysis.programs import list_values
from treadle.lib.shell.ast import Effects, SimpleCommand, Word, get_program_name, strip_version
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import plural
from treadle.lib.text.word_set import word_set
from treadle.permissions.ruleset.command_patterns import CommandPattern

_SAFE_VARIABLES = word_set(
    "LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE TERM COLORTERM COLUMNS "
    "LINES CI PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED NODE_ENV RUST_BACKTRACE "
    "RUST_LOG GOOS GOARCH GOARM CGO_ENABLED DEBUG VERBOSE LOG_LEVEL PORT DEBIAN_FRONTEND "
    "SOURCE_DATE_EPOCH"
)
# A checkpoint is behind what they change or remove inside the folder.
_EDIT_PROGRAMS = word_set(
    "mkdir touch cp mv tee sed rm rmdir unlink chmod ln truncate tar perl sort shuf uniq iconv"
)
REMOVERS = word_set("rm rmdir unlink truncate")
# Names of a line's own: programs of the system read none with small letters but proxies, and none
# of the placeholders.
_LOCAL_VARIABLE = re.compile(r"(?!_$|\w*_proxy$)[a-z_][a-z0-9_]*", re.ASCII)
_PLACEHOLDERS = word_set("FOO BAR BAZ QUX A B C N X Y Z NAME VALUE")
_PROGRAM_NAME = re.compile(r"[\w.+-]+")
_TIME_ZONE = re.compile(r"\w+(?:/[\w+-]+)+")
_MAX_CHARS = 200_000
# A carriage return asks instead: text from other systems contains them.
_CONTROL_CHARS = compile_lazily(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Blanks at which bash does not split, invisible characters, and marks that change direction.
_INVISIBLE_CHARS = compile_lazily(
    r"[\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def describe_inline_code(command: SimpleCommand) -> str:
    """Why a command with code of its own needs a rule that names its program."""
    words = command.argv
    for program, option, module in zip(words, words[1:], words[2:], strict=False):
        is_python = strip_version(get_program_name(program) or "") == "python"
        if is_python and option.text == "-m":
            return f"-m runs the code of the module {module.source}"
    return "code on the command line"


def check_assignments(command: SimpleCommand, pattern: CommandPattern | None) -> str:
    """Why a rule does not cover the assignments before a command; "" if it does."""
    allowed = pattern.assignments if pattern is not None else ()
    for assigned in command.assignments:
        is_allowed = f"{assigned.name}={assigned.value.text}" in allowed
        if not is_allowed and not _is_safe_assignment(command, assigned.name, assigned.value):
            return f"{assigned.name} may change which programs run"
    return ""


def _is_safe_assignment(command: SimpleCommand, name: str, value: Word) -> bool:
    if value.text is None and not value.is_plain_data:
        return False
    if name in _SAFE_VARIABLES or name.startswith("LC_"):
        # Programs look up locales, terminals and time zones as files in a system folder.
        if value.text is None:
            return name != "TZ"  # it may name any file
        is_zone = name == "TZ" and _TIME_ZONE.fullmatch(value.text)
        return bool(is_zone) or not any(c in value.text for c in "/\\")
    if command.argv and not command.effects.is_read_only:
        return False  # a script may run what it finds in any variable
    is_placeholder = bool(command.argv) and name in _PLACEHOLDERS
    return is_placeholder or _LOCAL_VARIABLE.fullmatch(name) is not None


def is_edit(command: SimpleCommand) -> bool:
    """Whether it only changes or removes the files that it names."""
    effects = command.effects
    if command.program not in _EDIT_PROGRAMS or effects.is_opaque:
        return False
    if command.program == "tar":
        return effects.is_recursive  # makes an archive; what one contains is not known
    return command.program not in REMOVERS or not any(w.may_split for w in command.argv)


def find_malformation(text: str) -> str:
    """Why a line is denied whatever it does; "" if it is not."""
    if len(text) > _MAX_CHARS:
        size = plural(len(text), "character")
        return f"the command has {size}; write a script and run that instead"
    if "\0" in text:
        return "a NUL in the command"
    return "control characters in the command" if _CONTROL_CHARS.search(text) else ""


def find_mentioned_program(command: SimpleCommand, forbidden: frozenset[str]) -> str:
    """Why an unknown program may run a forbidden one that is named in its arguments, or ""."""
    effects = command.effects
    if effects != Effects(mentions=effects.mentions, is_opaque=effects.is_opaque):
        return ""  # it is known
    for word in command.argv[1:]:
        for text in list_values(word.text or ""):
            if named := forbidden.intersection(_PROGRAM_NAME.findall(text)):
                return f"it may run {min(named)}, which a rule restricts"
    return ""


def has_invisible_chars(text: str) -> bool:
    """Whether a line is not what it looks like."""
    return "\r" in text or _INVISIBLE_CHARS.search(text) is not None
