import json

import pytest

from tests.lib.http.raw_server import chunk_frame, frame
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.transport import MalformedResponse
from treadle.models.provider_base.aws_eventstream import AWSFrameReader

EVENTS: list[dict[str, object]] = [{"type": "message_start"}, {"type": "message_stop"}]


def test_frames_are_read_in_any_chunking_and_errors_become_error_events():
    failure = frame(
        b'{"message": "slow down"}', message_type="exception", exception_type="throttlingException"
    )
    data = b"".join(
        [*map(chunk_frame, EVENTS), frame(b"{}", event_type="initial-response"), failure]
    )
    whole = AWSFrameReader().feed(data)
    for step in (1, 7, 64):
        reader = AWSFrameReader()
        parts = [reader.feed(data[at : at + step]) for at in range(0, len(data), step)]
        assert b"".join(parts) == whole
    events = SSEReader().feed(whole)
    assert [name for name, _ in events] == [b"message_start", b"message_stop", b"error"]
    assert json.loads(events[-1][1])["error"] == {
        "type": "throttlingException",
        "message": "slow down",
    }


@pytest.mark.parametrize("place", [3, 9, 40, -3])
def test_a_damaged_frame_is_said_so(place):
    data = bytearray(chunk_frame(EVENTS[0]))
    data[place] ^= 0x55
    with pytest.raises(MalformedResponse):
        AWSFrameReader().feed(bytes(data))
