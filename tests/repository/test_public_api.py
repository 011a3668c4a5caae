"""The public API: the names that programs may use, and that docs and examples use only those."""

from __future__ import annotations

import importlib
import os
import pydoc
import re
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("public_api.txt")
MODULES = (
    *("treadle", "treadle.budgets", "treadle.context", "treadle.contracts", "treadle.events"),
    *("treadle.errors", "treadle.evals", "treadle.fleet"),
    *("treadle.apps.agui", "treadle.apps.a2a", "treadle.hooks", "treadle.permissions"),
    *("treadle.models", "treadle.observe", "treadle.sessions", "treadle.testing"),
    *("treadle.tools", "treadle.workspace"),
)


def list_public_names() -> list[str]:
    return sorted(
        f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__
    )


def test_no_public_name_disappears_and_a_new_one_is_recorded():
    """UPDATE_PUBLIC_API=1 records the names. A name that is gone breaks programs of others."""
    names = list_public_names()
    if os.environ.get("UPDATE_PUBLIC_API"):
        RECORD.write_text("\n".join(names) + "\n")
    assert names == RECORD.read_text().split()


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_is_listed_by_dir(module: str):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
    assert set(loaded.__all__) <= set(dir(loaded))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        loaded.nonsense  # noqa: B018 - the access is the test


@pytest.mark.parametrize("module", MODULES)
def test_help_works_for_every_public_value(module: str):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if isinstance(value, type) and issubclass(value, msgspec.Struct):
            assert name in pydoc.render_doc(value)  # it evaluates the annotations


def list_imports(text: str) -> set[tuple[str, str]]:
    found = re.findall(r"from (treadle[\w.]*) import (\([^)]*\)|[^\n#]*)", text)
    return {
        (module, name.split(" as ")[0].strip())
        for module, names in found
        for name in names.strip("()").split(",")
        if name.strip()
    }


def test_docs_and_examples_import_only_public_names():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    public = set(list_public_names())
    wrong = {
        f"{file.relative_to(ROOT)}: from {module} import {name}"
        for file in files
        for module, name in list_imports(file.read_text())
        if f"{module}.{name}" not in public and f"{module}.{name}" not in MODULES
    }
    assert wrong == set()
