"""The model of the tour: reads the file, corrects it, and says so. No key and no network.

It answers any message in the same way, and a denied call with how to go on.
"""

from __future__ import annotations

from treadle.apps.tui.tour.steps import FILE
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.usage import Usage
from treadle.models.scripted import Say, Scripted

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
