"""The parts of a request by size."""

from treadle.apps.pages.context_sizes import ContextSizes
from treadle.core.transcript.entries import HeadRecorded

HEAD = HeadRecorded("m", 1, ("read",), 2, system_chars=400, memory_chars=200, tools_chars=1200)


def test_the_recorded_parts_are_fitted_to_the_count_of_the_provider():
    sizes = ContextSizes(user=100).with_head(HEAD)
    assert sizes == ContextSizes(user=100, system=100, memory=50, tools=300)
    assert sizes.has_head
    assert sizes.fit(1_100) == ContextSizes(user=200, system=200, memory=100, tools=600)


def test_what_is_left_of_a_session_of_an_earlier_version_is_system_and_tools():
    sizes = ContextSizes(user=100, results=50)
    assert not sizes.has_head
    assert sizes.fit(1_000) == ContextSizes(user=100, results=50, system=850)
    assert sizes.fit(75) == ContextSizes(user=50, results=25)
    assert sizes.fit(0) == sizes
