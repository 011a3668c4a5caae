"""A weak model's answer: the results of the current turn, as fixed sentences.

The smallest models ignore the result in front of them, and invent one. So the engine shows the
result, and the model adds no word. Pure functions. Used by assist.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.core.transcript.content import ToolCall
from treadle.models.embedded.aids import check_output
from treadle.models.embedded.aids.tool_choice import CurrentTurn
from treadle.models.embedded.small_toolset import SmallTool, to_short_call

MAX_NAMES = 24
MAX_FILE_LINES = 40  # of a longer file, its outline is shown
MAX_LINE_CHARS = 200
MAX_LINES = 12
MAX_TITLE_CHARS = 48
MAX_SUMMARY_CHARS = 240

_NOISE = re.compile(
    r"^\W*(total \d+|exit(ed)?\b.*\bcode\b.*|\.{1,2}/?|\.git/?|.* is empty\.?)\W*$", re.IGNORECASE
)

_TEXT_FILE = re.compile(r"(?i)(^|/)(readme[^/]*|[^/]*\.(md|txt|rst))$")
_DEFINITION = re.compile(
    r"^(?: {4}|\t)?(?:(?:async|export|default|pub(?:\(\w+\))?|public|private|protected|static|"
    r"abstract|final) )*"
    r"(?:def|class|function|fn|func|interface|struct|enum|trait|impl|type|module) "
)
_HEADING = re.compile(r"^#{1,6} ")
_DECORATION = re.compile(r"^(!?\[.*\]\(.*\)|<.*>|```.*)$")  # badges, images, markup


def describe_results(turn: CurrentTurn, tools: Sequence[SmallTool]) -> str:
    """What the calls of the turn found or did; "" without a call."""
    sentences: list[str] = []
    for call, result in zip(turn.calls, turn.results, strict=False):
        if result.is_error:
            problem = _first_line(result.text).removeprefix("error: ")
            sentences.append(f"That did not work: {problem}")
            continue
        name, arguments = _match_tool(call, tools)
        is_of_folder = len(turn.calls) > 1
        sentences.append(_describe_result(name, arguments, result.text, is_of_folder))
    return " ".join(sentences)


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


def _describe_result(tool: str, arguments: dict[str, str], text: str, is_of_folder: bool) -> str:
    path = arguments.get("path", "")
    match tool:
        case "ls" | "glob":
            names = _join_names(text)
            where = "here" if path in ("", ".") else f"in {path}"
            return f"The files {where} are {names}." if names else f"There are no files {where}."
        case "read":
            quoted = _summarize_readme(text) if is_of_folder and _TEXT_FILE.search(path) else ""
            return f"{path} says: “{quoted}”" if quoted else _show_file(path, text)
        case "edit" | "write":
            return f"I changed {path}."
        case _:
            lines = [line for line in text.strip().splitlines() if not _NOISE.match(line)]
            if not lines:
                return "It printed nothing."
            pattern = arguments.get("pattern")
            start = f"I searched for `{pattern}`:" if pattern else "This is what I found:"
            return _join_lines([start, *lines], MAX_LINES + 1)


def _show_file(path: str, text: str) -> str:
    """A short file; of a long one its definitions or headings, else its beginning."""
    lines = check_output.strip_line_numbers(text).splitlines()
    if not any(line.strip() for line in lines):
        return f"{path} is empty."
    title = f"{path}:"
    if len(lines) > MAX_FILE_LINES:
        mark = _HEADING if _TEXT_FILE.search(path) else _DEFINITION
        outline = [line for line in lines if mark.match(line)]
        title = f"{path}, {'its outline' if outline else 'its beginning'} ({len(lines)} lines):"
        lines = outline or lines
    shown = _join_lines([line[:MAX_LINE_CHARS] for line in lines], MAX_FILE_LINES)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", shown))])
    return f"{title}\n\n{fence}\n{shown}\n{fence}"


def _join_lines(lines: Sequence[str], most: int) -> str:
    more = [f"… {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([*lines[:most], *more])


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
