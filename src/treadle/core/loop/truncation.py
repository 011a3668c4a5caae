"""Cutting a tool's output to what a model can bear.

Never inside a character; with a marker that says how much there was, and where the whole of
it can be read on.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.tool import ToolOutput
from treadle.core.transcript.content import ResultContent, Text, ToolCall, fix_surrogates
from treadle.core.transcript.items import ToolResultItem


def truncation_marker(total: int) -> str:
    return f"... [truncated, {total} chars total]"


def truncate(
    call: ToolCall,
    output: ToolOutput,
    limit: int,
    save_output: Callable[[str, str], str] | None = None,
) -> ToolResultItem:
    """The answer to a call, at most `limit` characters of text long."""
    parts: tuple[ResultContent, ...]
    if isinstance(output.content, str):
        parts = (Text(fix_surrogates(output.content)),)
    else:
        parts = tuple(
            [Text(fix_surrogates(p.text)) if type(p) is Text else p for p in output.content]
        )
    display = fix_surrogates(output.display) if output.display else ""
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
            data=output.data,
        )
    kept_at = output.full_output
    if save_output is not None and not kept_at:
        kept_at = save_output(call.id, "".join(part.text for part in parts if type(part) is Text))
    return ToolResultItem(
        call.id,
        call.name,
        _truncate_parts(
            parts,
            limit,
            truncation_marker(total) + (f" The whole is in {kept_at}" if kept_at else ""),
        ),
        output.is_error,
        True,
        total,
        display,
        kept_at,
        data=output.data,
    )


def _truncate_parts(
    parts: tuple[ResultContent, ...], limit: int, marker: str
) -> tuple[ResultContent, ...]:
    cut: list[ResultContent] = []
    left = limit
    for part in parts:
        if type(part) is not Text:
            cut.append(part)
        elif left > 0:
            text = part.text[:left]
            left -= len(part.text)
            cut.append(Text(text + marker) if left < 0 else part)
    if left == 0:
        cut.append(Text(marker))
    return tuple(cut)
