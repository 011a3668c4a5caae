"""The options of `treadle` itself: one table, read by the parser, the help and the completions.

Not argparse, which would cost every start more than it does here. An option of the table that is
a setting takes its kind and its words from settings.py.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.apps.settings import BY_NAME, nearest


class Option(NamedTuple):
    """`--name VALUE`, or a switch if it has no metavar; `many` may be given again."""

    name: str
    metavar: str = ""
    help: str = ""
    short: str = ""
    many: bool = False
    words: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")


def _setting(name: str, metavar: str, *, many: bool = False) -> Option:
    setting = BY_NAME[name]
    return Option(name.replace("_", "-"), metavar, setting.help, many=many, words=setting.words)


FORMATS = ("text", "json", "stream-json")
OPTIONS: tuple[Option, ...] = (
    Option("print", help="do PROMPT, print the answer and leave; reads standard input", short="p"),
    Option("file", "PATH", "attach a file or picture; @PATH in PROMPT does too", many=True),
    Option("output-format", "FORMAT", "how to print", words=FORMATS),
    Option("output-schema", "PATH", "the answer has to fit this JSON schema"),
    Option("continue", help="go on with the last session of this folder", short="c"),
    Option("resume", "ID", "go on with this session", short="r"),
    Option("park", help="wait on disk, not in a process: limits, approvals, questions, budgets"),
    Option("until", "COMMAND", "work until this command succeeds"),
    _setting("model", "NAME"),
    _setting("small_model", "NAME"),
    _setting("thinking", "HOW"),
    _setting("permission_mode", "MODE"),
    Option("allow", "RULE", "allow without a question, such as 'Bash(npm test)'", many=True),
    Option("deny", "RULE", "never allow", many=True),
    _setting("sandbox", "HOW"),
    Option("network", help="let sandboxed commands reach the network"),
    _setting("max_turns", "N"),
    _setting("max_cost", "USD"),
    _setting("max_time", "TIME"),
    _setting("max_tokens", "N"),
    _setting("goal_attempts", "N"),
    _setting("append_system_prompt", "TEXT"),
    _setting("add_dir", "PATH", many=True),
    Option("plain", help="without -p: talk line by line, without a screen"),
    _setting("theme", "NAME"),
    Option("quiet", help="say nothing but the answer and errors", short="q"),
    Option("verbose", help="say what happens, also where standard error is no terminal", short="v"),
)
SHORT = {option.short: option for option in OPTIONS if option.short}
LONG = {option.name: option for option in OPTIONS}


class UsageError(Exception):
    """The command line cannot be read."""


class CommandLine(NamedTuple):
    """What was typed: the prompt, if any, and the options by key."""

    prompt: str | None
    given: dict[str, object]

    def settings(self) -> dict[str, object]:
        return {name: value for name, value in self.given.items() if name in BY_NAME}

    def text(self, key: str) -> str:
        value = self.given.get(key, "")
        assert isinstance(value, str)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.given.get(key, [])
        assert isinstance(value, list)
        return tuple(value)

    def has(self, key: str) -> bool:
        return key in self.given


def read(arguments: list[str]) -> CommandLine:
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
        for option, value in _options(word, words):
            _keep(option, value, given)
    if len(prompts) > 1:
        raise UsageError(f"there are {len(prompts)} prompts; put quotes around one")
    return CommandLine(prompts[0] if prompts else None, given)


def _is_option(word: str) -> bool:
    """`- a list item` and `-` are prompts; `-p`, `-qp`, `--model=x` are options."""
    name = word[2:].partition("=")[0] if word.startswith("--") else word[1:]
    return word.startswith("-") and bool(name) and name.replace("-", "").isalnum()


def _options(word: str, rest: list[str]) -> list[tuple[Option, str]]:
    if not word.startswith("--"):
        found = [(_short(letter), "") for letter in word[1:]]
        *switches, (last, _) = found
        for option, _ in switches:
            if option.metavar:
                raise UsageError(f"-{option.short} needs {option.metavar}")
        return [*switches, (last, _value(last, f"-{last.short}", "", False, rest))]
    name, equals, value = word[2:].partition("=")
    named = LONG.get(name)
    if named is None:
        near = nearest(f"--{name}", {f"--{other}": 0 for other in LONG})
        raise UsageError(f"there is no option --{name}{near}")
    return [(named, _value(named, f"--{name}", value, bool(equals), rest))]


def _short(letter: str) -> Option:
    option = SHORT.get(letter)
    if option is None:
        raise UsageError(f"there is no option -{letter}; treadle --help lists them")
    return option


def _value(option: Option, shown: str, value: str, has_value: bool, rest: list[str]) -> str:
    if not option.metavar:
        if has_value:
            raise UsageError(f"{shown} takes no value")
        return ""
    if has_value:
        return value
    if not rest:
        raise UsageError(f"{shown} needs {option.metavar}")
    return rest.pop(0)


def _keep(option: Option, value: str, given: dict[str, object]) -> None:
    if not option.metavar:
        given[option.key] = True
    elif option.many:
        kept = given.setdefault(option.key, [])
        assert isinstance(kept, list)
        kept.append(value)
    else:
        if option.words and option.name not in BY_NAME and value not in option.words:
            wanted = ", ".join(option.words)
            raise UsageError(f"--{option.name} is {value!r}; it has to be one of {wanted}")
        given[option.key] = value
