from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.lib.text.sanitize import escape_invisible, escape_json, strip_escapes

EVIL = "\x1b]52;c;UFdORUQ=\x07\x1b[2JEVIL\x9b31m\u202eEVIL2\r"
UNSEEN = [*"\x00\x07\x1b\x7f\x85\x9b\u061c\u200b\u200e\u202a\u202e\u2060\u2066\ufeff", "\U000e0041"]


@pytest.mark.parametrize(
    "text", ["plain", "größer → ✓", "a\tb\nc", "👨\u200d👩\u200d👧 ✔\ufe0f", ""]
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert strip_escapes(text) == text


def test_for_reading_escape_sequences_are_left_out_and_the_rest_is_shown() -> None:
    assert strip_escapes(EVIL) == "EVIL\\u202eEVIL2␍"
    assert strip_escapes("one\r\ntwo") == "one\ntwo"


def test_for_deciding_nothing_is_left_out() -> None:
    assert escape_invisible("\x1b[2Jrm\n\u202ex") == "␛[2Jrm␊\\u202ex"
    assert escape_invisible("a\u200db\u3164c\u00a0d") == "a\\u200db\\u3164c\\u00a0d"
    assert escape_invisible("one\n\ttwo\x1b", keep="\n\t") == "one\n\ttwo␛"


@pytest.mark.parametrize("char", UNSEEN)
def test_no_character_that_hides_gets_through(char: str) -> None:
    assert char not in strip_escapes(f"a{char}b")
    assert char not in escape_invisible(f"a{char}b")
    assert len(escape_invisible(f"a{char}b")) > 2


@given(st.text())
def test_json_keeps_its_value_and_holds_no_control(text: str) -> None:
    encoded = escape_json(json.dumps(text + EVIL, ensure_ascii=False))
    assert json.loads(encoded) == text + EVIL
    assert not [c for c in encoded if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e"]


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_all_of_it_can_be_printed(text: str) -> None:
    strip_escapes(text).encode()
    escape_invisible(text).encode()
