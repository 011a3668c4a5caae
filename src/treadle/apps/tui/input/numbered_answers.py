"""What a line answers to a numbered list of options, for the plain frontend (plain.py)."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.conversation.choices import ChoiceOption


def find_option(options: Sequence[ChoiceOption], line: str) -> ChoiceOption | None:
    """The option that a line names: by its number, key, value or label."""
    answer = line.strip().lower()
    if answer.isdigit() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    for option in options:
        if answer and answer in (option.key, option.value.lower(), option.label.lower()):
            return option
    return None


def find_options(options: Sequence[ChoiceOption], line: str) -> list[int]:
    """The positions of the options that a line names, separated by commas; [] if one is unknown."""
    found = [find_option(options, part) for part in line.split(",")]
    return [options.index(option) for option in found if option] if all(found) else []


def parse_call_answer(options: Sequence[ChoiceOption], line: str) -> tuple[str, list[int]] | None:
    """`2`, `y 1,3`, `n all`: what to do with which of the listed calls; None if it is no answer."""
    words = line.strip().lower().split(maxsplit=1)
    action = {"y": "once", "n": "deny"}.get(words[0]) if words else None
    if action is None or len(words) == 1:
        places = find_options(options, line) if words and words[0].isdigit() else []
        return ("open", places) if len(places) == 1 else None
    if words[1] == "all":
        return action, list(range(len(options)))
    numbers = words[1].replace(" ", "")
    places = find_options(options, numbers) if numbers.replace(",", "").isdigit() else []
    return (action, places) if places else None
