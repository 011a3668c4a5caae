"""The table of keys in config.toml: what is wrong is named, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.apps.settings.key_actions import KEY_ACTIONS, check_keys
from treadle.apps.settings.load import load_settings
from treadle.core.errors import ConfigError


def load(*lines: str) -> dict[str, object]:
    file = Path.home() / ".treadle" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(("[keys]", *lines)))
    return load_settings(Path.cwd(), environ={}).keys


def test_the_defaults_are_a_valid_table():
    check_keys(KEY_ACTIONS, str)


def test_keys_are_read_by_action():
    assert load('search = "ctrl+s"', 'todos = ["f2", "alt+t"]', 'copy = "off"') == {
        "search": "ctrl+s",
        "todos": ["f2", "alt+t"],
        "copy": "off",
    }


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('serch = "f5"', "config.toml:3: unknown action 'serch' in [keys]; did you mean 'search'?"),
        ('fly = "f5"', "unknown action 'fly' in [keys]; the actions are mode, history, editor"),
        ('search = "x"', "config.toml:3: the key of search cannot be 'x'; it must be a key such"),
        ('search = "ctrl+c"', "the key of search cannot be 'ctrl+c'"),
        ('search = "enter"', "the key of search cannot be 'enter'"),
        ('search = "cmd+f"', "the key of search cannot be 'cmd+f'"),
        ("search = 5", "the key of search cannot be 5"),
        ('search = ["f5", 6]', "the key of search cannot be 6"),
        ('search = "ctrl+t"', "config.toml:3: ctrl+t is the key of todos and of search"),
        ('todos = "ctrl+f"', "config.toml:3: ctrl+f is the key of search and of todos"),
        ('search = "ctrl+t"', "give one of them another key, or switch it off: todos = 'off'"),
        ('todos = "f9"\nsearch = "f9"', "f9 is the key of search and of todos; give one of them"),
    ],
)
def test_what_is_wrong_is_named(line: str, problem: str):
    with pytest.raises(ConfigError) as raised:
        load("", line)
    assert problem in str(raised.value)


def test_a_key_is_free_if_its_action_is_off_or_has_another():
    assert load('search = "ctrl+t"', 'todos = "off"')
    assert load('search = "ctrl+t"', 'todos = "ctrl+f"')
