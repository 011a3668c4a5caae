"""The start of a weak model's answer: the results of the current turn, as fixed sentences.

The smallest models ignore the result in front of them. So the result starts the answer, and where
an interpretation is needed the model adds one sentence. Pure functions. Used by assist.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.models.embedded import prompt_text as prompt
from treadle.models.embedded.aids import check_output
from treadle.models.embedded.aids.tool_choice import CurrentTurn
from treadle.models.embedded.small_toolset import SmallTool, to_short_call

MAX_NAMES = 24
MAX_READ_CHARS = 900
MAX_LINES = 12
MAX_TITLE_CHARS = 48
MAX_SUMMARY_CHARS = 240

_NOISE = re.compile(
    r"^\W*(total \d+|exit(ed)?\b.*\bcode\b.*|\.{1,2}/?|\.git/?|.* is empty\.?)\W*$", re.IGNORECASE
)

_TEXT_FILE = re.compile(r"(?i)(^|/)(readme[^/]*|[^/]*\.(md|txt|rst))$")
_DECORATION = re.compile(r"^(!?\[.*\]\(.*\)|<.*>|```.*)$")  # badges, images, markup


class AnswerTemplate(msgspec.Struct, frozen=True):
    """The prompt, the start of the answer, and whether the model continues it."""

    prompt: str
    start: str
    continues: bool


def build_answer_template(turn: CurrentTurn, tools: Sequence[SmallTool]) -> AnswerTemplate:
    """The start of the answer to the current turn."""
    for_model: list[str] = []
    sentences: list[str] = []
    continues = False
    for call, result in zip(turn.calls, turn.results, strict=False):
        if result.is_error:
            problem = _first_line(result.text).removeprefix("error: ")
            sentences.append(f"That did not work: {problem}")
            continue
        name, arguments = _match_tool(call, tools)
        shown, sentence, is_open = _summarize_result(name, arguments, result.text)
        for_model.append(shown)
        sentences.append(sentence)
        continues = continues or is_open
    start = " ".join(text for text in sentences if text) or ("" if continues else "It is done.")
    if continues:
        start = f"{start} {_start_sentence(turn.calls, tools)}".strip()
    return AnswerTemplate("\n\n".join([*for_model, turn.user_text]), start, continues)


def describe_changes(turn: CurrentTurn, tools: Sequence[SmallTool]) -> str:
    """What was changed in the turn, as its calls say: a small model reports it wrongly."""
    by_id = {result.call_id: result for result in turn.results}
    sentences: list[str] = []
    for call in turn.calls:
        name, arguments = _match_tool(call, tools)
        if call.id not in by_id or by_id[call.id].is_error:
            continue
        if name == "edit":
            old, new = (" ".join(arguments.get(key, "").split()) for key in ("old", "new"))
            became = f"became `{new}`" if new else "was removed"
            sentences.append(f"In {arguments.get('path')}, `{old}` {became}.")
        elif name == "write":
            sentences.append(f"I wrote {arguments.get('path')}.")
        elif name == "bash":
            sentences.append(f"I ran `{arguments.get('command')}`.")
    return " ".join(sentences) or "It is done."


def _match_tool(call: ToolCall, tools: Sequence[SmallTool]) -> tuple[str, dict[str, str]]:
    return to_short_call(call, tools) or (call.name, {})


def _summarize_result(tool: str, arguments: dict[str, str], text: str) -> tuple[str, str, bool]:
    """The result for the model, a sentence for the user, and whether the model continues it."""
    path = arguments.get("path", "")
    match tool:
        case "ls" | "glob":
            names = _join_names(text)
            where = "here" if path in ("", ".") else f"in {path}"
            if not names:
                return "Files: none", f"There are no files {where}.", False
            return f"Files: {names}", f"The files {where} are {names}.", tool == "ls"
        case "read":
            shown = f"{path}:\n{prompt.cut_middle(text.strip(), MAX_READ_CHARS)}"
            quoted = _summarize_readme(text) if _TEXT_FILE.search(path) else ""
            return shown, f"{path} says: “{quoted}”" if quoted else "", True
        case "edit" | "write":
            return "", f"I changed {path}.", False
        case _:
            lines = [line for line in text.strip().splitlines() if not _NOISE.match(line)]
            if not lines:
                return "", "It printed nothing.", False
            more = f"\n… {len(lines) - MAX_LINES} more" if len(lines) > MAX_LINES else ""
            return "", "\n".join(["This is what I found:", *lines[:MAX_LINES]]) + more, False


def _start_sentence(calls: Sequence[ToolCall], tools: Sequence[SmallTool]) -> str:
    short_calls = [_match_tool(call, tools) for call in calls]
    if any(name == "ls" for name, _ in short_calls):
        return "This folder is"
    path = short_calls[-1][1].get("path", "It")
    return f"{path} is"


def _summarize_readme(text: str) -> str:
    """The title and the first sentence of a README."""
    title = ""
    text = check_output.strip_line_numbers(text)
    for paragraph in re.split(r"\n\s*\n|\n(?=[=-]{3,}\s*$)", text):
        lines = [line.strip().strip("#=-*").strip() for line in paragraph.splitlines()]
        content = " ".join(line for line in lines if line and not _DECORATION.match(line))
        if not content:
            continue
        if not title and len(content) <= MAX_TITLE_CHARS:
            title = content.rstrip(".:")
            continue
        first = re.split(r"(?<=[.!?])\s", content, maxsplit=1)[0]
        return f"{title}: {first}"[:MAX_SUMMARY_CHARS] if title else first[:MAX_SUMMARY_CHARS]
    return title


def _join_names(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    names = [line for line in lines if line and not _NOISE.match(line)]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return (lines[0] if lines else "no reason was given")[:200]
