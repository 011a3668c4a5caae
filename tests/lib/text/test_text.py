from __future__ import annotations

from pathlib import Path

import pytest

from treadle.lib.text.text import (
    format_age,
    format_bytes,
    format_count,
    format_dollars,
    format_duration,
    plural,
    shorten_home,
    suggest,
)


def test_a_misspelt_name_gets_the_nearest_known_one():
    assert suggest("Bsh", ["bash", "read"]) == "bash"
    assert suggest("grpe", {"Grep": 1}) == "Grep"
    assert suggest("zebra", ["bash", "read"]) is None


def test_one_is_not_many():
    assert (plural(1, "file"), plural(0, "file"), plural(1200, "file")) == (
        "1 file",
        "0 files",
        "1,200 files",
    )
    assert plural(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("number", "text"),
    [(5, "5"), (999, "999"), (1_200, "1.2k"), (150_000, "150k"), (999_600, "1M"), (4.5e6, "4.5M")],
)
def test_counts_are_short(number, text):
    assert format_count(int(number)) == text


def test_small_amounts_of_money_are_not_shown_as_nothing():
    amounts = [format_dollars(n) for n in (0, 12.3, 0.042, 0.0047, 0.0004, 2e-8, 0.0999, 1234.5)]
    small = ["$0.042", "$0.0047", "$0.0004", "<$0.000001", "$0.10"]
    assert amounts == ["$0.00", "$12.30", *small, "$1,234.50"]


def test_bytes_durations_and_ages():
    sizes = [format_bytes(size) for size in (512, 3_400, 2_000_000, 1.1e9)]
    assert sizes == ["512 B", "3.4 KB", "2.0 MB", "1.1 GB"]
    assert [format_duration(seconds) for seconds in (5, 65, 3_700)] == ["5s", "1m 05s", "1h 01m"]
    ages = [format_age(seconds) for seconds in (5, 300, 8_000, 200_000)]
    assert ages == ["now", "5m ago", "2h ago", "2d ago"]


def test_the_home_folder_is_a_tilde_and_its_neighbour_is_not():
    home = Path.home()
    assert shorten_home(home) == "~"
    assert shorten_home(home / "a") == "~/a"
    assert shorten_home(f"{home}er/a") == f"{home}er/a"
