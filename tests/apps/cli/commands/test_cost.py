"""`treadle cost`: what was really spent, read from real sessions."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import subprocess
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.apps.program import run as program
from treadle import Usage
from treadle.apps.cli.commands import cost
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError
from treadle.apps.conversation.costs import (
    format_cost,
    format_report,
    list_purposes,
    load_cost_report,
    load_session_cost,
)
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ItemAdded, UsageRecorded
from treadle.sessions.cost import CostTotal, format_local_day
from treadle.sessions.library import Library
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

LAST = FakeReply("That is all.")

PRICED = Usage(100, 1_000, cache_read=800, cache_write=100, requests=1, cost=1.25)
UNPRICED = Usage(1_000, 10, requests=1, cost=None)


async def spent(*calls: tuple[Any, ...], folder: str = ".", ago: float = 0.0) -> str:
    journal = Library().create(Path(folder))
    journal._clock = lambda: time.time() - ago
    journal.append(ItemAdded(to_user_item("Mend the parser, please")))
    for call in calls:
        journal.append(UsageRecorded(*call))
    await journal.aclose()
    return journal.session_id


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cost.run(list(arguments)) == 0
    return capsys.readouterr().out


async def test_days_models_and_projects_are_shown_with_bars(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    await spent(("anthropic/big", PRICED), ("anthropic/big", PRICED), ("openai/small", PRICED))
    await spent(("anthropic/big", PRICED), ago=3 * 86_400)
    text = shown(capsys)
    assert text.startswith("$5.00, 4 model calls, 4.0k tokens in (80% read from the cache, 10%")
    today = next(
        line for line in text.splitlines() if line.startswith(format_local_day(time.time()))
    )
    assert "█" in today
    assert "3.75" in today
    days = [line for line in text.splitlines() if line[:2] == "20"]
    assert len(days) == 4  # the two days between are there too, and empty
    assert "by model" in text
    assert all(len(line) <= 100 for line in text.splitlines())


async def test_an_unknown_price_is_unknown_and_the_bars_show_tokens_then(capsys):
    await spent(("own/model", UNPRICED))
    text = shown(capsys, "--by", "model")
    assert "unknown, 1 model call," in text
    assert "bars in tokens" in text
    assert "0.00" not in text
    await spent(("own/model", PRICED))
    assert "1.25 + unknown" in shown(capsys, "--by=model")


async def test_json_has_the_same_numbers(capsys):
    session = await spent(("m", PRICED), ("m", UNPRICED))
    given = json.loads(shown(capsys, "--json"))
    assert given["version"] == 1
    assert given["total"]["cost"] == 1.25
    assert (given["total"]["calls"], given["total"]["unpriced_calls"]) == (2, 1)
    assert given["by_session"][0]["key"] == session
    assert given["by_project"][0]["key"] == str(Path.cwd())
    assert {"by_day", "by_model"} <= given.keys()
    assert json.loads(shown(capsys, "--json", "--by", "day")).keys() == {
        "version", "since", "total", "thinking_cost", "by_day",
    }  # fmt: skip


async def test_what_the_calls_were_for_is_shown_if_it_differs(capsys):
    await spent(("m", PRICED, "turn"), ("m", PRICED, "turn"))
    assert "by purpose" not in shown(capsys)
    session = await spent(("m", PRICED, "turn"), ("m", PRICED, "side_question"))
    text = shown(capsys)
    assert "by purpose" in text
    assert "side question" in text
    assert list_purposes(session) == [("turn", "$1.25"), ("side question", "$1.25")]
    [turns, aside] = json.loads(shown(capsys, "--json", "--by", "purpose"))["by_purpose"]
    assert (turns["calls"], aside["calls"]) == (3, 1)


async def test_sessions_are_named_by_what_was_asked(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    session = await spent(("m", PRICED))
    assert f"{session} Mend the parser, please" in shown(capsys, "--by", "session")
    [one] = load_session_cost(session)
    assert (one.key, one.cost) == ("m", 1.25)


async def test_since_and_here_leave_out_the_rest(capsys, own_place: Path):
    (own_place / "other").mkdir()
    await spent(("m", PRICED), folder="../other")
    await spent(("m", PRICED), ago=10 * 86_400)
    assert "2 model calls" in shown(capsys)
    assert "1 model call," in shown(capsys, "--here")
    assert "1 model call," in shown(capsys, "--since", "7d")
    assert "2 model calls" in shown(capsys, "--since", "all")
    assert "no model calls since" in shown(capsys, "--here", "--since", "24h")


def test_nothing_spent_is_said(capsys):
    assert shown(capsys, "--since", "all") == "no model calls\n"
    assert shown(capsys, "--by", "file") == "no turns of sessions of this folder\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--by", "colour"],
            "--by cannot be 'colour'; it must be one of day, model, project",
        ),
        (["--by"], "--by needs a value"),
        (["--by", ""], "--by needs a value"),
        (["--html="], "--html needs a value"),
        (["--since", "yesterday"], "--since cannot be 'yesterday'; it must be a time such as 30d"),
        (["--since", "-3d"], "it must be a time"),
        (["--since", "2026-13-01"], "it must be a time"),
        (["--josn"], "unknown argument '--josn'"),
        (["--json=1"], "unknown argument '--json'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_exit_code_2(arguments, words, capsys):
    assert cost.run(arguments) == 2
    assert words in capsys.readouterr().err


def test_days_begin_at_midnight_and_hours_do_not():
    now = time.time()
    week, hours = cost.parse_since("7d", now), cost.parse_since("12h", now)
    assert week is not None
    assert time.localtime(week)[3:6] == (0, 0, 0)
    assert hours == now - 12 * 3_600
    assert cost.parse_since("2026-10-31", now) is not None
    with pytest.raises(UsageError):
        cost.parse_since("", now)


def test_little_money_keeps_its_digits():
    assert format_cost(CostTotal("x", 1, 0, Usage(cost=0.0021))) == "$0.0021"
    assert format_cost(CostTotal("x", 1, 0, Usage(cost=1234.5))) == "$1,234.50"
    assert format_cost(CostTotal("x", 1, 1, Usage())) == "unknown"


async def test_many_rows_are_summed_up_at_the_end():
    for number in range(25):
        await spent((f"model-{number:02}", PRICED))
    text = format_report(load_cost_report(["model"]), 80)
    assert text[-1] == "5 more: $6.25"


async def test_what_a_run_spent_is_there_afterwards():
    async with ProviderServer([FakeReply("Hello."), FakeReply("Hello.")]) as server:
        for model in ("sonnet", "anthropic/mystery-1"):
            assert (await program(server, "-p", "hi", "--model", model)).code == 0
        told = await program(server, "cost", "--json")
    known, unknown = json.loads(told.out)["by_model"]
    assert known["key"].startswith("anthropic/claude-sonnet")
    assert (known["calls"], known["input"], known["cost"] > 0) == (1, 100, True)
    assert (unknown["key"], unknown["cost"]) == ("anthropic/mystery-1", None)


async def test_a_page_shows_the_same_with_plots_and_nothing_from_elsewhere(capsys):
    Path("<b>here").mkdir()
    await spent(("anthropic/big", PRICED), ("<script>alert(1)</script>", PRICED), folder="<b>here")
    await spent(("own/model", UNPRICED), ago=3 * 86_400)
    assert "$2.50 + unknown, 3 model calls" in shown(capsys, "--html", "cost.html")
    page = Path("cost.html").read_text()
    assert "<script" not in page
    assert "<b>here" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert [word for word in ("http:", "https:", "src=", "@import", "url(") if word in page] == []
    plot = page.index('<svg class="chart" height="176"')
    ET.fromstring(page[plot : page.index("</svg>", plot) + 6])
    assert page.count("<g data-column=") == 7  # days, the empty ones too
    assert all(f">By {by}</h2>" in page for by in ("day", "model", "folder", "session"))
    assert cost.run(["--html", "no/such/folder.html"]) == exit_codes.IO_ERROR
    assert cost.run(["--html", "x.html", "--json"]) == exit_codes.USAGE_ERROR


async def test_a_page_of_nothing_says_so(capsys):
    shown(capsys, "--html", "cost.html")
    assert "$0.00, 0 model calls" in Path("cost.html").read_text()


async def test_thinking_has_its_price_in_the_total(capsys):
    thought = Usage(100, 2_000, reasoning=1_500, requests=1, cost=0.04)
    await spent(("anthropic/claude-opus-5-5", thought))
    assert "2.0k out (1.5k of it thinking, $0.03)" in shown(capsys)
    assert json.loads(shown(capsys, "--json"))["thinking_cost"] == pytest.approx(0.03)


async def test_the_cost_of_a_turn_belongs_to_its_files_its_commit_and_its_issue():
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], check=True, capture_output=True)

    def write(name: str) -> FakeCall:
        return FakeCall("write", {"file_path": name, "content": "x\n"})

    git("init", "-q")
    git("commit", "--allow-empty", "-qm", "nothing")
    freely = ("--permission-mode", "bypass", "--sandbox", "off")
    both = FakeReply(calls=(write("a.py"), write("b.py")))
    replies = [FakeReply("A question."), both, LAST, FakeReply(calls=(write("c.py"),)), LAST]
    async with ProviderServer(replies) as server:
        await program(server, "-p", "what?", *freely)
        await program(server, "-p", "both", "--continue", *freely)
        git("add", ".")
        git("commit", "-qm", "Write both\n\nCloses #12 and ABC-7, in UTF-8")
        await program(server, "-p", "one", "--continue", *freely)

    async def read(by: str) -> dict[str, float]:
        keys = ("--keys", "DEF,ABC") if by == "issue" else ()
        ran = await program(None, "cost", "--by", by, *keys, "--json")
        return {one["key"]: round(one["cost"], 6) for one in ran.lines[0][f"by_{by}"]}

    files, commits, issues = [await read(by) for by in ("file", "commit", "issue")]
    assert set(files) == {"a.py", "b.py", "c.py", "no file"}
    assert files["a.py"] == files["b.py"]
    whole = round(sum(files.values()), 6)
    [committed] = [key for key in commits if key.endswith("Write both")]
    assert set(commits) == {committed, "no commit"}
    assert commits[committed] == pytest.approx(files["a.py"] * 2 + files["no file"], abs=1e-5)
    assert set(issues) == {"#12", "ABC-7", "no issue"}
    assert issues["#12"] == issues["ABC-7"]
    numbers = await program(None, "cost", "--by", "issue")
    assert ("#12\n" in numbers.out, "-" in numbers.out) == (True, False), numbers
    misplaced = await program(None, "cost", "--by", "file", "--keys", "ABC")
    assert misplaced.code == exit_codes.USAGE_ERROR
    assert sum(issues.values()) == pytest.approx(whole, abs=1e-5)
    text = await program(None, "cost", "--by", "file")
    assert "  1 turn     a.py\n" in text.out
    outside = await program(None, "cost", "--by", "commit", "--html", "x.html")
    assert outside.code == exit_codes.USAGE_ERROR
