"""Tests that documents link to, as `tests/path.py#test_name`: here `tests/path.py::test_name`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from scripts.docs_site.proofs import list_linked_tests

ROOT = Path(__file__).resolve().parents[2]


def list_named_tests(text: str) -> list[str]:
    return [f"{path}::{name}" for path, name in list_linked_tests(text)]


def exists(named: str) -> bool:
    path, _, name = named.partition("::")
    return path.startswith("tests/") and name in functions_of(path)


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file, by reading it."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))
