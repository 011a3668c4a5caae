"""Bars in a terminal: as wide as told, nothing drawn as more or less than it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.lib.text.bar_chart import (
    MIN_BAR_WIDTH,
    ChartBar,
    display_width,
    fit_width,
    render_bars,
)

WORDS = st.text(st.sampled_from("abc/-é日本…́"), max_size=40)


def test_the_longest_bar_fills_the_room_and_the_others_follow_it():
    rows = [
        ChartBar("mon", 4.0, "4.00"),
        ChartBar("tue", 2.0, "2.00"),
        ChartBar("wed", 0.0, "0.00"),
    ]
    assert render_bars(rows, 27) == [
        "mon  ████████████████  4.00",
        "tue  ████████          2.00",
        "wed                    0.00",
    ]


def test_eighths_tell_small_differences_and_a_little_is_not_nothing():
    first, second, least = render_bars(
        [ChartBar("", 16.0, ""), ChartBar("", 15.5, ""), ChartBar("", 1e-9, "")], 20
    )
    assert first.strip() == "█" * 15 + "█"[: len(first.strip()) - 15]
    assert second.strip()[-1] in "▏▎▍▌▋▊▉"
    assert least.strip() == "▏"


def test_what_has_no_value_has_no_bar():
    assert render_bars([ChartBar("a", None, "unknown"), ChartBar("b", 1.0, "1")], 30)[
        0
    ].split() == ["a", "unknown"]


def test_plain_terminals_get_plain_characters():
    assert all(
        line.isascii()
        for line in render_bars(
            [ChartBar("a", 1.0, "1"), ChartBar("b", 0.1, "0")], 40, ascii_only=True
        )
    )


def test_a_label_gives_way_at_the_end_that_says_least():
    assert fit_width("/home/me/project", 8) == "…project"
    assert fit_width("mend the parser", 8, "end") == "mend th…"
    assert fit_width("日本語", 4) == "…語 "


def test_where_there_is_no_room_for_a_bar_there_is_none():
    assert render_bars([ChartBar("a" * 30, 1.0, "1.00")], 14) == ["…aaaaaaa  1.00"]


@given(st.lists(st.tuples(WORDS, st.floats(0, 1e9) | st.none()), max_size=6), st.integers(12, 120))
def test_no_row_is_wider_than_the_terminal(rows, width):
    drawn = render_bars([ChartBar(label, value, "1.00") for label, value in rows], width)
    assert all(display_width(line) <= width for line in drawn)
    assert len({display_width(line) for line in drawn}) <= 1


@given(WORDS, st.integers(1, 50))
def test_fitted_is_exactly_as_wide_as_asked(text, width):
    assert (
        display_width(fit_width(text, width))
        == display_width(fit_width(text, width, "end"))
        == width
    )


def test_the_least_bar_is_drawn_where_it_just_fits():
    assert (
        "█" * MIN_BAR_WIDTH
        in render_bars([ChartBar("abcdefgh", 1.0, "1")], 8 + 1 + 4 + MIN_BAR_WIDTH)[0]
    )
