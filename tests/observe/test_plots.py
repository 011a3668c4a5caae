"""Bars in a terminal: as wide as told, nothing drawn as more or less than it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.observe.plots import LEAST_BAR, Bar, bars, columns, fitted

WORDS = st.text(st.sampled_from("abc/-é日本…́"), max_size=40)


def test_the_longest_bar_fills_the_room_and_the_others_follow_it():
    rows = [Bar("mon", 4.0, "4.00"), Bar("tue", 2.0, "2.00"), Bar("wed", 0.0, "0.00")]
    assert bars(rows, 27) == [
        "mon  ████████████████  4.00",
        "tue  ████████          2.00",
        "wed                    0.00",
    ]


def test_eighths_tell_small_differences_and_a_little_is_not_nothing():
    first, second, least = bars([Bar("", 16.0, ""), Bar("", 15.5, ""), Bar("", 1e-9, "")], 20)
    assert first.strip() == "█" * 15 + "█"[: len(first.strip()) - 15]
    assert second.strip()[-1] in "▏▎▍▌▋▊▉"
    assert least.strip() == "▏"


def test_what_has_no_value_has_no_bar():
    assert bars([Bar("a", None, "unknown"), Bar("b", 1.0, "1")], 30)[0].split() == ["a", "unknown"]


def test_plain_terminals_get_plain_characters():
    assert all(
        line.isascii() for line in bars([Bar("a", 1.0, "1"), Bar("b", 0.1, "0")], 40, plain=True)
    )


def test_a_label_gives_way_at_the_end_that_says_least():
    assert fitted("/home/me/project", 8) == "…project"
    assert fitted("mend the parser", 8, "end") == "mend th…"
    assert fitted("日本語", 4) == "…語 "


def test_where_there_is_no_room_for_a_bar_there_is_none():
    assert bars([Bar("a" * 30, 1.0, "1.00")], 14) == ["…aaaaaaa  1.00"]


@given(st.lists(st.tuples(WORDS, st.floats(0, 1e9) | st.none()), max_size=6), st.integers(12, 120))
def test_no_row_is_wider_than_the_terminal(rows, width):
    drawn = bars([Bar(label, value, "1.00") for label, value in rows], width)
    assert all(columns(line) <= width for line in drawn)
    assert len({columns(line) for line in drawn}) <= 1


@given(WORDS, st.integers(1, 50))
def test_fitted_is_exactly_as_wide_as_asked(text, width):
    assert columns(fitted(text, width)) == columns(fitted(text, width, "end")) == width


def test_the_least_bar_is_drawn_where_it_just_fits():
    assert "█" * LEAST_BAR in bars([Bar("abcdefgh", 1.0, "1")], 8 + 1 + 4 + LEAST_BAR)[0]
