"""The steps of the tour: what the user is asked to do, and how the tour sees that it is done.

Pure: a step is decided by facts about the session and the folder, never by what the screen shows.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.usage import Usage
from treadle.models.scripted import Say, Scripted

FILE = "greet.py"
BROKEN = 'name = "world"\nprnt(f"Hello, {name}!")\n'
FIXED = BROKEN.replace("prnt", "print")


class TourFacts(msgspec.Struct, frozen=True):
    """What the tour knows: the file's text, the mode, and how the session stands."""

    text: str = BROKEN
    mode: str = "ask"
    messages: int = 0
    is_busy: bool = False
    has_question: bool = False

    @property
    def is_fixed(self) -> bool:
        return self.text == FIXED


class TourStep(msgspec.Struct, frozen=True):
    title: str
    text: str
    is_done: Callable[[TourFacts], bool]
    short: str = ""  # beside a dialog on a small screen


STEPS: tuple[TourStep, ...] = (
    TourStep(
        "Prompt",
        f'{FILE} has a typing error. Type "fix {FILE}" and press enter. '
        "(ctrl+d leaves the tour at any moment.)",
        lambda facts: facts.messages > 0,
    ),
    TourStep(
        "Approval",
        "The agent reads the file, then it wants to change it and waits for you. Look at the diff, "
        "then press y to allow it once. (If you have denied it, send another message.)",
        lambda facts: facts.is_fixed and not facts.is_busy,
        "y allows it once",
    ),
    TourStep(
        "Undo",
        "The file is changed. Take it back: type /undo and press enter. (/redo would bring it "
        "back again.)",
        lambda facts: not facts.is_fixed,
    ),
    TourStep(
        "Modes",
        "Press shift+tab until the line at the bottom says accept-edits: then files of this folder "
        "are changed without a question.",
        lambda facts: facts.mode == "accept-edits",
    ),
    TourStep(
        "Work without questions",
        "Send another message, such as: fix it again. Nothing is asked this time.",
        lambda facts: facts.is_fixed and not facts.is_busy,
    ),
    TourStep(
        "Rewind",
        "Press esc twice: your messages are listed. Select the first one with the arrow keys and "
        "enter, then b for the conversation and the files.",
        lambda facts: facts.messages == 0 and not facts.is_fixed,
        "first message, enter, b",
    ),
    TourStep(
        "The end",
        "All is as at the beginning. /help lists commands and keys. ctrl+d ends the tour; "
        "`treadle` in a folder of yours starts the work.",
        lambda facts: False,
    ),
)


class Tour:
    """Which step the user is at; steps that are done are left in their order."""

    def __init__(self) -> None:
        self.position = 0

    @property
    def step(self) -> TourStep:
        return STEPS[self.position]

    @property
    def is_finished(self) -> bool:
        return self.position == len(STEPS) - 1

    def update(self, facts: TourFacts) -> bool:
        """Go on if the step is done; whether it was."""
        if not self.step.is_done(facts):
            return False
        self.position += 1
        return True


CARD = ModelCard("tour", window=200_000, input_price=0.0, output_price=0.0)
USED = Usage(input=1_200, output=60, requests=1, cost=0.0)


def make_tour_model() -> Scripted:
    return Scripted(_answer, name="tour", card=CARD)


def _answer(request: ModelRequest) -> Say:
    last = request.transcript[-1]
    if not isinstance(last, ToolResultItem):
        calls = [("read", {"file_path": FILE})]
        return Say("I look at the file first.", calls=calls, usage=USED)
    if last.name == "read" and "prnt" in last.text:
        edit = {"file_path": FILE, "old_string": "prnt(", "new_string": "print("}
        text = "`prnt` is no function of Python. It has to be `print`."
        return Say(text, calls=[("edit", edit)], usage=USED)
    if last.is_error:
        return Say("I did not change the file. Send another message to try again.", usage=USED)
    text = "The file is correct already." if last.name == "read" else "Done: it says hello now."
    return Say(text, usage=USED)
