"""The checks of names and texts find what is planted, and only that."""

from __future__ import annotations

import pytest

from scripts.check_names import (
    GERUND_MODULES,
    find_gerund_modules,
    find_idioms,
    find_shared_names,
    find_stale_modules,
)

SHARED = {
    "two classes": ("class Place: ...", "class Place: ..."),
    "a class and an alias": ("class Place: ...", "Place = int | str"),
    "two aliases": ("Place = Literal['a']", "Place: TypeAlias = int | str"),
    "one for type checkers only": ("class Place: ...", "if checking:\n    Place = int"),
    "a fallback of an import": (
        "class Place: ...",
        "try:\n    import x\nexcept ImportError:\n    class Place: ...",
    ),
}
DISTINCT = {
    "private classes": ("class _Place: ...", "class _Place: ..."),
    "an import": ("class Place: ...", "from a import Place"),
    "constants": ("LIMIT = max(1, 2)", "LIMIT = 2"),
    "nested classes": ("class A:\n    class Inner: ...", "class B:\n    class Inner: ..."),
    "twice in one module": ("if x:\n    Place = int\nelse:\n    Place = str", ""),
}
IDIOMS = [
    "It runs behind walls.",
    "The loop goes on with the next call.",
    "Going on\nwith the session.",
    "not done, for want of somebody's approval",
    "Whoever calls it",
    "'foo' is nowhere",
    "a link that leads out of the folder",
    "The house",
    "The host gets the word.",
    "Nobody has spoken.",
    "What somebody decided",
]
PLAIN = [
    "It runs in the sandbox; wall time is measured.",
    "The loop continues with the next call, and so on.",
    "The symlink leaves the folder.",
    "needs approval",
    "`test_an_approval_that_nobody_can_give_waits`",  # the name of a test is an identifier
]


@pytest.mark.parametrize("pair", SHARED.values(), ids=SHARED.keys())
def test_a_name_that_two_modules_define_is_found(pair: tuple[str, str]):
    [line] = find_shared_names({"a.py": pair[0], "b.py": pair[1]})
    assert "Place" in line
    assert "a.py:1" in line
    assert "b.py" in line


@pytest.mark.parametrize("pair", DISTINCT.values(), ids=DISTINCT.keys())
def test_names_that_do_not_meet_are_not_reported(pair: tuple[str, str]):
    assert find_shared_names({"a.py": pair[0], "b.py": pair[1]}) == []


@pytest.mark.parametrize("path", ["core/loop/asking.py", "wiring/__init__.py", "going_back.py"])
def test_a_module_or_package_named_by_a_gerund_is_found(path: str):
    assert len(find_gerund_modules([path])) == 1


def test_a_package_is_reported_once():
    assert len(find_gerund_modules(["wiring/__init__.py", "wiring/a.py", "wiring/b.py"])) == 1


@pytest.mark.parametrize(
    "path", ["core/loop/model_call.py", "core/loop/reply_handling.py", *GERUND_MODULES]
)
def test_nouns_compounds_and_exceptions_are_not_reported(path: str):
    assert find_gerund_modules([path]) == []


@pytest.mark.parametrize("text", IDIOMS)
def test_an_idiom_is_found_in_documents_texts_and_docstrings(text: str):
    assert find_idioms({"page.md": text}) != []
    assert find_idioms({"a.py": f"print({text!r})"}) != []
    assert find_idioms({"a.py": f'def f():\n    """{text}"""'}) != []


@pytest.mark.parametrize("text", PLAIN)
def test_plain_texts_are_not_reported(text: str):
    assert find_idioms({"page.md": text}) == []


def test_the_line_of_an_idiom_is_named():
    [line] = find_idioms({"a.py": '"""One.\n\nIt is behind walls.\n"""'})
    assert line.startswith("a.py:3: 'walls'")


@pytest.mark.parametrize(
    "text", ["Used by gone.py.", "Uses b.py,\nloop/gone.py.", "See ../gone.py", "one.b.py"]
)
def test_a_module_that_does_not_exist_is_found_in_documents_and_module_docstrings(text: str):
    modules = {"core/loop/b.py": "", "b/gone.py/c.py": ""}
    assert len(find_stale_modules({**modules, "page.md": text})) == 1
    assert len(find_stale_modules({**modules, "a.py": f'"""{text}"""'})) == 1


def test_modules_that_exist_and_names_in_code_are_not_reported():
    text = '"""Used by b.py, loop/b.py and ../b.py; tests/law.py checks it."""\n# gone.py\n'
    assert find_stale_modules({"core/loop/b.py": "", "a.py": text}, ["tests/law.py"]) == []
