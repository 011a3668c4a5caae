"""The shape of the source: no import circles, nothing too long to read, plain tools stay plain."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "treadle"
FILES = sorted(SOURCE.rglob("*.py"))

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 80
MAX_CLASS_METHODS = 30
MAX_FOLDER_ENTRIES = 20
OF_PYTHON = {"__init__.py", "__main__.py"}  # every package has the one, a program the other
# pydantic is imported only for a type that is pydantic's.
LIB_IMPORTS = {"treadle", "msgspec", "tree_sitter", "tree_sitter_bash", "httptools", "pydantic"}


def test_modules_do_not_import_each_other_in_a_circle():
    assert find_circles(grimp.build_graph("treadle")) == []


def test_a_circle_is_found():
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")):
        graph.add_import(importer=importer, imported=imported)
    assert find_circles(graph) == [["b", "c"]]


def find_circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Modules that can be reached from themselves, together with those on the way."""
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    groups = {
        tuple(sorted({module} | {other for other in above[module] if module in above[other]}))
        for module in graph.modules
    }
    return sorted([list(group) for group in groups if len(group) > 1])


def test_plain_tools_import_nothing_but_plain_libraries():
    allowed = LIB_IMPORTS | sys.stdlib_module_names
    found = {
        (str(file.relative_to(SOURCE)), name)
        for file in (SOURCE / "lib").rglob("*.py")
        for name in imported_packages(file)
        if name not in allowed
    }
    assert found == set()


def imported_packages(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_files_fit_their_limit():
    lines = {str(file.relative_to(SOURCE)): file.read_text().count("\n") for file in FILES}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_folders_fit_their_limit():
    folders = {file.parent for file in FILES}
    counts = {
        str(folder.relative_to(SOURCE)): len(
            [
                one
                for one in folder.iterdir()
                if (one.suffix == ".py" and one.name not in OF_PYTHON)
                or (one / "__init__.py").exists()
            ]
        )
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > MAX_FOLDER_ENTRIES} == {}


@pytest.mark.parametrize(
    ("kinds", "limit"),
    [((ast.FunctionDef, ast.AsyncFunctionDef), MAX_FUNCTION_LINES), ((ast.ClassDef,), None)],
)
def test_functions_and_classes_fit_their_limit(kinds, limit):
    found = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, kinds):
                size, most = measure(node), limit or MAX_CLASS_METHODS
                if size > most:
                    found[f"{file.relative_to(SOURCE)}: {node.name}"] = size
    assert found == {}


def measure(node: ast.AST) -> int:
    if isinstance(node, ast.ClassDef):
        return sum(isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body)
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return (node.end_lineno or node.lineno) - node.lineno + 1
