"""Lines of `treadle -p`: one for each retry, and none that says nothing in stream-json."""

from __future__ import annotations

from tests.apps.program import run
from treadle.testing.provider import FakeReply, ProviderServer
from treadle.testing.provider.answers import ProviderFault

QUICK = "0.01"


async def test_a_retry_is_one_line_and_quiet_has_none():
    for words, count in ((("--model", "sonnet"), 1), (("--model", "sonnet", "--quiet"), 0)):
        faults = [ProviderFault("overloaded")]
        async with ProviderServer([FakeReply("Hi.")], faults=faults) as server:
            ran = await run(server, "-p", "hi", *words, TREADLE_RETRY_MAX_WAIT=QUICK)
        assert (ran.code, ran.out) == (0, "Hi.\n")
        lines = [line for line in ran.err.splitlines() if "attempt 1 failed" in line]
        assert len(lines) == count
        assert all(
            line.startswith("treadle: attempt 1 failed, the next one is in") for line in lines
        )


async def test_the_last_error_says_how_often_it_was_tried():
    faults = [ProviderFault("overloaded", times=9)]
    async with ProviderServer([FakeReply("Hi.")], faults=faults) as server:
        ran = await run(
            server,
            "-p",
            "hi",
            "--model",
            "sonnet",
            TREADLE_RETRY_ATTEMPTS="3",
            TREADLE_RETRY_MAX_WAIT=QUICK,
        )
    assert ran.code == 69
    assert [line.split(" failed")[0] for line in ran.err.splitlines()[:2]] == [
        "treadle: attempt 1",
        "treadle: attempt 2",
    ]
    assert ran.err.splitlines()[-1].endswith(" Tried 3 times.")


async def test_a_mutator_that_changed_nothing_has_no_lines_in_stream_json():
    async with ProviderServer([FakeReply("Hi.")]) as server:
        ran = await run(server, "-p", "hi", "--model", "sonnet", "--output-format", "stream-json")
    kinds = [line["type"] for line in ran.lines]
    assert kinds.count("mutation_started") == kinds.count("mutation_finished") > 0
    assert all(line["dirty"] for line in ran.lines if line["type"] == "mutation_finished")
    assert "turn_finished" in kinds
