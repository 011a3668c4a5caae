"""What a small model is shown: a fixed prefix, then the history, append-only.

    system: what to do, the calls it may make          \\  the prefix: the same for every
    worked examples as turns                           /   request, its state baked once
    the conversation, each item as it was shown first      grows at its end only
    the newest item

An item is never shown differently later, so the state of what was already read stays good.
When the window is full the oldest items go, half of them at once. Above stands model.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.transcript import Transcript
from treadle.models.embedded.examples import BANK, FIRST, Example, nearest
from treadle.models.embedded.toolkit import Offer, compact, spoken

RESULT_CHARS = 1_600
NOTICE_CHARS = 800
SYSTEM_CHARS = 240  # longer instructions are written for larger models
SHOTS = 3

_WITH_TOOLS = (
    "You work in a folder on the user's computer. Reply with one JSON object: a call, or "
    '{"answer":"…"} once you know what was asked. Calls:\n'
)
_WITHOUT_TOOLS = "Answer briefly and truthfully."


def turn(role: str, text: str) -> str:
    """One turn of the chat format, which nothing in the text can forge."""
    safe = text.encode("utf-8", "replace").decode().replace("\0", "").replace("<|", "< |")
    return f"<|im_start|>{role}\n{safe}<|im_end|>\n"


def begin(text: str = "") -> str:
    """The start of the model's own turn."""
    return f"<|im_start|>assistant\n{text}"


def prefix(offers: Sequence[Offer], system: str = "") -> str:
    """The part that is the same for every request with these tools."""
    said = [system.strip()] if 0 < len(system.strip()) <= SYSTEM_CHARS else []
    if not offers:
        return turn("system", "\n".join([*said, _WITHOUT_TOOLS]))
    said.append(_WITH_TOOLS + "\n".join(offer.shape() for offer in offers))
    words = {offer.word for offer in offers}
    shown = [example for example in BANK[:FIRST] if not example.word or example.word in words]
    return turn("system", "\n".join(said)) + "".join(_example(one) for one in shown)


def _example(example: Example) -> str:
    if not example.word:
        return turn("user", example.said) + turn("assistant", compact({"answer": example.answer}))
    call = compact({"tool": example.word, **example.given})
    return turn("user", example.said) + turn("assistant", call)


def conversation(
    transcript: Transcript, offers: Sequence[Offer], *, room: int, guided: bool
) -> str:
    """The history, in at most about `room` characters; its newest part is always whole."""
    shown = [_shown(item, offers, guided) for item in transcript]
    start = _first_kept([len(text) for text in shown], room)
    task = _newest_input(transcript)
    if 0 <= task < start:
        return shown[task] + "".join(shown[start:])
    return "".join(shown[start:])


def _first_kept(sizes: Sequence[int], room: int) -> int:
    """Where the shown history starts. It moves rarely and far, so that little is read anew."""
    start = total = 0
    for place, size in enumerate(sizes):
        total += size
        if total > room:
            while start < place and total > room // 2:
                total -= sizes[start]
                start += 1
    return start


def _newest_input(transcript: Transcript) -> int:
    for place in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[place], UserItem):
            return place
    return -1


def _shown(item: Item, offers: Sequence[Offer], guided: bool) -> str:
    match item:
        case UserItem(text=text):
            return _shots(text, offers) + turn("user", text) if guided else turn("user", text)
        case AssistantItem(calls=calls) if calls:
            return turn("assistant", "\n".join(spoken(call, offers) for call in calls))
        case AssistantItem(text=text):
            return turn("assistant", compact({"answer": text}) if offers else text)
        case ToolResultItem():
            state = "Error" if item.is_error else "Result"
            return turn("user", f"{state}:\n{clipped(item.text, RESULT_CHARS)}")
        case NoticeItem(text=text) | SummaryItem(text=text):
            return turn("user", clipped(text, NOTICE_CHARS))


def _shots(said: str, offers: Sequence[Offer]) -> str:
    """The examples nearest to a request, the nearest one last."""
    words = frozenset(offer.word for offer in offers)
    if not words:
        return ""
    near = [example for score, example in nearest(said, words)[:SHOTS] if score > 0.1]
    return "".join(_example(example) for example in reversed(near))


def clipped(text: str, most: int) -> str:
    """A long text without its middle."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"
