"""Why a request cost that: prices of items, breaks of the cache, and waits that are folded."""

from __future__ import annotations

import pytest

from treadle.apps.pages.cost_reasons import find_cache_break, price_items, price_reply
from treadle.apps.pages.gantt import render_gantt
from treadle.apps.pages.timeline import CallInfo, RequestInfo, Timeline
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import HeadRecorded
from treadle.core.transcript.usage import Usage
from treadle.models.catalog import card_for, compute_cost

MODEL = "anthropic/claude-sonnet-4-5"
HEAD = HeadRecorded(MODEL, 1, ("read",), 1)


def make_request(
    number: int, usage: Usage, start: float = 0.0, head: HeadRecorded | None = HEAD
) -> RequestInfo:
    return RequestInfo(number, 1, 0, number, MODEL, usage, start, start + 1, head=head)


def test_the_prices_of_the_items_add_up_to_that_of_the_request():
    usage = Usage(input=1_000, output=500, cache_read=20_000, cache_write=4_000)
    request = make_request(1, usage)
    costs = price_items(request, [300, 100, 70, 30])
    assert sum(one.tokens for one in costs) == usage.total_input
    assert [bool(one.cached) for one in costs] == [True, True, False, False]
    reply = price_reply(request)
    assert reply is not None
    total = sum(one.price or 0 for one in costs) + reply
    assert total == pytest.approx(compute_cost(card_for(MODEL, prices=True), usage))


def test_a_broken_cache_has_its_price_and_its_causes():
    first = make_request(1, Usage(cache_write=20_000))
    changed = HeadRecorded(MODEL, 2, ("read", "mcp__x__y"), 2)
    second = make_request(2, Usage(cache_write=20_500, cache_read=500), 600.0, changed)
    found = find_cache_break(Timeline(requests=(first, second)), second)
    assert found is not None
    assert found.tokens == 19_500
    assert found.price == pytest.approx(19_500 * (3.75 - 0.3) / 1e6)
    assert found.causes == (
        "the instructions or memory files changed",
        "the tools changed +mcp__x__y",
        "9 minutes passed since the request before: a cache is kept for some minutes",
    )


def test_a_cache_that_is_read_is_not_broken():
    first = make_request(1, Usage(cache_write=20_000))
    second = make_request(2, Usage(cache_read=19_900, cache_write=600))
    timeline = Timeline(requests=(first, second))
    assert find_cache_break(timeline, first) is None
    assert find_cache_break(timeline, second) is None


def test_a_wait_for_the_user_is_folded_only_where_nothing_else_ran():
    call = ToolCall("1", "write", "{}")
    waits = CallInfo(call, 1, 1, 1_001.0, 1_002.0, asked=1.0, answered=1_001.0)
    beside = CallInfo(ToolCall("2", "bash", "{}"), 1, 1, 100.0, 200.0)
    chart = render_gantt([make_request(1, Usage())], [waits], 1)
    assert "16m 40s of waits for you are folded" in chart
    assert chart.count('class="fold"') == 1
    chart = render_gantt([make_request(1, Usage())], [waits, beside], 1)
    assert chart.count('class="fold"') == 2
