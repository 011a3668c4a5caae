from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.workspace.output import decode_output, join_head_tail


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"plain\n", "plain\n"),
        ("größer → ✓\n".encode(), "größer → ✓\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        (b"\x1b]52;c;ZWNobw==\x1b\\after", "after"),
        (b"\x1bPq#0\x1b\\after", "after"),
        (b"\x1b(Btext\x1b=", "text"),
        (b"cut \x1b[", "cut "),
        (b"cut \x1b]0;title", "cut "),
        (b"a\x00b\x07c\x7f", "a\u2400b\u2407c\u2421"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"10%\r50%\r100%\ndone", "100%\ndone"),
        ("a\u202eb\u009b31mc".encode(), "a\\u202ebc"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_or_left_out(printed: bytes, shown: str) -> None:
    assert decode_output(printed) == shown


@given(st.binary(max_size=300))
def test_no_control_character_survives(printed: bytes) -> None:
    text = decode_output(printed)
    assert not [c for c in text if (ord(c) < 32 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0]


def test_a_gap_says_how_much_is_missing_and_never_cuts_a_character() -> None:
    letters = "äöü€😀" * 10
    data = letters.encode()
    for cut in range(1, 30):
        text = join_head_tail(data[:cut], data[-cut:], len(data), "/side", len(data))
        assert "\ufffd" not in text
        assert f"{len(data) - 2 * cut} of {len(data)} bytes left out" in text
        assert "the whole output is in /side" in text


def test_a_side_file_that_reached_its_cap_is_not_called_whole() -> None:
    assert "the first 50 bytes of the output are in /side" in join_head_tail(
        b"a", b"b", 100, "/side", 50
    )


def test_without_a_gap_head_and_tail_are_one_text() -> None:
    data = "€uro".encode()
    assert join_head_tail(data[:1], data[1:], len(data)) == "€uro"
