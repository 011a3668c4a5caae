"""A Jupyter notebook as text: its cells in order, with what they printed.

Pictures among the outputs are named, not shown. `read` stands above.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MOST_OUTPUT = 4_000

Lines = str | list[str]


class _Output(msgspec.Struct):
    output_type: str = ""
    text: Lines = ""
    data: dict[str, msgspec.Raw] = {}
    ename: str = ""
    evalue: str = ""


class _Cell(msgspec.Struct):
    cell_type: str = "code"
    source: Lines = ""
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell]


def notebook_text(data: bytes) -> str | None:
    """The cells as text; None if this is no notebook that we know."""
    try:
        notebook = msgspec.json.decode(data, type=_Notebook)
    except msgspec.MsgspecError:
        return None
    cells = [_cell(number, cell) for number, cell in enumerate(notebook.cells, start=1)]
    return "\n\n".join(cells) or "The notebook has no cells."


def _cell(number: int, cell: _Cell) -> str:
    head = f"[cell {number}: {cell.cell_type}]\n{_joined(cell.source)}"
    outputs = "\n".join(part for output in cell.outputs for part in _shown(output))
    return f"{head}\n[output of cell {number}]\n{outputs}" if outputs else head


def _shown(output: _Output) -> Iterator[str]:
    if output.ename:
        yield f"{output.ename}: {output.evalue}"
    text = _joined(output.text)
    if not text and "text/plain" in output.data:
        text = _joined(msgspec.json.decode(output.data["text/plain"], type=Lines))
    if text:
        more = len(text) - MOST_OUTPUT
        yield text[:MOST_OUTPUT] + (f"... [{more} more characters]" if more > 0 else "")
    for kind in output.data:
        if kind.startswith("image/"):
            yield f"({kind} picture)"


def _joined(lines: Lines) -> str:
    return lines if isinstance(lines, str) else "".join(lines)
