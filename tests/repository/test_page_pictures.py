"""The pictures of the page: each is there and is used, and they can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.page_pictures import NAMES, PICTURES, make_pictures
from tests.apps.web.server import needs_chromium

DOCS = PICTURES.parent


def test_each_picture_is_there_and_is_used():
    assert {picture.stem for picture in PICTURES.iterdir()} == set(NAMES)
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert [name for name in NAMES if f"pictures/{name}.png" not in pages] == []


@needs_chromium
@pytest.mark.slow
async def test_the_pictures_can_be_made_at_a_real_server(tmp_path: Path):
    for name in ("home", "made"):
        (tmp_path / name).mkdir()
    await make_pictures(tmp_path / "made", tmp_path / "home")
    assert {picture.stem for picture in (tmp_path / "made").iterdir()} == set(NAMES)
