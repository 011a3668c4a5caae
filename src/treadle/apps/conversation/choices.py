"""Values of questions to the user: an option of a list, a question of the model, a plan's answer.

Without Textual, so that every host can use them. commands/answers.py has the questions of commands.
"""

from __future__ import annotations

import msgspec


class ChoiceOption(msgspec.Struct, frozen=True):
    """`key` is the letter that selects it, in lists that are not filtered by typing."""

    value: str
    label: str
    description: str = ""
    key: str = ""


class ModelQuestion(msgspec.Struct, frozen=True):
    """A question from the model to the user, who may also answer with another text.

    `is_multiple`: the user may choose several answers. `plan`: Markdown to show; the question is
    whether the user accepts this plan.
    """

    text: str
    choices: tuple[tuple[str, str], ...] = ()
    is_multiple: bool = False
    plan: str = ""

    def read_answer(self, text: str) -> str:
        """What a typed text answers: the choice that its number or its name stands for, else the
        text itself."""
        typed = text.strip()
        labels = [label for label, _ in self.choices]
        if typed.isdecimal() and 1 <= int(typed) <= len(labels):
            return labels[int(typed) - 1]
        return next((one for one in labels if one.casefold() == typed.casefold()), typed)


class PlanAnswer(msgspec.Struct, frozen=True):
    """What the user decided about a plan: the mode that it is accepted into, and its text, which
    the user may have edited; or without a mode a comment for the model, "" to keep planning."""

    mode: str = ""
    plan: str = ""
    comment: str = ""
