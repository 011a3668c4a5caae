"""Tests that documents name, as `tests/path.py::test_name`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def list_named_tests(text: str) -> list[str]:
    return sorted({span for span in re.findall(r"`([^`\n]+)`", text) if "::" in span})


def exists(named: str) -> bool:
    path, _, name = named.partition("::")
    return path.startswith("tests/") and name in functions_of(path)


@cache
def functions_of(path: str) -> frozenset[str]:
    """The test functions of a file, by reading it."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, functions))
