"""The table of the settings: `Settings`, where each field has its type, default, help and rules.

Everything else follows from it: the flags of the command line (cli/options.py), the variables, the
checks, `treadle config`, `/config`, and what a project may change. load.py reads the values from
their sources. Not permission rules: those are in permissions/ruleset/rules_file.py.
"""

# Without `from __future__ import annotations`: the table is read from the annotations.

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from treadle.apps.settings.claude_settings import BYPASS_OF_CLAUDE_CODE, PERMISSION_MODES
from treadle.core.errors import ConfigError
from treadle.lib.text.text import suggest

# How a project may change a value: to a smaller number, to an earlier choice, to `false`, or never.
NarrowingRule = Literal["smaller", "earlier", "off", "never"]


class Setting(msgspec.Struct, frozen=True):
    """One setting: `max_turns` in a file, TREADLE_MAX_TURNS, --max-turns.

    `flag` is what the help calls the value of the flag, "" for a switch, None if there is no flag.
    Values of `flag_only` are dangerous: only for one run, never from a file or a variable. `kind`
    is a key of `_KINDS`; like the name, the default and the choices it comes from the field, unless
    it is given.
    """

    help: str
    narrowing: NarrowingRule = "never"
    flag: str | None = None
    kind: str = ""
    choices: tuple[str, ...] = ()
    flag_only: tuple[str, ...] = ()
    name: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        return f"TREADLE_{self.name.upper()}"

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force. `origins` has the source of each value that is not a default.

    Choices that a project may narrow are ordered from narrow to wide.
    """

    # fmt: off
    model: Annotated[str, Setting(
        "model name (see `treadle models`); comma-separated names are fallbacks",
        flag="NAME")] = ""
    small_model: Annotated[str, Setting(
        "model that summarizes long sessions (default: the model)", flag="NAME")] = ""
    tool_summaries: Annotated[bool, Setting(
        "small_model sums up each round of tools in a line", "off")] = False
    assist: Annotated[bool, Setting(
        "the engine helps small embedded models with choices, answers and repairs, and says so",
        "off")] = True
    thinking: Annotated[str, Setting(
        "reasoning effort, also a number of tokens; auto: what the model's maker recommends",
        flag="HOW", kind="effort",
        choices=("auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"))] = "auto"
    compact_at: Annotated[str, Setting(
        "compact when the conversation has this many tokens, or this share of the window: 300000, "
        "60% (default: 85% of the room for it, at most 400,000)", kind="size")] = ""
    permission_mode: Annotated[
        Literal["plan", "ask", "accept-edits", "auto", "bypass"], Setting(
        "which calls run without approval", "earlier", "MODE", flag_only=("bypass",))] = "ask"
    judge: Annotated[str, Setting(
        "in the mode auto, a model that reads your words and each call that would run, and may "
        "turn it into a question: a name, or `small` for small_model", flag="NAME")] = ""
    sandbox: Annotated[Literal["required", "auto", "off"], Setting(
        "sandbox for commands", "earlier", "HOW")] = "auto"
    sandbox_readable: Annotated[tuple[str, ...], Setting(
        "more folders of this machine that commands in the sandbox may read")] = ()
    network: Annotated[bool | tuple[str, ...], Setting(
        "allow network access in the sandbox; in a file or a variable also a list of hosts: "
        "x.org, *.x.org, x.org:8080", "off", "", kind="network")] = False
    command_memory: Annotated[int | None, Setting(
        "memory of a command in MB (default: three quarters of the machine's)", "smaller")] = None
    command_disk: Annotated[int | None, Setting(
        "MB that a command may take of the disk (default: half of what is free)", "smaller")] = None
    max_turns: Annotated[int, Setting("limit of tool rounds per turn", "smaller", "N")] = 200
    max_cost: Annotated[float | None, Setting(
        "limit of the cost of a session, in USD (the default is only for -p and --bg; there the "
        "flag may be auto: by a forecast)",
        "smaller", "USD")] = 5.0
    max_time: Annotated[float | None, Setting(
        "limit of the time of a turn (90, 5m, 2h)", "smaller", "TIME", "seconds")] = None
    max_tokens: Annotated[int | None, Setting(
        "limit of the tokens of a session", "smaller", "N")] = None
    goal_attempts: Annotated[int, Setting(
        "how often the --until command may fail", "smaller", "N")] = 10
    retry_attempts: Annotated[int | None, Setting(
        "attempts of one model call, the first included", kind="count")] = None
    retry_max_wait: Annotated[float | None, Setting(
        "longest wait between two attempts (default: 5m)", kind="seconds")] = None
    connect_timeout: Annotated[float | None, Setting(
        "wait for a connection to the model (default: 15)", kind="seconds")] = None
    first_byte_timeout: Annotated[float | None, Setting(
        "wait for the headers of a reply (default: 5m)", kind="seconds")] = None
    first_content_timeout: Annotated[float | None, Setting(
        "wait for the first content of a reply that sends only pings (default: 10m)",
        kind="seconds")] = None
    idle_timeout: Annotated[float | None, Setting(
        "longest silence inside a reply (default: 2m or 10m)", kind="seconds")] = None
    total_timeout: Annotated[float | None, Setting(
        "longest time of one reply (default: 1h)", kind="seconds")] = None
    web_search: Annotated[str, Setting(
        "web search: `auto` or `provider` for the provider's own, `off`, or the address of a "
        "SearXNG server")] = "auto"
    telemetry: Annotated[bool, Setting("send spans to an OpenTelemetry collector", "off")] = False
    server_wait: Annotated[float, Setting(
        "how long -p waits for MCP servers to start", kind="seconds")] = 10.0
    wake: Annotated[bool, Setting(
        "a background task that ended begins a turn, if the agent is idle", "off")] = True
    background_wait: Annotated[float, Setting(
        "how long -p waits for background agents at its end", kind="seconds")] = 600.0
    cursor_gemini_files: Annotated[bool, Setting(
        "read the instructions of Cursor and Gemini, too (.cursor/rules, .cursorrules, GEMINI.md)",
        "off")] = False
    code_mode: Annotated[bool, Setting(
        "the model may write programs that call its tools; it sees only what they print", "off",
        "")] = False
    memory: Annotated[bool, Setting(
        "the agent may propose lines for its memory, and reads those that you accepted", "off",
        )] = True
    system_prompt: Annotated[str, Setting(
        "text instead of the instructions of the agent; @PATH: that of a file", flag="TEXT")] = ""
    append_system_prompt: Annotated[str, Setting(
        "text added to the system prompt; @PATH: that of a file", flag="TEXT")] = ""
    output_style: Annotated[str, Setting(
        "how the agent speaks: the name of an output style (/output-style)", flag="NAME")] = ""
    add_dir: Annotated[tuple[str, ...], Setting(
        "more folders the agent may work in", flag="PATH")] = ()
    theme: Annotated[Literal["", "dark", "light", "dark-contrast", "light-contrast", "none"],
        Setting("colours of the terminal UI", flag="NAME")] = ""  # empty: detect from the terminal
    notify: Annotated[Literal["off", "bell", "auto"], Setting(
        "when the terminal UI waits or ends: a desktop notification where the terminal has one "
        "(auto), the bell, or nothing")] = "auto"
    reduced_motion: Annotated[Literal["auto", "on", "off"], Setting(
        "nothing moves or blinks in the terminal UI; auto: as the desktop says")] = "auto"
    screen: Annotated[Literal["full", "inline"], Setting(
        "full, or inline: the conversation stays in the terminal's scrollback")] = "full"
    status_line: Annotated[str, Setting(
        "a command whose output is the status line of the terminal UI; it reads JSON; "
        "off: none, also not that of Claude Code's settings")] = ""
    vim_keys: Annotated[bool, Setting("vim keys in the prompt of the terminal UI")] = False
    keys: Annotated[dict[str, Any], Setting("keys of the terminal UI, by action")] = {}
    aliases: Annotated[dict[str, Any], Setting("your own names for models")] = {}
    checkers: Annotated[dict[str, Any], Setting(
        "commands that check changed files, by name or path")] = {}
    language_servers: Annotated[bool, Setting(
        "show the model what its edits make worse, by language servers that are installed",
        "off")] = True
    # fmt: on
    env: dict[str, str] = {}  # for commands; of ~/.claude/settings.json
    origins: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    narrowed: tuple[str, ...] = ()  # those of the notes that say what the managed policy replaced

    @property
    def model_timeouts(self) -> dict[str, float]:
        """The timeouts of model calls that are set, by the names of `models.Timeouts`."""
        names = ("connect", "first_byte", "first_content", "idle", "total")
        values = {name: getattr(self, f"{name}_timeout") for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def format(self, name: str) -> str:
        """The value of a setting as text for the user; without one, the engine has its own."""
        value = getattr(self, name)
        if value is None and name == "command_memory":
            from treadle.workspace.command_limits import get_default_memory

            return str(get_default_memory() >> 20)
        is_limit = SETTINGS_BY_NAME[name].narrowing == "smaller"
        return format_value(value) if value is not None or is_limit else "-"

    def origin(self, name: str) -> str:
        return self.origins.get(name, "default")


_KIND_OF_TYPE = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    Literal: "choice",
    tuple: "list",
    dict: "table",
}


def _read_table() -> Iterator[Setting]:
    """The settings as their fields say."""
    defaults = Settings()
    annotations: dict[str, Any] = Settings.__annotations__
    for name, annotation in annotations.items():
        if not hasattr(annotation, "__metadata__"):
            continue
        [setting], field = annotation.__metadata__, annotation.__origin__
        field = get_args(field)[0] if isinstance(field, UnionType) else field
        choices = tuple(filter(None, get_args(field))) if get_origin(field) is Literal else ()
        yield msgspec.structs.replace(
            setting,
            kind=setting.kind or _KIND_OF_TYPE[get_origin(field) or field],
            choices=setting.choices or choices,
            name=name,
            default=getattr(defaults, name),
        )


SETTINGS = tuple(_read_table())
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}


def is_narrower(setting: Setting, new: Any, old: Any) -> bool:
    match setting.narrowing:
        case "smaller":
            return old is None or new <= old
        case "earlier":
            return setting.choices.index(new) <= setting.choices.index(old)
        case "off":
            if setting.kind == "network" and isinstance(new, list | tuple):
                from treadle.lib.http.hosts import is_within

                return old is True or (old is not False and is_within(new, old))
            return not new
        case _:
            return False


def treadle_home() -> Path:
    """The user's folder for settings, rules and trust: ~/.treadle."""
    return Path.home() / ".treadle"


# ------------------------------------------------------------------ files


def parse_toml(file: Path, text: str) -> dict[str, Any]:
    """The table in a file; a ConfigError names the line that is wrong."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problem = str(error)
        at = re.search(r"\(at line (\d+), column (\d+)\)", problem)
        line = at.group(1) if at else str(text.count("\n") + 1)
        message = re.sub(r" \(at .*\)$", "", problem)
        raise ConfigError(f"{file}:{line}: not TOML: {message}") from error


def find_key_line(text: str, name: str) -> int:
    """The line of a key in the text of a TOML file; 1 if it is not found."""
    spelled = re.escape(name)
    at = re.search(rf"^[ \t]*(\[+[ \t]*)?[\"']?{spelled}[\"']?[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, at.start()) + 1 if at else 1


# ------------------------------------------------------------------ values


def parse_setting(name: str, values: list[str]) -> object:
    """The value of a setting from words, as for the user's file; a list takes several."""
    setting = SETTINGS_BY_NAME[name]
    if setting.kind == "table":
        raise ConfigError(f"{name} is a table; edit {treadle_home() / 'config.toml'} instead")
    if setting.kind != "list" and len(values) != 1:
        raise ConfigError(f"{name} takes one value; quote a value that has spaces")
    if not any(value.strip() for value in values):
        raise ConfigError(f"{name} needs a value; `treadle config {name} --unset` removes it")
    value: object = values if setting.kind == "list" else values[0]
    return check_value(setting, value, "", by_flag=False)


def find_missing_folders(settings: Settings, folder: Path) -> list[str]:
    """The folders of `add_dir` that do not exist, seen from a folder."""
    return [one for one in settings.add_dir if not Path(folder, one).expanduser().is_dir()]


def check_value(setting: Setting, value: object, where: str, *, by_flag: bool) -> object:
    """The value converted to its kind; a ConfigError says what is expected."""
    if setting.name == "permission_mode" and isinstance(value, str):
        value = PERMISSION_MODES.get(value, value)
    convert, expected = _KINDS[setting.kind]
    converted, start = convert(setting, value), f"{where}: " if where else ""
    if converted is None:
        subject = where if by_flag else f"{start}{setting.name}"
        hint = "; here it is bypass" if value == BYPASS_OF_CLAUDE_CODE else ""
        wanted = expected.format(", ".join(setting.choices))
        raise ConfigError(f"{subject} cannot be {value!r}; it must be {wanted}{hint}")
    if not by_flag and converted in setting.flag_only:
        flag = setting.option
        raise ConfigError(f"{start}{converted} can be set only by the flag {flag} {converted}")
    return converted


def _convert_effort(setting: Setting, value: object) -> object:
    text = str(value)
    return text if text in setting.choices or text.isdecimal() else None


def _convert_integer(setting: Setting, value: object) -> object:
    number = _parse_number(value)
    return int(number) if number is not None and number == int(number) else None


def _convert_list(setting: Setting, value: object) -> object:
    values = [value] if isinstance(value, str) else value
    is_list = isinstance(values, list) and all(isinstance(item, str) for item in values)
    return values if is_list else None


def _convert_network(setting: Setting, value: object) -> object:
    """True, False, or the hosts that can be reached; an empty list is False."""
    if isinstance(value, bool) or str(value).lower() in _BOOLEANS:
        return _convert_boolean(setting, value)
    hosts = value.split(",") if isinstance(value, str) else value
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, str) for host in hosts):
        return None
    from treadle.lib.http.hosts import parse_domains

    hosts = tuple(host.strip() for host in hosts)
    try:
        parse_domains(hosts)
    except ValueError:
        return None
    return hosts or False


def _convert_boolean(setting: Setting, value: object) -> object:
    return value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower())


_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
# What converts a value, where None is a wrong one, and what is expected.
_KINDS: Mapping[str, tuple[Callable[[Setting, Any], object], str]] = {
    "text": (lambda setting, value: value if isinstance(value, str) else None, "a string"),
    "choice": (lambda setting, value: value if value in setting.choices else None, "one of {}"),
    "effort": (_convert_effort, "one of {}, or a number of tokens"),
    "size": (
        lambda setting, value: str(value) if parse_size(str(value)) is not None else None,
        "a share such as 60%, or a number of tokens above 1,000",
    ),
    "boolean": (_convert_boolean, "true or false"),
    "network": (_convert_network, "true, false, or a list of hosts such as *.example.org"),
    "integer": (_convert_integer, "a whole number, 0 or more"),
    "count": (
        lambda setting, value: _convert_integer(setting, value) or None,
        "a whole number, 1 or more",
    ),
    "number": (lambda setting, value: _parse_number(value), "a number, 0 or more"),
    "seconds": (
        lambda setting, value: _parse_seconds(value),
        "a time above 0, such as 90, 5m or 2h",
    ),
    "list": (_convert_list, "a list of strings"),
    "table": (lambda setting, value: value if isinstance(value, dict) else None, "a table"),
}


def parse_size(text: str) -> float | None:
    """A share as a number of at most 1, a number of tokens as it is; None if it is neither."""
    number = _parse_number(text.strip().removesuffix("%"))
    if number is None:
        return None
    if text.strip().endswith("%"):
        return number / 100 if 1 <= number <= 100 else None
    return number if number > 1_000 else None


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(str(value).replace("_", ""))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


_SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _parse_seconds(value: object) -> float | None:
    text = str(value).strip() if not isinstance(value, bool) else ""
    unit = text[-1:] if text[-1:] in ("s", "m", "h") else ""
    number = _parse_number(text.removesuffix(unit))
    return None if not number else number * _SECONDS_PER_UNIT[unit]


def format_value(value: object) -> str:
    """A value as text for the user."""
    if value is None:
        return "no limit"
    if value == "" or value == () or value == {}:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def format_unknown_setting(name: str) -> str:
    return f"unknown setting {name!r}{suggest_name(name, SETTINGS_BY_NAME)}"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or "" if no known name is near."""
    near = suggest(name, known)
    return f"; did you mean {near!r}?" if near else ""
