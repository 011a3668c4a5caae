"""What a request wants done, read from its words."""

from __future__ import annotations

import pytest

from treadle.models.embedded.aids.change_request import (
    asks_for_change,
    asks_for_repair,
    find_names,
    find_project_check,
    find_related_files,
)

LISTING = ".\n..\n.git\napp.py\nlib/\nnotes of mine.md\nshop.py\ntest_shop.py\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fix the bug", True),
        ("The tests fail. Make them pass.", True),
        ("Rename foo to bar in app.py", True),
        ("Please set the port in app.toml to 8080", True),
        ("Write a function that adds two numbers", True),
        ("How do I fix the bug in app.py?", False),
        ("Write a haiku", False),
        ("What does app.py do?", False),
        ("Show me app.py", False),
    ],
)
def test_a_change_is_ordered_and_not_asked_about(text: str, expected: bool) -> None:
    assert asks_for_change(text) is expected


def test_a_repair_is_an_order_too() -> None:
    assert asks_for_repair("total returns the wrong sum. Fix it.")
    assert not asks_for_repair("Why is the sum wrong?")
    assert not asks_for_repair("Add a button to the page")
    assert not asks_for_repair("Change DEBUG = True to DEBUG = False in settings.py")


def test_files_are_those_named_and_those_whose_stem_is_a_word() -> None:
    names = find_names(LISTING)
    assert names == ["app.py", "lib", "shop.py", "test_shop.py"]
    assert find_related_files("The shop shows a wrong total", names) == ["shop.py"]
    assert find_related_files("Change the port in app.py", names) == ["app.py"]
    assert find_related_files("Change lib/web.py", names) == ["lib/web.py"]
    assert find_related_files("Create new.py", names) == []


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("Fix it", ["a.py", "test_a.py"], "pytest"),
        ("Fix a.py, test_a.py fails", ["a.py", "test_a.py", "test_b.py"], "pytest test_a.py"),
        ("Fix it", ["pyproject.toml", "tests"], "pytest"),
        ("Fix it", ["package.json", "src"], "npm"),
        ("Fix it", ["Cargo.toml", "src"], "cargo"),
        ("Fix it", ["a.py"], ""),
    ],
)
def test_the_check_is_what_the_folder_has(text: str, names: list[str], expected: str) -> None:
    words = find_project_check(text, names).split()
    assert all(word in words for word in expected.split())
    assert bool(words) is bool(expected)
    assert "test_b.py" not in words
