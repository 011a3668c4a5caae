"""One of several things that a person can choose."""

from __future__ import annotations

import msgspec


class ChoiceOption(msgspec.Struct, frozen=True):
    """`key` is the letter that takes it at once, where nothing is filtered."""

    value: str
    label: str
    description: str = ""
    key: str = ""
