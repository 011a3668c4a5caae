"""The prompt of a small model: a fixed prefix, then the history, append-only.

    system: the task, the calls it may make            \\  the prefix: the same for every
    worked examples as turns                           /   request, its state is saved once
    the conversation, each item in its first form          grows only at its end
    the newest item

An item is never formatted differently later, so the model's state of the earlier text stays
valid. When the window is full, the oldest half of the items is dropped. Used by model.py.
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
    """One turn of the chat format. The text cannot contain the marks of a turn."""
    safe = text.encode("utf-8", "replace").decode().replace("\0", "").replace("<|", "< |")
    return f"<|im_start|>{role}\n{safe}<|im_end|>\n"


def start_reply(text: str = "") -> str:
    """The start of the model's own turn."""
    return f"<|im_start|>assistant\n{text}"


def build_prefix(tools: Sequence[SmallTool], system: str = "") -> str:
    """The part that is the same for every request with these tools."""
    parts = [system.strip()] if 0 < len(system.strip()) <= MAX_SYSTEM_CHARS else []
    if not tools:
        return format_turn("system", "\n".join([*parts, _WITHOUT_TOOLS]))
    parts.append(_WITH_TOOLS + "\n".join(tool.format_signature() for tool in tools))
    names = {"", *(tool.short_name for tool in tools)}  # "": an answer without a call
    fixed = EXAMPLES[:FIXED_EXAMPLES]
    examples = [_format_example(example) for example in fixed if example.tool in names]
    return format_turn("system", "\n".join(parts)) + "".join(examples)


def _format_example(example: Example) -> str:
    call = {"tool": example.tool, **example.arguments}
    reply = call if example.tool else {"answer": example.answer}
    return format_turn("user", example.user_text) + format_turn("assistant", to_compact_json(reply))


def format_conversation(
    transcript: Transcript, tools: Sequence[SmallTool], *, max_chars: int, guided: bool
) -> str:
    """The history, in about `max_chars` characters at most; its newest part is always whole."""
    texts = [_format_item(item, tools, guided) for item in transcript]
    start = _find_first_kept([len(text) for text in texts], max_chars)
    task = find_last_input(transcript)
    if 0 <= task < start:
        return texts[task] + "".join(texts[start:])
    return "".join(texts[start:])


def _find_first_kept(sizes: Sequence[int], max_chars: int) -> int:
    """The first item that is sent. It moves rarely and far, so that little is read again."""
    start = total = 0
    for position, size in enumerate(sizes):
        total += size
        if total > max_chars:
            while start < position and total > max_chars // 2:
                total -= sizes[start]
                start += 1
    return start


def find_last_input(transcript: Transcript) -> int:
    """The position of the user item that started the current turn; -1 if there is none."""
    for position in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[position], UserItem):
            return position
    return -1


def _format_item(item: Item, tools: Sequence[SmallTool], guided: bool) -> str:
    match item:
        case UserItem(text=text):
            examples = _format_nearest_examples(text, tools) if guided else ""
            return examples + format_turn("user", text)
        case AssistantItem(calls=calls) if calls:
            return format_turn("assistant", "\n".join(format_call(call, tools) for call in calls))
        case AssistantItem(text=text):
            return format_turn("assistant", to_compact_json({"answer": text}) if tools else text)
        case ToolResultItem():
            state = "Error" if item.is_error else "Result"
            return format_turn("user", f"{state}:\n{cut_middle(item.model_text, MAX_RESULT_CHARS)}")
        case NoticeItem(text=text) | SummaryItem(text=text):
            return format_turn("user", cut_middle(text, MAX_NOTICE_CHARS))


def _format_nearest_examples(user_text: str, tools: Sequence[SmallTool]) -> str:
    """The examples most similar to a request, the most similar one last."""
    names = frozenset(tool.short_name for tool in tools)
    if not names:
        return ""
    ranked = rank_examples(user_text, names)[:MAX_NEAREST_EXAMPLES]
    near = [example for score, example in ranked if score > 0.1]
    return "".join(_format_example(example) for example in reversed(near))


def cut_middle(text: str, max_chars: int) -> str:
    """A long text without its middle."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 2 // 3, max_chars // 3
    return f"{text[:head]}\n… {len(text) - head - tail} characters left out …\n{text[-tail:]}"
