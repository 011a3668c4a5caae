"""The keys of the terminal that the user can change, by action: the table `[keys]` of config.toml.

    [keys]
    search = "ctrl+s"
    todos = ["ctrl+t", "f2"]
    copy = "off"

A wrong action or key, and a key of two actions, are ConfigErrors with the line. Keys that end,
answer or type something (enter, esc, ctrl+c) stay as they are. Used by load.py; the terminal
(tui/input/key_map.py) translates the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from treadle.core.errors import ConfigError
from treadle.lib.text.text import suggest
from treadle.lib.text.word_set import word_set

OFF = "off"
# The default key of each action.
KEY_ACTIONS: Mapping[str, str] = {
    "mode": "shift+tab",
    "history": "ctrl+r",
    "editor": "ctrl+g",
    "paste": "ctrl+v",
    "unfold": "ctrl+o",
    "search": "ctrl+f",
    "copy": "ctrl+y",
    "todos": "ctrl+t",
    "background": "ctrl+b",
    "page_up": "pageup",
    "page_down": "pagedown",
    "line_up": "ctrl+up",
    "line_down": "ctrl+down",
    "end": "ctrl+end",
    "suspend": "ctrl+z",
    "redraw": "ctrl+l",
}
# As terminals send them: ctrl+i is tab, ctrl+m and ctrl+j are enter, ctrl+h is backspace.
_FIXED = word_set("ctrl+c ctrl+d ctrl+i ctrl+j ctrl+m ctrl+h ctrl+[ ctrl+x")
_NAMES = "up|down|left|right|home|end|pageup|pagedown|insert|delete"
_KEY = re.compile(
    rf"(?:(?:ctrl|alt)\+)(?:shift\+)?(?:[a-z0-9]|{_NAMES})|shift\+(?:tab|{_NAMES})"
    r"|pageup|pagedown|insert|(?:(?:ctrl|alt|shift)\+)?f(?:[1-9]|1[0-9]|2[0-4])"
)
EXPECTED = "a key such as ctrl+s, alt+s or f5, a list of such keys, or off"


def check_keys(table: Mapping[str, Any], find_place: Callable[[str], str]) -> None:
    """ConfigError if the table is wrong; `find_place` gives the file and the line of a name."""
    for action, value in table.items():
        if action not in KEY_ACTIONS:
            near = suggest(action, KEY_ACTIONS)
            hint = f"did you mean {near!r}? " if near else ""
            known = f"{hint}the actions are {', '.join(KEY_ACTIONS)}"
            raise ConfigError(f"{find_place(action)}: unknown action {action!r} in [keys]; {known}")
        given = value if isinstance(value, list) else [value]
        for key in given if value != OFF else ():
            if not isinstance(key, str) or not _KEY.fullmatch(key) or key in _FIXED:
                what = f"the key of {action} cannot be {key!r}; it must be {EXPECTED}"
                raise ConfigError(f"{find_place(action)}: {what}")
    owners: dict[str, str] = {}
    for action, keys in list_keys(table).items():
        for key in keys:
            other = owners.setdefault(key, action)
            if other != action:
                changed, kept = (action, other) if action in table else (other, action)
                raise ConfigError(
                    f"{find_place(changed)}: {key} is the key of {kept} and of {changed}; give one "
                    f"of them another key, or switch it off: {kept} = {OFF!r}"
                )


def list_keys(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The keys of every action, with those that the user changed."""
    keys: dict[str, tuple[str, ...]] = {action: (key,) for action, key in KEY_ACTIONS.items()}
    for action, value in table.items():
        keys[action] = () if value == OFF else (value,) if isinstance(value, str) else tuple(value)
    return keys
