"""Nearly all of a session comes from the cache, and no moment breaks more of it than it must.

benchmarks/cache.py prints the same as a table.
"""

from __future__ import annotations

import pytest

from benchmarks import cache


@pytest.mark.usefixtures("own_place")
async def test_a_session_of_20_turns_is_read_from_the_cache_at_every_moment(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    report = await cache.run_benchmark()
    print(cache.format_report(report))
    assert report.share >= cache.MIN_SHARE
    names = [moment.name for moment in report.moments]
    assert names == ["mode", "steering", "continue", "host", "summary", "compact", "server added"]
    assert [one.name for one in report.moments if one.share < cache.MIN_KEPT] == []
