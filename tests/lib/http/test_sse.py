import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.work import count_work
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.transport import ResponseTooLarge

Events = list[tuple[bytes, bytes]]


def reference(stream: bytes) -> Events:
    """The specification, read aloud: whole stream, line by line."""
    stream = stream.removeprefix(b"\xef\xbb\xbf")
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    events, name, data = [], b"", None
    for line in lines:
        if line == b"":
            if data is not None:
                events.append((name, data))
            name, data = b"", None
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            if field == b"event":
                name = value
            elif field == b"data":
                data = value if data is None else data + b"\n" + value
    return events


def read(pieces: list[bytes]) -> Events:
    reader = SSEReader()
    return [event for chunk in pieces for event in reader.feed(chunk)]


PLAIN = b'event: a\ndata: {"x": 1}\n\ndata: [DONE]\n\n'
STRANGE = (
    b'\xef\xbb\xbfevent: a\r\ndata: {"x":\r\ndata: 1}\r\n\r\n: ping\r\n\r\ndata:no space\r\r'
    b"event: named only\n\nid: 3\nretry: 15\ndata\n\ndata:  two\n\n\n\nevent:\ndata: last\n\n"
    b"nonsense\ndata: cut off"
)


@pytest.mark.parametrize("stream", [PLAIN, STRANGE, STRANGE.replace(b"\n", b"\r")])
def test_fault_41_every_split_in_two_and_in_three_gives_the_same_events(stream):
    expected = reference(stream)
    assert expected
    for first in range(len(stream) + 1):
        assert read([stream[:first], stream[first:]]) == expected
        for second in range(first, len(stream) + 1):
            pieces = [stream[:first], stream[first:second], stream[second:]]
            assert read(pieces) == expected
    assert read([bytes([byte]) for byte in stream]) == expected


_FIELDS = [
    b"event: a",
    b"event:b",
    b"event",
    b"data: x",
    b"data:x",
    b"data: ",
    b"data",
    b"data:  y",
]
_OTHERS = [
    b": comment",
    b":",
    b"",
    b"",
    b"",
    b"id: 1",
    b"retry: 5",
    b"retry: x",
    b"x: y",
    b" data: z",
]
_TRAPS = [b"data: \xff\xfe", b"\xef\xbb\xbfdata: bom", b"database: no", b"event: \xef\xbb\xbf"]
_LINES = st.sampled_from([*_FIELDS, *_OTHERS, *_TRAPS])
_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.lists(st.tuples(_LINES, _ENDS), max_size=30), st.lists(st.integers(0, 400)), st.booleans()
)
def test_fault_41_any_stream_in_any_chunking_is_read_as_the_specification_says(lines, cuts, bom):
    stream = b"\xef\xbb\xbf" * bom + b"".join(line + end for line, end in lines)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert read(pieces) == reference(stream)
    assert read([stream]) == reference(stream)


def test_an_event_is_given_out_at_its_blank_line_without_waiting_for_more():
    reader = SSEReader()
    assert reader.feed(b"data: x\r\n\r") == [(b"", b"x")]
    assert reader.feed(b"\ndata: y\r\r") == [(b"", b"y")]
    assert reader.feed(b"\n") == []
    assert reader.pending == 0


def test_an_event_without_its_blank_line_is_never_given_out_and_counts_as_pending():
    reader = SSEReader()
    assert reader.feed(b"data: a\n\nevent: b\ndata: cut\n") == [(b"", b"a")]
    assert reader.pending == len(b"event: b\ndata: cut\n")


def test_fault_41_an_event_of_megabytes_in_small_pieces_costs_no_more_than_its_bytes():
    size = 1_000_000
    stream = b"event: big\ndata: " + b"x" * size + b"\n\n"
    pieces = [stream[at : at + 256] for at in range(0, len(stream), 256)]
    with count_work() as work:
        assert read(pieces) == [(b"big", b"x" * size)]
    assert work.calls < 6 * len(pieces)
    assert work.scanned < 3 * len(stream)


def test_many_data_lines_without_a_blank_line_stay_linear():
    line = b"data: " + b"y" * 60 + b"\n"
    pieces = [line] * 50_000 + [b"\n"]
    with count_work() as work:
        assert len(read(pieces)[0][1]) == 61 * 50_000 - 1
    assert work.calls < 10 * len(pieces)
    assert work.scanned < 6 * sum(map(len, pieces))


def test_an_event_over_the_cap_is_refused_by_name():
    reader = SSEReader(max_event_bytes=1000)
    assert reader.feed(b"data: small\n\n") == [(b"", b"small")]
    assert reader.feed(b"data: x\n" * 100) == []
    with pytest.raises(ResponseTooLarge, match="1000 bytes"):
        reader.feed(b"data: x\n" * 100)
