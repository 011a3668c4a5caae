"""The options of `treadle` itself: one table for the parser, the help and the completions.

Not argparse, which would slow down every start. An option that is a setting takes its help and its
choices from settings.py. Used by headless.py and completions.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.apps.console.console import UsageError
from treadle.apps.settings.settings import SETTINGS, SETTINGS_BY_NAME
from treadle.lib.text.text import suggest

if TYPE_CHECKING:
    import argparse


class CliOption(NamedTuple):
    """`--name VALUE`, or a switch if it has no metavar. With `is_value_optional` an option or the
    end of the line may follow it, and the value is ""."""

    name: str
    metavar: str = ""
    help: str = ""
    short: str = ""
    repeatable: bool = False
    choices: tuple[str, ...] = ()
    is_value_optional: bool = False

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


def _list_setting_options() -> Iterator[CliOption]:
    """Those of the settings that have a flag."""
    for one in SETTINGS:
        if one.flag is not None:
            name, is_list = one.option.removeprefix("--"), one.kind == "list"
            yield CliOption(name, one.flag, one.help, "", is_list, one.choices)


OUTPUT_FORMATS = ("text", "json", "stream-json")
OPTIONS: tuple[CliOption, ...] = (
    CliOption("print", help="run one task, print the answer and exit; reads stdin too", short="p"),
    CliOption("bg", help="let the session work in the background; prints its id (treadle ps)"),
    CliOption("file", "PATH", "attach a file; @PATH in the prompt does the same", repeatable=True),
    CliOption("output-format", "FORMAT", "output format", choices=OUTPUT_FORMATS),
    CliOption("output-schema", "PATH", "JSON schema that the answer must match"),
    CliOption("continue", help="continue the last session of this folder", short="c"),
    CliOption(
        "resume",
        "ID",
        "continue this session; without ID, choose one (at a terminal)",
        short="r",
        is_value_optional=True,
    ),
    CliOption(
        "worktree",
        "NAME",
        "work in a git worktree of this folder, on the branch treadle/NAME",
        short="w",
        is_value_optional=True,
    ),
    CliOption(
        "suspend",
        help="suspend the turn on disk instead of waiting: rate limit, approval, question, budget",
    ),
    CliOption(
        "dry-run",
        help="change nothing: record what would be changed, for `treadle apply` and /apply",
    ),
    CliOption("until", "COMMAND", "continue until this command succeeds"),
    CliOption("allow", "RULE", "allow matching calls, such as 'Bash(npm test)'", repeatable=True),
    CliOption("deny", "RULE", "deny matching calls", repeatable=True),
    *_list_setting_options(),
    CliOption("plain", help="without -p: line by line, without full-screen UI"),
    CliOption("inline", help="the conversation stays in the terminal's scrollback (screen=inline)"),
    CliOption("quiet", help="print only the answer and errors", short="q"),
    CliOption("raw", help="print the answer to a pipe with its escape sequences"),
    CliOption("verbose", help="print progress even if stderr is not a terminal", short="v"),
    CliOption("help", help="print the help", short="h"),
)
RESUME_WITHOUT_ID = (
    "--resume needs the ID of a session {reason}; `treadle sessions list` lists the sessions"
)
OPTIONS_BY_LETTER = {option.short: option for option in OPTIONS if option.short}
OPTIONS_BY_NAME = {option.name: option for option in OPTIONS}
EXCLUSIVE_OPTIONS = (("continue", "resume"), ("quiet", "verbose"), ("plain", "inline"))
OLD_NAMES = {"park": "suspend"}  # of version 0.1; still accepted, not in the help


class CommandLine(NamedTuple):
    """The parsed command line: the prompt, if any, and the options by key."""

    prompt: str | None
    options: dict[str, object]

    def settings(self) -> dict[str, object]:
        given = {name: value for name, value in self.options.items() if name in SETTINGS_BY_NAME}
        return {**given, "screen": "inline"} if self.has("inline") else given

    def text(self, key: str) -> str:
        value = self.options.get(key, "")
        assert isinstance(value, str)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.options.get(key, [])
        assert isinstance(value, list)
        return tuple(value)

    @property
    def program(self) -> str:
        """How the program is started again for the same place."""
        return f"treadle --worktree {self.text('worktree')}" if self.has("worktree") else "treadle"

    def has(self, key: str) -> bool:
        return key in self.options


def parse_command_line(
    arguments: list[str], several: str = "{} prompts given; quote a prompt that has spaces"
) -> CommandLine:
    """Parse the command line; an invalid one raises UsageError. `several` is what it says of more
    than one prompt."""
    words = list(arguments)
    prompts: list[str] = []
    options: dict[str, object] = {}
    while words:
        word = words.pop(0)
        if word == "--":
            prompts += words
            break
        if not _is_option(word):
            prompts.append(word)
            continue
        for option, value in _parse_option(word, words):
            _store_value(option, value, options)
    for one, other in EXCLUSIVE_OPTIONS:
        if one in options and other in options:
            raise UsageError(f"--{one} and --{other} cannot be used together")
    if len(prompts) > 1:
        raise UsageError(several.format(len(prompts)))
    return CommandLine(prompts[0] if prompts else None, options)


def add_background_choices(line: CommandLine, folder: Path) -> CommandLine:
    """With what a resumed session runs in the background, unless the command line says it."""
    from treadle.core.errors import StoreError
    from treadle.sessions.detached.background import read_choices
    from treadle.sessions.library import Library

    try:
        session_dir = Library().find(line.text("resume"), folder=folder, by_words=True)
    except StoreError:
        return line  # said where it is opened
    choices = read_choices(session_dir)
    if choices is None:
        return line
    stored = {**choices.flags, **({"until": choices.until} if choices.until else {})}
    rules = {"allow": [*choices.allow, *line.texts("allow")]}
    rules["deny"] = [*choices.deny, *line.texts("deny")]
    return line._replace(options={**stored, **line.options, **rules})


def _is_option(word: str) -> bool:
    """`- a list item` and `-` are prompts; `-p`, `-qp`, `--model=x` are options."""
    name = word[2:].partition("=")[0] if word.startswith("--") else word[1:]
    return word.startswith("-") and bool(name) and name.replace("-", "").isalnum()


def _parse_option(word: str, rest: list[str]) -> list[tuple[CliOption, str]]:
    if not word.startswith("--"):
        *switches, (last, _) = [(_find_short_option(letter), "") for letter in word[1:]]
        for option, _ in switches:
            if option.metavar:
                raise UsageError(f"-{option.short} needs a value: {option.metavar}")
        return [*switches, (last, _take_value(last, f"-{last.short}", None, rest))]
    name, equals, value = word[2:].partition("=")
    known = OPTIONS_BY_NAME.get(OLD_NAMES.get(name, name))
    if known is None:
        near = suggest(name, OPTIONS_BY_NAME)  # without the dashes, which would all be alike
        hint = f"; did you mean --{near}?" if near else "; see `treadle help options`"
        hint = _describe_peer_option(name) or hint
        raise UsageError(f"unknown option --{name}{hint}")
    return [(known, _take_value(known, f"--{name}", value if equals else None, rest))]


def _find_short_option(letter: str) -> CliOption:
    option = OPTIONS_BY_LETTER.get(letter)
    if option is None:
        hint = _describe_peer_option(letter) or "; see `treadle help options`"
        raise UsageError(f"unknown option -{letter}{hint}")
    return option


def _describe_peer_option(name: str) -> str:
    """What an option of Claude Code or Codex is here; "" if it is none of theirs."""
    from treadle.apps.conversation.commands.peer_names import PEER_OPTIONS

    return f"; {PEER_OPTIONS[name].describe()}" if name in PEER_OPTIONS else ""


def _take_value(option: CliOption, name: str, value: str | None, rest: list[str]) -> str:
    """The value after `=`, if any, else the next word."""
    if not option.metavar and value is not None:
        raise UsageError(f"{name} takes no value")
    if not option.metavar:
        return ""
    has_next = bool(rest) and not _is_option(rest[0]) and rest[0] != "--"
    if value is None and option.is_value_optional and not has_next:
        return ""
    if value is None:
        value = rest.pop(0) if rest else ""
    if not value.strip():
        # A script with an unset variable must not run without its check or its limit.
        raise UsageError(f"{name} needs a value: {option.metavar}")
    return value


def _store_value(option: CliOption, value: str, options: dict[str, object]) -> None:
    if not option.metavar:
        options[option.key] = True
    elif option.repeatable:
        values = options.setdefault(option.key, [])
        assert isinstance(values, list)
        values.append(value)
    else:
        if option.choices and option.key not in SETTINGS_BY_NAME and value not in option.choices:
            choices = ", ".join(option.choices)
            raise UsageError(f"--{option.name} cannot be {value!r}; it must be one of {choices}")
        options[option.key] = value


def add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    """For a command that carries out calls of a session: a push needs the network."""
    for setting in (SETTINGS_BY_NAME["sandbox"], SETTINGS_BY_NAME["network"]):
        if setting.choices:
            parser.add_argument(setting.option, choices=setting.choices, help=setting.help)
        else:
            about = "allow network access in the sandbox"
            parser.add_argument(setting.option, action="store_true", default=None, help=about)


def read_sandbox_options(options: argparse.Namespace) -> dict[str, object]:
    """Those that are given, by the names of the settings."""
    given = {"sandbox": options.sandbox, "network": options.network}
    return {name: value for name, value in given.items() if value is not None}


def parse_flags(
    command: str, arguments: Sequence[str], *, switches: Sequence[str], valued: Sequence[str]
) -> dict[str, str]:
    """The flags of a small command: `--switch`, `--name VALUE` and `--name=VALUE`, by name."""
    flags: dict[str, str] = {}
    words = list(arguments)
    while words:
        word, equals, value = words.pop(0).partition("=")
        name = word.removeprefix("--")
        if name == word or name not in (*switches, *valued) or (name in switches and equals):
            raise UsageError(f"unknown argument {word!r}; see `treadle {command} --help`")
        if name in valued and not equals:
            value = words.pop(0) if words else ""
        if name in valued and not value.strip():
            raise UsageError(f"--{name} needs a value")
        flags[name] = value
    return flags
