"""A Jupyter notebook as text: its cells in order, with their outputs.

Images among the outputs are named, not shown. Used by `read`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MAX_OUTPUT_CHARS = 4_000

NotebookString = str | list[str]


class _Output(msgspec.Struct):
    output_type: str = ""
    text: NotebookString = ""
    data: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""


class _Cell(msgspec.Struct):
    cell_type: str = "code"
    source: NotebookString = ""
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[msgspec.Raw]  # decoded one by one: there may be a million


class NotebookText(msgspec.Struct, frozen=True):
    """The cells as text, and whether that is all of them."""

    text: str
    is_complete: bool


def render_notebook(data: bytes, max_chars: int) -> NotebookText | None:
    """The cells as text of up to `max_chars` characters; None if the format is not known."""
    shown: list[str] = []
    room = max_chars
    try:
        cells = msgspec.json.decode(data, type=_Notebook).cells
        for number, raw in enumerate(cells, start=1):
            cell = _render_cell(number, msgspec.json.decode(raw, type=_Cell))
            shown.append(cell[: max(0, room)])
            room -= len(cell) + 2
            if room < 0:
                break
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if not cells:
        return NotebookText("The notebook has no cells.", is_complete=True)
    is_whole = room >= -2 and len(shown) == len(cells)
    more = f"\n\n(cut in cell {len(shown)} of {len(cells)}; look at the rest with bash, such as jq)"
    return NotebookText("\n\n".join(shown) + ("" if is_whole else more), is_whole)


def _render_cell(number: int, cell: _Cell) -> str:
    head = f"[cell {number}: {cell.cell_type}]\n{_join_lines(cell.source)}"
    outputs = "\n".join(part for output in cell.outputs for part in _render_output(output))
    return f"{head}\n[output of cell {number}]\n{outputs}" if outputs else head


def _render_output(output: _Output) -> Iterator[str]:
    if output.ename:
        yield f"{output.ename}: {output.evalue}"
    text = _join_lines(output.text)
    if not text and "text/plain" in output.data:
        text = _join_lines(msgspec.json.decode(output.data["text/plain"], type=NotebookString))
    if text:
        more = len(text) - MAX_OUTPUT_CHARS
        yield text[:MAX_OUTPUT_CHARS] + (f"... [{more} more characters]" if more > 0 else "")
    for kind in output.data:
        if kind.startswith("image/"):
            yield f"({kind} image)"


def _join_lines(lines: NotebookString) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
