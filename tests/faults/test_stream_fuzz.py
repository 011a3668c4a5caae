"""Random streams of each format end with a reply or a typed error. See stream_fuzz.py."""

from __future__ import annotations

import os
import random

import pytest

from tests.faults.stream_fuzz import fuzz_streams
from tests.models.wires import WIRES

COUNT = int(os.environ.get("TREADLE_FUZZ_STREAMS", "800"))


@pytest.mark.timeout(1200 + COUNT // 100)
@pytest.mark.parametrize("wire", WIRES)
async def test_random_streams_lose_no_text_and_end_with_a_reply_or_a_typed_error(wire: str):
    first = 0 if os.environ.get("CI") else random.randrange(1_000_000_000)
    outcomes = await fuzz_streams(wire, first, COUNT)
    assert outcomes["Reply"] > COUNT // 4, "most streams are broken: the changes are too many"
    assert outcomes["StreamBroken"] > COUNT // 4, "few streams are broken: the changes are too few"


# Seeds of streams that a decoder once failed at.
FAILED_ONCE = [
    ("messages", 20_031_723),  # the input of a provider's own tool is nested 1,000 deep and more
]


@pytest.mark.parametrize(("wire", "seed"), FAILED_ONCE)
async def test_a_stream_that_broke_a_decoder_ends_with_a_reply_or_a_typed_error(
    wire: str, seed: int
):
    await fuzz_streams(wire, seed, 1)
