"""The options of `treadle` itself: one table, read by the parser, the help and the completions.

Not argparse, which would cost every start more than it does here. An option of the table that is
a setting takes its kind and its words from settings.py.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.apps.settings import SETTINGS_BY_NAME, suggest_name


class CliOption(NamedTuple):
    """`--name VALUE`, or a switch if it has no metavar; `many` may be given again."""

    name: str
    metavar: str = ""
    help: str = ""
    short: str = ""
    repeatable: bool = False
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


def _option_for_setting(name: str, metavar: str, *, repeatable: bool = False) -> CliOption:
    setting = SETTINGS_BY_NAME[name]
    return CliOption(
        name.replace("_", "-"),
        metavar,
        setting.help,
        repeatable=repeatable,
        choices=setting.choices,
    )


OUTPUT_FORMATS = ("text", "json", "stream-json")
OPTIONS: tuple[CliOption, ...] = (
    CliOption(
        "print", help="do PROMPT, print the answer and leave; reads standard input", short="p"
    ),
    CliOption(
        "file", "PATH", "attach a file or picture; @PATH in PROMPT does too", repeatable=True
    ),
    CliOption("output-format", "FORMAT", "how to print", choices=OUTPUT_FORMATS),
    CliOption("output-schema", "PATH", "the answer has to fit this JSON schema"),
    CliOption("continue", help="go on with the last session of this folder", short="c"),
    CliOption("resume", "ID", "go on with this session", short="r"),
    CliOption("park", help="wait on disk, not in a process: limits, approvals, questions, budgets"),
    CliOption("until", "COMMAND", "work until this command succeeds"),
    _option_for_setting("model", "NAME"),
    _option_for_setting("small_model", "NAME"),
    _option_for_setting("thinking", "HOW"),
    _option_for_setting("permission_mode", "MODE"),
    CliOption(
        "allow", "RULE", "allow without a question, such as 'Bash(npm test)'", repeatable=True
    ),
    CliOption("deny", "RULE", "never allow", repeatable=True),
    _option_for_setting("sandbox", "HOW"),
    CliOption("network", help="let sandboxed commands reach the network"),
    _option_for_setting("max_turns", "N"),
    _option_for_setting("max_cost", "USD"),
    _option_for_setting("max_time", "TIME"),
    _option_for_setting("max_tokens", "N"),
    _option_for_setting("goal_attempts", "N"),
    _option_for_setting("append_system_prompt", "TEXT"),
    _option_for_setting("add_dir", "PATH", repeatable=True),
    CliOption("plain", help="without -p: talk line by line, without a screen"),
    _option_for_setting("theme", "NAME"),
    CliOption("quiet", help="say nothing but the answer and errors", short="q"),
    CliOption(
        "verbose", help="say what happens, also where standard error is no terminal", short="v"
    ),
)
OPTIONS_BY_LETTER = {option.short: option for option in OPTIONS if option.short}
OPTIONS_BY_NAME = {option.name: option for option in OPTIONS}


class UsageError(Exception):
    """The command line cannot be read."""


class CommandLine(NamedTuple):
    """What was typed: the prompt, if any, and the options by key."""

    prompt: str | None
    options: dict[str, object]

    def settings(self) -> dict[str, object]:
        return {name: value for name, value in self.options.items() if name in SETTINGS_BY_NAME}

    def text(self, key: str) -> str:
        value = self.options.get(key, "")
        assert isinstance(value, str)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.options.get(key, [])
        assert isinstance(value, list)
        return tuple(value)

    def has(self, key: str) -> bool:
        return key in self.options


def parse_command_line(arguments: list[str]) -> CommandLine:
    """The command line as values. A UsageError says what is wrong with it."""
    words = list(arguments)
    prompts: list[str] = []
    given: dict[str, object] = {}
    while words:
        word = words.pop(0)
        if word == "--":
            prompts += words
            break
        if not _is_option(word):
            prompts.append(word)
            continue
        for option, value in _parse_option(word, words):
            _store_value(option, value, given)
    if len(prompts) > 1:
        raise UsageError(f"there are {len(prompts)} prompts; put quotes around one")
    return CommandLine(prompts[0] if prompts else None, given)


def _is_option(word: str) -> bool:
    """`- a list item` and `-` are prompts; `-p`, `-qp`, `--model=x` are options."""
    name = word[2:].partition("=")[0] if word.startswith("--") else word[1:]
    return word.startswith("-") and bool(name) and name.replace("-", "").isalnum()


def _parse_option(word: str, rest: list[str]) -> list[tuple[CliOption, str]]:
    if not word.startswith("--"):
        found = [(_find_short_option(letter), "") for letter in word[1:]]
        *switches, (last, _) = found
        for option, _ in switches:
            if option.metavar:
                raise UsageError(f"-{option.short} needs {option.metavar}")
        return [*switches, (last, _take_value(last, f"-{last.short}", "", False, rest))]
    name, equals, value = word[2:].partition("=")
    named = OPTIONS_BY_NAME.get(name)
    if named is None:
        near = suggest_name(f"--{name}", {f"--{other}": 0 for other in OPTIONS_BY_NAME})
        raise UsageError(f"there is no option --{name}{near}")
    return [(named, _take_value(named, f"--{name}", value, bool(equals), rest))]


def _find_short_option(letter: str) -> CliOption:
    option = OPTIONS_BY_LETTER.get(letter)
    if option is None:
        raise UsageError(f"there is no option -{letter}; treadle --help lists them")
    return option


def _take_value(
    option: CliOption, spelling: str, value: str, has_value: bool, rest: list[str]
) -> str:
    if not option.metavar:
        if has_value:
            raise UsageError(f"{spelling} takes no value")
        return ""
    if has_value:
        return value
    if not rest:
        raise UsageError(f"{spelling} needs {option.metavar}")
    return rest.pop(0)


def _store_value(option: CliOption, value: str, given: dict[str, object]) -> None:
    if not option.metavar:
        given[option.key] = True
    elif option.repeatable:
        kept = given.setdefault(option.key, [])
        assert isinstance(kept, list)
        kept.append(value)
    else:
        if option.choices and option.name not in SETTINGS_BY_NAME and value not in option.choices:
            wanted = ", ".join(option.choices)
            raise UsageError(f"--{option.name} is {value!r}; it has to be one of {wanted}")
        given[option.key] = value
