"""One option of a choice. Without Textual, so that the plain frontend can use it."""

from __future__ import annotations

import msgspec


class ChoiceOption(msgspec.Struct, frozen=True):
    """`key` is the letter that selects it, in lists that are not filtered by typing."""

    value: str
    label: str
    description: str = ""
    key: str = ""
