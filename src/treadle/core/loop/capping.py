"""Cutting a tool's output to what a model can bear.

Never inside a character; with a marker that says how much there was, and where the whole of
it can be read on.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import ResultContent, Text, ToolCall, whole
from treadle.core.transcript.items import ToolResultItem


def marker(total: int) -> str:
    return f"... [truncated, {total} chars total]"


def capped(
    call: ToolCall,
    output: ToolOutput,
    limit: int,
    keep: Callable[[str, str], str] | None = None,
) -> ToolResultItem:
    """The answer to a call, at most `limit` characters of text long."""
    parts: tuple[ResultContent, ...]
    if isinstance(output.content, str):
        parts = (Text(whole(output.content)),)
    else:
        parts = tuple([Text(whole(p.text)) if type(p) is Text else p for p in output.content])
    display = whole(output.display) if output.display else ""
    total = sum([len(part.text) for part in parts if type(part) is Text])
    if total <= limit:
        return ToolResultItem(
            call.id,
            call.name,
            parts,
            output.is_error,
            False,
            total,
            display,
            output.full_output,
        )
    kept_at = output.full_output
    if keep is not None and not kept_at:
        kept_at = keep(call.id, "".join(part.text for part in parts if type(part) is Text))
    return ToolResultItem(
        call.id,
        call.name,
        _cut(parts, limit, marker(total) + (f" The whole is in {kept_at}" if kept_at else "")),
        output.is_error,
        True,
        total,
        display,
        kept_at,
    )


def _cut(parts: tuple[ResultContent, ...], limit: int, end: str) -> tuple[ResultContent, ...]:
    cut: list[ResultContent] = []
    left = limit
    for part in parts:
        if type(part) is not Text:
            cut.append(part)
        elif left > 0:
            text = part.text[:left]
            left -= len(part.text)
            cut.append(Text(text + end) if left < 0 else part)
    if left == 0:
        cut.append(Text(end))
    return tuple(cut)
