"""What the user's own programs are told, so that nothing of the folder becomes part of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.apps.assembly.hooks import make_hook_environment


def test_only_what_lies_outside_of_the_folder_is_searched(own_place: Path):
    here, library = Path.cwd(), own_place / "library"
    Path("link").symlink_to(here / "src")
    (own_place / "in").symlink_to(here)
    path = f"{here}/src:{library}::.:src:{here}/link:{own_place}/in"
    told = make_hook_environment("db-server", here, {"PYTHONPATH": path, "NODE_PATH": str(here)})
    assert told == {"PYTHONPATH": str(library), "NODE_PATH": "", "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ("--max-old-space-size=4096", True),
        ("--require /opt/trace.js", True),
        ("--require ./a/b.js", False),
        ("--trace-warnings -r evil", False),
        ("--import=./x.mjs", False),
        ("--loader {here}/x.mjs", False),
    ],
)
def test_node_is_not_told_to_load_a_file_of_the_folder(options: str, stays: bool):
    given = {"NODE_OPTIONS": options.format(here=Path.cwd())}
    assert ("NODE_OPTIONS" not in make_hook_environment("npx x", Path.cwd(), given)) is stays


@pytest.mark.parametrize(
    ("line", "is_safe"),
    [
        ("python -m tiny", True),
        ("npx -y nice", True),
        ("python3 ~/hooks/check.py --all", False),  # its modules may lie beside it
        ("sh -c 'python x.py; true'", False),
        ("my.pyramid serve", True),
    ],
)
def test_python_looks_for_modules_where_it_stands_only_beside_a_script(line: str, is_safe: bool):
    assert ("PYTHONSAFEPATH" in make_hook_environment(line, Path.cwd(), {})) is is_safe
