"""The page of the settings: the table of apps/settings/settings.py."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.reference_pages.markdown import code, list_codes, make_entry, make_page, make_sentence
from treadle.apps.settings.settings import SETTINGS, Setting, format_value

INTRODUCTION = """\
The settings of `~/.treadle/config.toml`, the file `.treadle/config.toml` of a project, the
environment and the command line. A later source wins, in this order; a project can only narrow a
value, and only in a folder that you trust. `treadle config` shows every setting with its value and
its source, `treadle config NAME VALUE` writes one to your file ([guide](../cli.md#settings)).

    # ~/.treadle/config.toml
    model = "anthropic/sonnet"
    max_cost = 2.5
    max_time = "20m"

    [aliases]
    fast = "anthropic/haiku\""""
TYPES = {
    "text": "text",
    "effort": "a number of tokens, or one of {}",
    "choice": "one of {}",
    "size": "a share such as `60%`, or a number of tokens above 1,000",
    "boolean": "`true` or `false`",
    "network": "`true`, `false`, or a list of hosts such as `*.example.org`",
    "integer": "a whole number, 0 or more",
    "count": "a whole number, 1 or more",
    "number": "a number, 0 or more",
    "seconds": 'a time: seconds, or text such as `"5m"` and `"2h"`',
    "list": "a list of texts",
    "table": "a table",
}
NARROWING = {
    "smaller": "may lower it",
    "earlier": "may choose one further to the left",
    "off": "may switch it off",
    "never": "cannot change it",
}


def write_page() -> str:
    return make_page("Settings", INTRODUCTION, *map(describe, SETTINGS))


def describe(setting: Setting) -> str:
    return make_entry(setting.name, make_sentence(setting.help), list(list_facts(setting)))


def list_facts(setting: Setting) -> Iterator[str]:
    yield f"value: {TYPES[setting.kind].format(list_codes(setting.choices))}"
    value = format_value(setting.default)
    # Without a value there is no limit, or the help says what holds.
    if value == "no limit" and setting.narrowing != "smaller":
        value = "-"
    if value != "-" and "(default: " not in setting.help:
        yield f"default: {value if value == 'no limit' else code(value)}"
    if setting.kind != "table":
        yield f"variable: {code(setting.variable)}"
    if setting.flag is not None:
        yield f"option: {code(f'{setting.option} {setting.flag}'.strip())}"
    if setting.flag_only:
        yield f"only by the option: {list_codes(setting.flag_only)}"
    yield f"a project {NARROWING[setting.narrowing]}"
