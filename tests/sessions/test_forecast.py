"""A forecast says what earlier tasks cost, and how many they were."""

from __future__ import annotations

from pathlib import Path

from tests.apps.program import run
from tests.sessions.past_tasks import MODEL, past
from treadle.sessions.forecast import make_forecast
from treadle.sessions.library import Library
from treadle.testing.provider import FakeReply, ProviderServer


async def test_similar_tasks_make_the_forecast_and_few_are_named_as_few():
    assert str(make_forecast(Library(), "fix the parser", Path(), MODEL)) == (
        "no forecast: only 0 earlier tasks with a known cost"
    )
    for cost in (0.10, 0.20, 0.30):
        await past("Fix the parser", cost, cost * 100)
    few = make_forecast(Library(), "fix the parser", Path(), MODEL)
    assert "only 3 earlier tasks: a guess" in str(few)
    assert few.short == "about $0.20 ($0.10–$0.30), 20 s, a guess from 3 tasks"
    assert few.max_cost is None  # not enough for a limit
    for number in range(10):
        await past(f"Write a poem about the sea, number {number}", 5.0, 600)
    for _ in range(30):
        await past("Fix the parser again", 0.20, 20)
    known = make_forecast(Library(), "please fix the parser", Path(), MODEL)
    assert known.cost is not None
    assert (known.samples, known.cost.middle, known.cost.high) == (30, 0.20, 0.20)
    assert str(known) == "about $0.20, about 20 s, from 30 earlier tasks"
    assert known.max_cost == 0.40


async def test_the_program_shows_it_and_takes_it_as_a_limit():
    async with ProviderServer([FakeReply("Hello.")] * 3) as server:
        first = await run(server, "-p", "say hello", "--max-cost", "auto")
        assert (first.code, first.out) == (0, "Hello.\n")
        assert "forecast: no forecast: only 0 earlier tasks" in first.err
        for number in range(10):
            await past("say hello", 0.01 * (number + 1), 10)
        shown = await run(server, "-p", "say hello", "--verbose")
        assert "treadle: forecast: about $0.0" in shown.err
        assert "from 11 earlier tasks" in shown.err
        limited = await run(server, "-p", "say hello", "--max-cost", "auto")
    assert (limited.code, "; at most $0.1" in limited.err) == (0, True), limited
    refused = await run(None, "--max-cost", "auto", "--plain", "hello")
    assert (refused.code, "works only with -p" in refused.err) == (2, True)


async def test_the_limit_is_on_top_of_what_a_continued_session_has_cost():
    for _ in range(10):
        await past("say hello", 0.01, 10)
    await past("a long task", 3.0, 10)
    async with ProviderServer([FakeReply("Hello.")]) as server:
        more = await run(server, "-p", "--continue", "say hello", "--max-cost", "auto")
    assert (more.code, more.out) == (0, "Hello.\n"), more
    assert "; at most $0.1" in more.err
