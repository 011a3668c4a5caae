"""Budgets, prices, windows and memory through the real program: what is wrong is said in a line."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import Ran, run
from treadle.testing.provider import FakeCall, FakeReply, FakeUsage, ProviderServer
from treadle.testing.provider.http import ReceivedRequest

DONE = FakeReply("Done.")
WORK = FakeReply(calls=(FakeCall("bash", {"command": "ls"}),))
DEAR = FakeUsage(input=1_000, output=20_000)  # 0.202 USD at 2 and 10 USD a million
SONNET = ("--model", "sonnet")


def usage_of(request: ReceivedRequest) -> FakeUsage:
    body: dict[str, Any] = dict(request.json)
    return FakeUsage(input=1_000, output=min(20_000, body["max_tokens"]))


def cost_of(requests: list[ReceivedRequest]) -> float:
    used = [usage_of(request) for request in requests]
    return sum(one.input * 2 + (one.output or 0) * 10 for one in used) / 1e6


def first_words(request: ReceivedRequest) -> str:
    body: dict[str, Any] = dict(request.json)
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def is_closing(request: ReceivedRequest) -> bool:
    body: dict[str, Any] = dict(request.json)
    return body.get("tool_choice") == {"type": "none"}


def one_sentence(ran: Ran) -> str:
    assert "Traceback" not in ran.err
    [line] = ran.err.splitlines()
    return line


# ------------------------------------------------------------------ money


def busy(request: ReceivedRequest) -> FakeReply:
    """A parent that starts four children at once; each of them works for ever."""
    if is_closing(request):
        return FakeReply("Out of money; this is how far it came.", usage=usage_of(request))
    if first_words(request).startswith("child"):
        call = FakeCall("bash", {"command": f"echo {request.number}"})
        return FakeReply(calls=(call,), usage=usage_of(request))
    work = [FakeCall("task", {"description": "a part", "prompt": f"child {n}"}) for n in range(4)]
    return FakeReply(calls=tuple(work), usage=usage_of(request))


async def test_four_children_at_once_stay_within_one_budget_and_sum_up():
    limit = 8.0
    flags = ("--max-cost", f"{limit}", "--allow", "Task", "--output-format", "json")
    async with ProviderServer(busy) as server:
        ran = await run(server, "-p", "go", *SONNET, *flags)
        sent = server.generation_requests
        assert server.violations == []
    [report] = ran.lines
    assert (ran.code, report["reason"]) == (4, "budget_exceeded")
    assert len(sent) > 8
    assert cost_of(sent) <= limit
    assert report["text"] == "Out of money; this is how far it came."
    children = {first_words(request) for request in sent} - {"go"}
    assert children == {f"child {n}" for n in range(4)}
    told = await run(None, "cost", "--by", "session", "--json")
    assert '"calls": ' + str(len(sent)) in told.out  # the children's calls are the session's


@pytest.mark.parametrize(
    ("flag", "code", "words"),
    [
        ("--max-cost", 4, "the next request may cost about $0."),
        ("--max-tokens", 4, "the next request may use about "),
    ],
)
async def test_a_budget_of_zero_asks_nobody_and_says_so(flag, code, words):
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", *SONNET, flag, "0")
        assert server.generation_requests == []
    assert ran.code == code
    assert f"treadle: stopped: {words}" in one_sentence(ran)


@pytest.mark.parametrize(
    ("replies", "code", "out", "err"),
    [
        ([DONE], 0, "Done.\n", ""),
        ([WORK, DONE], 3, "Done.\n", "treadle: stopped: the limit of 0 tool rounds is reached"),
    ],
)
async def test_without_a_tool_round_a_plain_question_is_answered(replies, code, out, err):
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "go", *SONNET, "--max-turns", "0")
        assert len(server.generation_requests) == len(replies)  # with a closing one
    assert (ran.code, ran.out) == (code, out)
    assert ran.err.startswith(err)


@pytest.mark.parametrize(("flag", "limit"), [("--max-cost", "0.3"), ("--max-tokens", "25000")])
async def test_a_small_budget_does_the_work_that_it_can_pay(flag, limit):
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", *SONNET, flag, limit)
        [request] = server.generation_requests
    assert (ran.code, ran.out) == (0, "Done.\n")
    body: dict[str, Any] = dict(request.json)
    assert 1_000 <= body["max_tokens"] < 30_000


async def test_a_budget_for_less_than_a_request_says_what_it_needs_and_that_nothing_was_sent():
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", *SONNET, "--max-tokens", "1")
        assert server.generation_requests == []
    assert ran.code == 4
    line = one_sentence(ran)
    assert "the next request may use about " in line
    assert "tokens, but the limit of 1 token leaves only 1 token; nothing was sent" in line
    assert re.search(r"; to continue with a higher limit: .* --resume \S+ --max-tokens N$", line)


async def test_the_printed_command_continues_with_the_limits_of_this_run():
    look = FakeReply(calls=(FakeCall("ls", {}),))
    async with ProviderServer([look, look, DONE], strict=False) as server:
        ran = await run(server, "-p", "go", *SONNET, "--max-turns", "1", "--max-cost", "0.5")
    assert ran.code == 3
    assert re.search(r"; to continue: treadle -p --resume \S+ --max-cost 0\.5$", one_sentence(ran))


async def test_a_stop_because_of_repetition_asks_for_another_message_not_for_money():
    look = FakeReply(calls=(FakeCall("ls", {}),))
    async with ProviderServer(lambda request: look, strict=False) as server:
        ran = await run(server, "-p", "go", *SONNET)
        assert len(server.generation_requests) == 6
    assert ran.code == 4
    line = one_sentence(ran)
    assert "stopped: the same call has given the same result 6 times; to continue, say" in line
    assert re.search(r'what to do instead: treadle -p --resume \S+ "\.\.\."$', line)
    assert "--max-cost" not in line


async def test_no_time_at_all_is_a_wrong_setting():
    ran = await run(None, "-p", "go", *SONNET, "--max-time", "0")
    assert ran.code == 2
    assert "--max-time cannot be '0'; it must be a time above 0" in one_sentence(ran)


async def test_a_price_that_is_not_known_stops_a_budget_in_money_with_what_to_do():
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", "--model", "anthropic/mystery-1", "--max-cost", "1")
        assert server.generation_requests == []
    assert ran.code == 4
    line = one_sentence(ran)
    assert "the price of anthropic/mystery-1 is not known" in line
    assert "limit the tokens instead; to continue with a limit of tokens: treadle -p " in line
    assert line.rstrip().endswith(" --max-tokens N")


async def test_a_limit_of_the_settings_that_has_no_price_is_named_with_its_place():
    config = Path.home() / ".treadle" / "config.toml"
    config.parent.mkdir()
    config.write_text("max_cost = 1\n")
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", "--model", "anthropic/mystery-1", "--max-tokens", "9")
        assert server.generation_requests == []
    assert ran.code == 4
    line = one_sentence(ran)
    assert "and without max_cost (set by " in line
    assert "config.toml:1): treadle -p --resume " in line


async def test_without_a_budget_of_ones_own_an_unknown_price_is_told_in_a_line():
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", "--model", "anthropic/mystery-1")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert "no cost limit: the price of anthropic/mystery-1 is unknown" in one_sentence(ran)


# ------------------------------------------------------------------ windows


async def test_a_window_too_small_for_the_fixed_part_is_said_before_anything_is_sent():
    config = Path.home() / ".treadle" / "config.toml"
    config.parent.mkdir()
    config.write_text('[aliases.tiny]\nmodel = "anthropic/claude-sonnet-5-5"\nwindow = 600\n')
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", "--model", "tiny")
        assert server.generation_requests == []
    assert ran.code == 1
    line = one_sentence(ran)
    assert "the instructions and tools alone need about" in line
    assert "choose a model with a larger window" in line


# ------------------------------------------------------------------ memory


async def trusting(*files: tuple[str, bytes], links: dict[str, str] | None = None) -> None:
    for name, data in files:
        Path(name).write_bytes(data)
    for name, target in (links or {}).items():
        Path(name).symlink_to(target)
    assert (await run(None, "trust")).code == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x" * 100_000, "AGENTS.md: has 100,000 characters; only the first 40,000 are read"),
        (b"a\0b", "AGENTS.md: is binary; it is left out"),
        (b"@AGENTS.md", "AGENTS.md: @AGENTS.md is a circular import; it is left out"),
        (b"@../secret", "AGENTS.md: @../secret is outside the workspace; it is left out"),
        (b"@nothing.md", "AGENTS.md: @nothing.md does not exist; it is left out"),
    ],
    ids=["long", "binary", "circular", "outside", "missing"],
)
async def test_a_memory_file_with_a_problem_is_named_and_the_work_goes_on(data, words):
    await trusting(("AGENTS.md", data))
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", *SONNET, "--verbose")
        [request] = server.generation_requests
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert words in ran.err
    assert len(request.body) < 200_000


async def test_a_memory_file_that_is_a_link_out_of_the_workspace_is_not_read(own_place: Path):
    (own_place / "secret").write_text("the secret")
    await trusting(links={"CLAUDE.md": str(own_place / "secret")})
    async with ProviderServer([DONE]) as server:
        ran = await run(server, "-p", "go", *SONNET, "--verbose")
        [request] = server.generation_requests
    assert ran.code == 0
    assert f"CLAUDE.md: leaves {Path.cwd()} through a symlink; it is not read" in ran.err
    assert b"the secret" not in request.body


# ------------------------------------------------------------------ sessions that go on


@pytest.mark.parametrize(
    ("flag", "limit", "words"),
    [
        ("--max-cost", "0.61", "leaves only $0.004 ($0.61 used before this run); nothing was sent"),
        (
            "--max-tokens",
            "64000",
            " 1,000 tokens (63,000 tokens used before this run); nothing was",
        ),
    ],
)
async def test_money_and_tokens_are_the_session_s_with_its_children_and_a_fork_begins_anew(
    flag: str, limit: str, words: str
):
    task = FakeCall("task", {"description": "a part", "prompt": "child"})
    replies = [FakeReply(calls=(task,), usage=DEAR), *[FakeReply("Done.", usage=DEAR)] * 2]
    flags = (*SONNET, "--output-format", "json", "--allow", "Task")
    async with ProviderServer([*replies, DONE, DONE, DONE]) as server:
        first = await run(server, "-p", "go", *flags)
        session = first.lines[0]["session_id"]
        again = await run(server, "-p", "more", *flags, "--resume", session, flag, limit)
        forked = (await run(None, "sessions", "fork", session)).out.split(":")[0]
        fork = await run(server, "-p", "more", *flags, "--resume", forked, flag, limit)
    assert (first.code, again.code, fork.code, server.violations) == (0, 4, 0, [])
    assert words in again.lines[0]["detail"]
    assert len(server.generation_requests) == 4  # three, and the one of the fork
