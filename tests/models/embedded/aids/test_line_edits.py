from __future__ import annotations

import msgspec

from treadle.models.embedded.aids import line_edits
from treadle.models.embedded.aids.line_edits import FileRewrite, SourceLine

SOURCE = """\
import re

LIMIT = 3


class Cart:
    def total(self, items):
        # all of them
        result = sum(items)
        return result + 1

    def count(self, items):
        return len(items)
"""
FAILING = "FAIL: test_total\nself.assertEqual(cart.total([1]), 1)\nAssertionError: 2 != 1"


def numbers(lines: list[SourceLine]) -> list[int]:
    return [line.number for line in lines]


def test_what_cannot_be_the_wrong_line_is_not_suspected() -> None:
    lines = line_edits.list_suspect_lines({"cart.py": SOURCE, "test_cart.py": "assert False\n"})
    assert numbers(lines) == [3, 7, 9, 10, 12, 13]
    assert [line.function for line in lines] == ["", *["total"] * 3, *["count"] * 2]


def test_the_search_goes_outwards_from_where_it_broke() -> None:
    lines = line_edits.list_suspect_lines({"cart.py": SOURCE})
    broke, near, everywhere = line_edits.group_suspect_lines(
        lines, f"{FAILING}\nresult = sum(items)"
    )
    assert numbers(broke) == [9]
    assert numbers(near) == [7, 9, 10]
    assert everywhere == lines


def test_a_line_written_anew_keeps_its_place_and_indentation() -> None:
    line = SourceLine("cart.py", 10, "        return result + 1", "total")
    changed = line_edits.replace_line(SOURCE, line, "return result")
    source = SOURCE.replace("result + 1", "result")
    assert changed == FileRewrite("cart.py", source, "line 10 of cart.py", line)


def test_a_function_written_anew_takes_the_place_of_the_old_one_alone() -> None:
    line = SourceLine("cart.py", 10, "        return result + 1", "total")
    place = line_edits.find_function(SOURCE, line)
    assert place == (7, 10)
    assert line_edits.start_function(SOURCE, 7).endswith("    def total(self, items):\n")
    body = "        return sum(items)\n\n    def other(self):\n        pass\n"
    changed = line_edits.replace_function(SOURCE, "cart.py", *place, body)
    assert changed is not None
    old = "        # all of them\n        result = sum(items)\n        return result + 1\n"
    assert changed.source == SOURCE.replace(old, "        return sum(items)\n")


def test_a_function_written_anew_does_not_swallow_the_next_one() -> None:
    body = "        return sum(items)\n\n        def count(self, items):\n            return 1\n"
    changed = line_edits.replace_function(SOURCE, "cart.py", 7, 10, body)
    assert changed is not None
    assert changed.source.count("def count") == 1


def test_a_function_that_was_cut_off_is_not_taken() -> None:
    assert line_edits.replace_function(SOURCE, "cart.py", 7, 10, "        return su") is None


def test_a_line_outside_of_functions_has_none_around_it() -> None:
    line = SourceLine("cart.py", 3, "LIMIT = 3")
    assert line_edits.find_function(SOURCE, line) is None
    assert line_edits.find_function(SOURCE, msgspec.structs.replace(line, number=6)) is None
