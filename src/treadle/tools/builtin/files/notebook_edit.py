"""`notebook_edit`: replace, insert or delete a cell of a Jupyter notebook.

Everything else in the file stays as it is, outputs too, and its formatting. The same cell edit on
the same file gives the same bytes, so that a change can be verified after a crash.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from treadle.core.errors import ToolError
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import FILE_ALIASES, describe
from treadle.tools.builtin.files.file_changes import (
    FileChangeTool,
    PlannedChange,
    encode_like,
    read_editable_text,
    run_in_thread_if_long,
)
from treadle.tools.builtin.session_memory import CallSite

CellType = Literal["", "code", "markdown", "raw"]
_INDENTS = (1, 2, 4, None, "\t")


class NotebookEditArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: str
    cell: Annotated[int, describe("`insert` puts the new one after it")]
    source: str = ""
    mode: Literal["replace", "insert", "delete"] = "replace"
    cell_type: Annotated[CellType, describe("Kept, or code for a new one")] = ""


class NotebookEditTool(FileChangeTool[NotebookEditArguments]):
    name = "notebook_edit"
    arguments_type = NotebookEditArguments
    aliases = ("edit_notebook", "edit_notebook_cell", "notebook_edit_cell")
    argument_aliases: ClassVar = {
        **FILE_ALIASES, "new_source": "source", "content": "source", "cell_number": "cell",
        "cell_index": "cell", "cell_id": "cell", "edit_mode": "mode", "new_string": "source",
    }  # fmt: skip

    def validate(self, args: NotebookEditArguments) -> str | None:
        if not args.file_path.endswith(".ipynb"):
            return f"{args.file_path} is no notebook (.ipynb)"
        if args.cell < (0 if args.mode == "insert" else 1):
            return "cells are counted from 1"
        return None

    @classmethod
    def write_paths(cls, args: NotebookEditArguments) -> tuple[str, ...]:
        return (args.file_path,)

    @classmethod
    def changed_paths(cls, args: NotebookEditArguments) -> tuple[str, ...]:
        return (args.file_path,)

    async def plan(self, args: NotebookEditArguments, site: CallSite) -> list[PlannedChange]:
        path = site.resolve(args.file_path, for_write=True)
        content, before = await read_editable_text(site, path, args.file_path)
        text = await run_in_thread_if_long(lambda: edit_notebook(before.text, args), before.text)
        data = encode_like(before, text, args.file_path)
        if data == content.data:
            raise ToolError("the cell is like this already; nothing was changed")
        return [PlannedChange(path, site.display_path(path), content, data, before.text, text)]

    def format_confirmation(
        self, args: NotebookEditArguments, changes: Sequence[PlannedChange]
    ) -> str:
        name = changes[0].display_path
        match args.mode:
            case "insert":
                return f"Inserted cell {args.cell + 1} into {name}."
            case "delete":
                return f"Deleted cell {args.cell} of {name}; the cells after it moved up."
        return f"Replaced cell {args.cell} of {name}."


def edit_notebook(text: str, args: NotebookEditArguments) -> str:
    """The text of the notebook after the edit; ToolError says what is wrong with it."""
    try:
        import json

        notebook = json.loads(text)
        cells = notebook["cells"]
        if not all(isinstance(cell, dict) for cell in cells):
            raise TypeError("a cell is no object")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ToolError(f"{args.file_path} cannot be read as a notebook: {error!r}") from error
    style = _find_style(text, notebook)
    if args.cell > len(cells):
        raise ToolError(
            f"{args.file_path} has {plural(len(cells), 'cell')}; there is no cell {args.cell}"
        )
    if args.mode == "delete":
        del cells[args.cell - 1]
    elif args.mode == "insert":
        cells.insert(args.cell, _make_cell(notebook, args))
    else:
        cells[args.cell - 1] = _replace_cell(cells[args.cell - 1], args)
    return _dump(notebook, style)


def _replace_cell(cell: dict[str, Any], args: NotebookEditArguments) -> dict[str, Any]:
    """The cell with another source. A cell of another type has no outputs, or new ones."""
    new = {**cell, "source": _split_source(args.source, cell.get("source"))}
    if args.cell_type and args.cell_type != cell.get("cell_type"):
        new["cell_type"] = args.cell_type
        for name in ("outputs", "execution_count"):
            new.pop(name, None)
        if args.cell_type == "code":
            new |= {"execution_count": None, "outputs": []}
    return new


def _make_cell(notebook: dict[str, Any], args: NotebookEditArguments) -> dict[str, Any]:
    kind = args.cell_type or "code"
    cell: dict[str, Any] = {"cell_type": kind}
    if kind == "code":
        cell["execution_count"] = None
    versions = (notebook.get("nbformat", 4), notebook.get("nbformat_minor", 0))
    if versions >= (4, 5):  # cells have ids since then
        taken = [str(one.get("id", "")) for one in notebook["cells"]]
        given = f"{args.cell}\0{args.source}\0{taken}".encode(errors="replace")
        cell["id"] = hashlib.sha256(given).hexdigest()[:8]
    cell["metadata"] = {}
    if kind == "code":
        cell["outputs"] = []
    return {**cell, "source": _split_source(args.source, [])}


def _split_source(source: str, before: object) -> str | list[str]:
    """As a list of lines, as most notebooks have it, unless this cell had one text."""
    return source if isinstance(before, str) else source.splitlines(keepends=True)


def _find_style(text: str, notebook: object) -> dict[str, Any]:
    """How this file is formatted; the usual way if it is not known."""
    end = "\n" if text.endswith("\n") else ""
    for indent in _INDENTS:
        for ensure_ascii in (False, True):
            style = {"indent": indent, "ensure_ascii": ensure_ascii, "end": end}
            if _dump(notebook, style) == text:
                return style
    return {"indent": 1, "ensure_ascii": False, "end": end}


def _dump(notebook: object, style: dict[str, Any]) -> str:
    options = {name: value for name, value in style.items() if name != "end"}
    import json

    return json.dumps(notebook, **options) + str(style["end"])
