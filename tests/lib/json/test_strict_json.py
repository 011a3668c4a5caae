"""Arguments are read as other JSON parsers read them, or are refused, in both ways of reading."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.lib.json.strict_json import NotStrict, decode_strictly

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(VALUES, st.booleans(), st.booleans())
def test_a_value_is_read_as_it_was_written(value, is_compact, is_ascii):
    separators = (",", ":") if is_compact else (", ", ": ")
    text = json.dumps(value, separators=separators, ensure_ascii=is_ascii, allow_nan=False)
    read = decode_strictly(text)
    assert (read, repr(read)) == (value, repr(json.loads(text)))


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a": 1, "a": 2}',
        '[{"b":{"a":1,"a":1}}]',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '{"a":' + "9" * 309 + "}",
    ],
)
def test_what_parsers_read_differently_is_refused(text):
    with pytest.raises(NotStrict):
        decode_strictly(text)


@pytest.mark.parametrize("text", ["", "{", '{"a":1}{}', "{'a':1}", '{"a":1,}', "01"])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ValueError, match="line 1"):
        decode_strictly(text)
