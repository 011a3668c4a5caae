"""How a weak model's answer begins: with what was really found, in the engine's own words.

Left alone, the tiniest models talk past the result in front of them. Here the result itself
opens the answer, and where a judgement is wanted the model goes on from there, one sentence.
Pure functions over the present turn; model.py does the asking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.models.embedded import failure_parsing, prompt
from treadle.models.embedded.small_toolset import SmallTool

MAX_NAMES = 24
MAX_READ_CHARS = 900
MAX_LINES = 12
MAX_TITLE_CHARS = 48
MAX_SUMMARY_CHARS = 240

_NOISE = re.compile(
    r"^\W*(total \d+|exit(ed)?\b.*\bcode\b.*|\.{1,2}/?|\.git/?|.* is empty\.?)\W*$", re.IGNORECASE
)

_TEXT_FILE = re.compile(r"(?i)(^|/)(readme[^/]*|[^/]*\.(md|txt|rst))$")
_DECORATION = re.compile(r"^(!?\[.*\]\(.*\)|<.*>|```.*)$")  # badges, pictures, markup


class AnswerTemplate(msgspec.Struct, frozen=True):
    """What the model reads, how its answer begins, and whether it goes on by itself."""

    prompt: str
    start: str
    continues: bool


def build_answer_template(
    user_text: str,
    calls: Sequence[ToolCall],
    results: Sequence[ToolResultItem],
    tools: Sequence[SmallTool],
) -> AnswerTemplate:
    """The answer's beginning for what was found in this turn."""
    found: list[str] = []
    told: list[str] = []
    goes_on = False
    for call, result in zip(calls, results, strict=False):
        word, given = _match_tool(call, tools)
        if result.is_error:
            told.append(f"That did not work: {_first_line(result.text)}")
            continue
        shown, sentence, invites = _summarize_result(word, given, result.text)
        found.append(shown)
        told.append(sentence)
        goes_on = goes_on or invites
    begun = " ".join(text for text in told if text) or ("" if goes_on else "It is done.")
    if goes_on:
        begun = f"{begun} {_start_sentence(calls, tools)}".strip()
    return AnswerTemplate("\n\n".join([*found, user_text]), begun, goes_on)


def _match_tool(call: ToolCall, tools: Sequence[SmallTool]) -> tuple[str, dict[str, str]]:
    arguments = call.arguments or {}
    for offer in tools:
        if (
            offer.real_name == call.name
            and (given := offer.to_short_arguments(arguments)) is not None
        ):
            return offer.short_name, given
    return call.name, {}


def _summarize_result(tool: str, arguments: dict[str, str], text: str) -> tuple[str, str, bool]:
    """A result for the model to read, a sentence for the person, and whether to go on."""
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
    words = [_match_tool(call, tools) for call in calls]
    if any(word == "ls" for word, _ in words):
        return "This folder is"
    path = words[-1][1].get("path", "It")
    return f"{path} is"


def _summarize_readme(text: str) -> str:
    """The title and the first sentence of a README."""
    title = ""
    for paragraph in re.split(
        r"\n\s*\n|\n(?=[=-]{3,}\s*$)", failure_parsing.strip_line_numbers(text)
    ):
        lines = [line.strip().strip("#=-*").strip() for line in paragraph.splitlines()]
        said = " ".join(line for line in lines if line and not _DECORATION.match(line))
        if not said:
            continue
        if not title and len(said) <= MAX_TITLE_CHARS:
            title = said.rstrip(".:")
            continue
        first = re.split(r"(?<=[.!?])\s", said, maxsplit=1)[0]
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
