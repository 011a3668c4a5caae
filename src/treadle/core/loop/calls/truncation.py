"""Truncates a tool's output to what fits into a request.

Never inside a character. A note says how long the output was, and where all of it can be read.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import ResultContent, Text, ToolCall
from treadle.core.transcript.items import CallOutcome, ResultNote, ToolResultItem
from treadle.lib.text.text import fix_surrogates


def truncation_marker(total: int) -> str:
    return f"... [truncated, {total} chars total]"


def truncate(
    call: ToolCall,
    output: ToolOutput,
    limit: int,
    save_output: Callable[[str, str], str] | None = None,
    outcome: CallOutcome = "finished",
) -> ToolResultItem:
    """The result of a call, with at most `limit` characters of text."""
    parts: tuple[ResultContent, ...]
    if isinstance(output.content, str):
        text = fix_surrogates(output.content)
        parts, total = (Text(text),), len(text)
    else:
        parts = tuple(
            [Text(fix_surrogates(p.text)) if type(p) is Text else p for p in output.content]
        )
        total = sum([len(part.text) for part in parts if type(part) is Text])
    is_truncated, saved_at = total > limit, output.full_output
    notes: tuple[ResultNote, ...] = ()
    if is_truncated:
        if save_output is not None and not saved_at:
            saved_at = save_output(call.id, "".join(p.text for p in parts if type(p) is Text))
        marker = truncation_marker(total) + (f" The whole is in {saved_at}" if saved_at else "")
        parts, notes = _truncate_parts(parts, limit), (ResultNote("truncated", marker),)
    return ToolResultItem(
        call.id,
        call.name,
        parts,
        output.is_error,
        is_truncated,
        total,
        fix_surrogates(output.display) if output.display else "",
        saved_at,
        outcome,
        output.data,
        notes,
    )


def _truncate_parts(parts: tuple[ResultContent, ...], limit: int) -> tuple[ResultContent, ...]:
    cut: list[ResultContent] = []
    left = limit
    for part in parts:
        if type(part) is not Text:
            cut.append(part)
        elif left > 0:
            cut.append(part if len(part.text) <= left else Text(part.text[:left]))
            left -= len(part.text)
    return tuple(cut)
