from __future__ import annotations

import pytest

from treadle.models.embedded.aids import check_output

UNITTEST = """\
F.
======================================================================
FAIL: test_mean (__main__.Test.test_mean)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/home/x/test_stats.py", line 11, in test_mean
    self.assertEqual(mean([2, 4, 6]), 4)
AssertionError: 6.0 != 4

----------------------------------------------------------------------
Ran 2 tests in 0.001s

FAILED (failures=1)
"""


def test_an_excerpt_says_what_failed_and_how() -> None:
    assert check_output.extract_failure(UNITTEST).splitlines() == [
        "FAIL: test_mean",
        "self.assertEqual(mean([2, 4, 6]), 4)",
        "AssertionError: 6.0 != 4",
    ]
    assert check_output.extract_failure("x.sh: expected 2, got 3\n") == "x.sh: expected 2, got 3"


def test_files_are_found_in_tracebacks_commands_and_imports() -> None:
    assert check_output.find_file_names(UNITTEST) == ["/home/x/test_stats.py"]
    assert check_output.find_command_files("python -m unittest tests.test_a") == ["tests/test_a.py"]
    assert check_output.find_command_files("sh check.sh && echo ok") == ["check.sh"]
    source = "import re\nimport unittest\nfrom stats import mean\nimport shop.cart\n"
    assert check_output.find_imported_files("a/test_x.py", source) == [
        "a/stats.py",
        "a/shop/cart.py",
    ]
    assert check_output.find_imported_files("t.sh", "sh lines.sh x\n") == ["lines.sh"]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("The check `python3 t.py` fails. Fix it.", "python3 t.py"),
        ("Fix `mean` so that `make test` passes", "make test"),
        ("What does `git status` do?", ""),
        ("Fix the bug", ""),
    ],
)
def test_a_check_is_a_command_of_a_request_for_a_repair(text: str, command: str) -> None:
    assert check_output.find_check_command(text) == command


@pytest.mark.parametrize(
    "shown",
    [
        "a = 1\n\nb = 2\n",
        "     1\ta = 1\n     2\t\n     3\tb = 2",
        "1→a = 1\n2→\n3→b = 2",
        "     1\ta = 1\n     2\t\n     3\tb = 2\n\n(the end)",
    ],
)
def test_a_file_is_read_with_or_without_line_numbers(shown: str) -> None:
    assert check_output.strip_line_numbers(shown) == "a = 1\n\nb = 2\n"


def test_of_a_report_of_pytest_the_assertion_and_the_first_error_are_enough() -> None:
    output = (
        "F      [100%]\n=== FAILURES ===\n___ test_add ___\ntest_add.py:4: in test_add\n"
        "    assert add(2, 3) == 5\nE   assert -1 == 5\nE    +  where -1 = add(2, 3)\n"
        "=== short test summary info ===\nFAILED test_add.py::test_add - assert -1 == 5\n"
    )
    assert check_output.extract_failure(output) == "assert add(2, 3) == 5\nassert -1 == 5"
