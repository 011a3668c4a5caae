"""Pictures that are made smaller, and cells of notebooks that are edited."""

# ruff: noqa: ASYNC240 - small files of a test

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import failed, hands, plain
from treadle.apps.conversation.attachments import make_attachment
from treadle.core import shrink_image as shrinking
from treadle.core.contracts.policy import PermissionRequest
from treadle.core.errors import MissingExtra
from treadle.core.transcript.content import Image
from treadle.lib.files.media_size import image_size
from treadle.lib.files.media_types import MAX_IMAGE_BYTES


def make_picture(width: int, height: int, kind: str = "PNG") -> bytes:
    pillow = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    pillow.effect_noise((width, height), 90).convert("RGB").save(out, kind, quality=95)
    return out.getvalue()


@pytest.mark.parametrize(("kind", "name"), [("PNG", "read"), ("JPEG", "view_image")])
async def test_a_large_picture_is_made_smaller(folder: Path, kind: str, name: str) -> None:
    (folder / "big").write_bytes(make_picture(3_000, 300, kind))
    async with hands(folder) as agent:
        shown = await agent.one(name, file_path="big")
    picture = next(part for part in shown.content if isinstance(part, Image))
    assert image_size(picture.data) == (2_000, 200)
    assert len(picture.data) <= MAX_IMAGE_BYTES
    assert "made smaller from 3000 x 300 pixels to 2000 x 200" in plain(shown)


async def test_a_picture_that_fits_is_shown_as_it_is(folder: Path) -> None:
    data = make_picture(40, 30)
    (folder / "small.png").write_bytes(data)
    async with hands(folder) as agent:
        shown = await agent.one("read", file_path="small.png")
    assert [part.data for part in shown.content if isinstance(part, Image)] == [data]
    attached = make_attachment("big.png", make_picture(2_400, 10))
    assert isinstance(attached, Image)
    assert image_size(attached.data)[0] == 2_000


async def test_without_pillow_a_picture_that_is_too_large_is_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrinking, "is_installed", lambda extra: False)

    def require(extra: str, addition: str = "") -> None:
        raise MissingExtra(f"smaller pictures need more packages; {addition}", extra="images")

    monkeypatch.setattr(shrinking, "require_extra", require)
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    (folder / "big.png").write_bytes(header + b"\x00\x00\x24\x00" * 2 + b"\x08\x02\x00\x00\x00")
    (folder / "wide.png").write_bytes(header + b"\x00\x00\x0c\x00" * 2 + b"\x08\x02\x00\x00\x00")
    async with hands(folder) as agent:
        big, wide = await agent.do(
            ("read", {"file_path": "big.png"}), ("read", {"file_path": "wide.png"})
        )
    assert "8,000 pixels" in failed(big)
    assert "convert in.png" in big.text
    assert any(isinstance(part, Image) for part in wide.content), "providers take it as it is"


async def test_a_damaged_picture_is_explained(folder: Path) -> None:
    pytest.importorskip("PIL.Image")
    header = (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x24\x00\x00\x00\x24\x00\x08\x02\x00\x00\x00"
    )
    (folder / "bad.png").write_bytes(header + b"nonsense")
    async with hands(folder) as agent:
        assert "bad.png cannot be shown" in failed(await agent.one("read", file_path="bad.png"))


# ------------------------------------------------------------------ notebooks


def notebook(minor: int = 5) -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    code = {"execution_count": 3, "metadata": {"tags": ["é"]}, "outputs": [output]}
    return {
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title\n", "text"]},
            {"cell_type": "code", "id": "b", **code, "source": ["print(1)"]},
        ],
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": minor,
    }


@pytest.fixture
def book(folder: Path) -> Path:
    path = folder / "n.ipynb"
    path.write_text(json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


async def test_a_cell_is_replaced_and_the_rest_of_the_file_stays(folder: Path, book: Path) -> None:
    before = book.read_text("utf-8")
    async with hands(folder) as agent:
        done = await agent.one("notebook_edit", file_path="n.ipynb", cell=2, source="x = 1\nx")
    assert plain(done) == "Replaced cell 2 of n.ipynb."
    assert '-    "print(1)"' in done.display
    after = book.read_text("utf-8")
    assert after == before.replace('    "print(1)"', '    "x = 1\\n",\n    "x"'), "outputs are kept"


async def test_cells_are_inserted_and_deleted(folder: Path, book: Path) -> None:
    async with hands(folder) as agent:
        first, last, gone = await agent.do(
            ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_number": 0, "new_source": "1",
                              "edit_mode": "insert", "cell_type": "markdown"}),
            ("notebook_edit", {"file_path": "n.ipynb", "cell": 3, "source": "2", "mode": "insert"}),
            ("notebook_edit", {"file_path": "n.ipynb", "cell": 2, "mode": "delete"}),
        )  # fmt: skip
    assert plain(first).startswith("Inserted cell 1 into n.ipynb.")
    assert plain(last) == "Inserted cell 4 into n.ipynb."
    assert plain(gone).startswith("Deleted cell 2")
    cells = json.loads(book.read_text("utf-8"))["cells"]
    assert [(one["cell_type"], one["source"]) for one in cells] == [
        ("markdown", ["1"]), ("code", ["print(1)"]), ("code", ["2"]),
    ]  # fmt: skip
    assert len({one["id"] for one in cells}) == 3
    assert cells[2] | {"id": ""} == {
        "cell_type": "code", "execution_count": None, "id": "", "metadata": {}, "outputs": [],
        "source": ["2"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cell": 9, "source": "x"}, "has 2 cells; there is no cell 9"),
        ({"cell": 0, "source": "x"}, "cells are counted from 1"),
        ({"cell": 2, "source": "print(1)"}, "nothing was changed"),
        ({"cell": 1, "mode": "append"}, 'one of "delete", "insert", "replace"'),
        ({"cell": 1, "file_path": "a.py"}, "no notebook"),
    ],
)
async def test_a_cell_edit_that_cannot_be_made_says_why(
    folder: Path, book: Path, arguments: dict[str, Any], words: str
) -> None:
    before = book.read_bytes()
    async with hands(folder) as agent:
        refused = await agent.one("notebook_edit", **{"file_path": "n.ipynb", **arguments})
    assert words in failed(refused)
    assert book.read_bytes() == before


async def test_a_broken_notebook_is_not_touched(folder: Path) -> None:
    (folder / "n.ipynb").write_text('{"cells": [1]}')
    async with hands(folder) as agent:
        refused = await agent.one("notebook_edit", file_path="n.ipynb", cell=1, source="x")
    assert "cannot be read as a notebook" in failed(refused)


async def test_the_policy_judges_the_file_of_a_notebook(folder: Path, book: Path) -> None:
    asked: list[PermissionRequest] = []

    class Witness:
        async def decide(self, request: PermissionRequest) -> Any:
            from treadle.core.contracts.policy import Deny

            asked.append(request)
            return Deny("no")

        async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
            raise AssertionError

    async with hands(folder, agent={"policy": Witness()}) as agent:
        await agent.one("notebook_edit", file_path="n.ipynb", cell=1, mode="delete")
    assert [(one.path, one.mode) for one in asked[0].access.files] == [("n.ipynb", "write")]
