"""Translates the user's keys into those that the terminal UI knows, and shows them in its help.

One place for the prompt, the dialogs and the screen: they see the default key of an action. A
default key whose action has another one does nothing. The table is settings/key_actions.py. Used by
app.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from textual import events

from treadle.apps.settings.key_actions import KEY_ACTIONS, list_keys

_SHOWN = {"pageup": "pgup", "pagedown": "pgdn"}


class KeyMap:
    """`table` is the setting `keys`."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._keys = {name: keys for name, keys in list_keys(table).items() if name in table}
        moved = {KEY_ACTIONS[name]: "" for name in self._keys}
        used = {key: KEY_ACTIONS[name] for name, keys in self._keys.items() for key in keys}
        self._targets = {**moved, **used}

    def translate(self, event: events.Key) -> events.Key | None:
        """The event as the UI knows it; None if the key does nothing."""
        target = self._targets.get(event.key, event.key)
        if target == event.key or not target:
            return event if target else None
        known = events.Key(target, None)
        known.time = event.time
        return known

    def show(self, rows: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """The rows of the help with the user's keys; a row of a key that is off is left out."""
        shown = [(self.replace(keys), self.replace(text)) for keys, text in rows]
        return [(keys, text) for keys, text in shown if keys]

    def replace(self, text: str) -> str:
        """A text with the user's keys in place of the default ones."""
        if not self._keys:
            return text
        new = {_name(KEY_ACTIONS[action]): keys for action, keys in self._keys.items()}
        pattern = "|".join(rf"(?<![\w+]){re.escape(key)}(?![\w+])" for key in new)
        found = re.sub(pattern, lambda key: " ".join(map(_name, new[key[0]])), text)
        return " ".join(found.split())


def _name(key: str) -> str:
    return _SHOWN.get(key, key)
