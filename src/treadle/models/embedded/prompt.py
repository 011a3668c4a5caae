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
from treadle.models.embedded.few_shot import EXAMPLES, FIXED_EXAMPLES, Example, rank_examples
from treadle.models.embedded.small_toolset import SmallTool, format_call, to_compact_json

MAX_RESULT_CHARS = 1_600
MAX_NOTICE_CHARS = 800
MAX_SYSTEM_CHARS = 240  # longer instructions are written for larger models
MAX_NEAREST_EXAMPLES = 3

_WITH_TOOLS = (
    "You work in a folder on the user's computer. Reply with one JSON object: a call, or "
    '{"answer":"…"} once you know what was asked. Calls:\n'
)
_WITHOUT_TOOLS = "Answer briefly and truthfully."


def format_turn(role: str, text: str) -> str:
    """One turn of the chat format, which nothing in the text can forge."""
    safe = text.encode("utf-8", "replace").decode().replace("\0", "").replace("<|", "< |")
    return f"<|im_start|>{role}\n{safe}<|im_end|>\n"


def start_reply(text: str = "") -> str:
    """The start of the model's own turn."""
    return f"<|im_start|>assistant\n{text}"


def build_prefix(tools: Sequence[SmallTool], system: str = "") -> str:
    """The part that is the same for every request with these tools."""
    said = [system.strip()] if 0 < len(system.strip()) <= MAX_SYSTEM_CHARS else []
    if not tools:
        return format_turn("system", "\n".join([*said, _WITHOUT_TOOLS]))
    said.append(_WITH_TOOLS + "\n".join(offer.format_signature() for offer in tools))
    words = {offer.short_name for offer in tools}
    shown = [
        example
        for example in EXAMPLES[:FIXED_EXAMPLES]
        if not example.tool or example.tool in words
    ]
    return format_turn("system", "\n".join(said)) + "".join(_format_example(one) for one in shown)


def _format_example(example: Example) -> str:
    if not example.tool:
        return format_turn("user", example.user_text) + format_turn(
            "assistant", to_compact_json({"answer": example.answer})
        )
    call = to_compact_json({"tool": example.tool, **example.arguments})
    return format_turn("user", example.user_text) + format_turn("assistant", call)


def format_conversation(
    transcript: Transcript, tools: Sequence[SmallTool], *, max_chars: int, guided: bool
) -> str:
    """The history, in at most about `room` characters; its newest part is always whole."""
    shown = [_format_item(item, tools, guided) for item in transcript]
    start = _find_first_kept([len(text) for text in shown], max_chars)
    task = _find_newest_input(transcript)
    if 0 <= task < start:
        return shown[task] + "".join(shown[start:])
    return "".join(shown[start:])


def _find_first_kept(sizes: Sequence[int], max_chars: int) -> int:
    """Where the shown history starts. It moves rarely and far, so that little is read anew."""
    start = total = 0
    for place, size in enumerate(sizes):
        total += size
        if total > max_chars:
            while start < place and total > max_chars // 2:
                total -= sizes[start]
                start += 1
    return start


def _find_newest_input(transcript: Transcript) -> int:
    for place in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[place], UserItem):
            return place
    return -1


def _format_item(item: Item, tools: Sequence[SmallTool], guided: bool) -> str:
    match item:
        case UserItem(text=text):
            return (
                _format_nearest_examples(text, tools) + format_turn("user", text)
                if guided
                else format_turn("user", text)
            )
        case AssistantItem(calls=calls) if calls:
            return format_turn("assistant", "\n".join(format_call(call, tools) for call in calls))
        case AssistantItem(text=text):
            return format_turn("assistant", to_compact_json({"answer": text}) if tools else text)
        case ToolResultItem():
            state = "Error" if item.is_error else "Result"
            return format_turn("user", f"{state}:\n{cut_middle(item.text, MAX_RESULT_CHARS)}")
        case NoticeItem(text=text) | SummaryItem(text=text):
            return format_turn("user", cut_middle(text, MAX_NOTICE_CHARS))


def _format_nearest_examples(user_text: str, tools: Sequence[SmallTool]) -> str:
    """The examples nearest to a request, the nearest one last."""
    words = frozenset(offer.short_name for offer in tools)
    if not words:
        return ""
    near = [
        example
        for score, example in rank_examples(user_text, words)[:MAX_NEAREST_EXAMPLES]
        if score > 0.1
    ]
    return "".join(_format_example(example) for example in reversed(near))


def cut_middle(text: str, max_chars: int) -> str:
    """A long text without its middle."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 2 // 3, max_chars // 3
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"
