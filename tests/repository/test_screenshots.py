"""The pictures of the terminal: each is there, is used, and can be made again."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "scripts/screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.path[:]
    sys.modules[spec.name] = module  # for its annotations
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


SCRIPT = load_script()


def read_text(svg: str) -> str:
    """The text on the picture."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return "\n".join(element.text or "" for element in root.iter()).replace("\xa0", " ")


@pytest.mark.parametrize("scene", SCRIPT.SCENES, ids=lambda scene: scene.name)
def test_each_picture_shows_its_scene_and_is_used(scene):
    svg = (SCRIPT.IMAGES / f"{scene.name}.svg").read_text(encoding="utf-8")
    assert re.sub(r"\s+", "", scene.shows) in re.sub(r"\s+", "", read_text(svg))
    assert scene.title in read_text(svg)
    assert not re.search(r"url\(\"?http|/tmp/", svg)
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert any(f"images/{scene.name}.svg" in page for page in pages)


async def test_a_picture_is_made_by_a_real_run():
    scene = next(scene for scene in SCRIPT.SCENES if scene.name == "turn")
    shown = re.sub(r"\s+", "", read_text(await SCRIPT.render_scene(scene)))
    for text in ("result=+price", "result+=price", "Onelinechanged", "~/project(main)"):
        assert text in shown


def test_an_unknown_picture_is_named(capsys):
    assert SCRIPT.main(["nonsense"]) == 2
    assert "no picture nonsense; there are first-screen" in capsys.readouterr().err
