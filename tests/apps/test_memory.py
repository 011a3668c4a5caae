"""Memory that the agent keeps: proposed by the model, accepted by the user, read at the start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.cli.main import run
from treadle.apps.settings.kept_memory import open_memory_lines, run_memory_action
from treadle.apps.settings.settings import Settings
from treadle.context.memory_lines import MAX_PROPOSED, PROMPT_CHARS, format_for_prompt
from treadle.core.errors import ConfigError
from treadle.core.steps import Finished
from treadle.core.transcript.items import ToolResultItem
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

KEY = "ghp_" + "a1B2" * 9
PROPOSALS: tuple[dict[str, object], ...] = (
    {"text": f"Tests need   the token\n{KEY}."},
    {"text": "Answer in German.", "scope": "user"},
)
CALLS = FakeReply(calls=tuple(FakeCall("remember", arguments) for arguments in PROPOSALS))


async def work(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch, *, memory: bool = True
) -> tuple[str, list[ToolResultItem]]:
    """The system prompt of a session's first request, and the results of its calls."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    given = Settings(model="anthropic/claude-sonnet-4-5", permission_mode="plan", memory=memory)
    first = len(server.requests)
    session = await build_agent(given, Path.cwd(), SessionOptions(checkpoints=False))
    driver = session.start("work")
    try:
        while not isinstance(step := await driver.next(), Finished):
            pass
        assert step.result.error is None
        results = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
    finally:
        await driver.aclose()
        await session.aclose()
    return json.dumps(server.requests[first].json["system"]), results


async def test_a_proposed_line_is_used_once_it_is_accepted_and_until_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    here, other = Path.cwd(), Path.cwd() / "other"
    (other / ".git").mkdir(parents=True)
    async with ProviderServer([CALLS, *[FakeReply("fine")] * 5]) as server:
        _, results = await work(server, monkeypatch)
        assert [one.is_error for one in results] == [False, False]
        assert "/memory accept 1" in results[0].display
        lines = open_memory_lines(here).list_lines()
        assert {line.source.split()[1] for line in lines} == {one.call_id for one in results}
        assert KEY not in (Path.home() / ".treadle/memory.json").read_text()
        assert not (here / "AGENTS.md").exists()
        assert "German" not in (await work(server, monkeypatch))[0]

        assert run(["memory", "accept", "1", "2"]) == 0
        assert run(["memory", "edit", "1", "Tests", "need", "a", "token."]) == 0
        prompt, _ = await work(server, monkeypatch)
        assert "- Answer in German.\\n- Tests need a token." in prompt
        assert run(["memory"]) == 0
        assert f"project  Tests need a token.  (session {lines[1].source.split()[0]}" in (
            capsys.readouterr().out
        )
        assert "German" not in (await work(server, monkeypatch, memory=False))[0]
        monkeypatch.chdir(other)
        prompt, _ = await work(server, monkeypatch)
        assert "German" in prompt
        assert "token" not in prompt

        assert run(["memory", "forget", "2"]) == 0
        assert run(["memory", "forget", "1"]) != 0, "a line of another project"
    assert "no line of memory has the number 1" in capsys.readouterr().err


def test_several_programs_that_add_lines_lose_none():
    code = (
        "import sys; from pathlib import Path;"
        "from treadle.apps.settings.kept_memory import open_memory_lines;"
        "lines = open_memory_lines(Path.cwd());"
        "[lines.propose(f'{sys.argv[1]} {n}', 'user', f's{sys.argv[1]} {n}') for n in range(8)]"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, name], env={**os.environ})
        for name in ("a", "b", "c")
    ]
    assert [one.wait() for one in running] == [0, 0, 0]
    lines = open_memory_lines(Path.cwd()).list_lines()
    assert sorted(line.id for line in lines) == list(range(1, 25))
    assert {line.text for line in lines} == {f"{name} {n}" for name in "abc" for n in range(8)}


def test_the_same_line_and_the_same_call_are_kept_once_and_too_many_are_refused():
    lines = open_memory_lines(Path.cwd())
    for number in range(MAX_PROPOSED):
        lines.propose(f"fact {number}", "project", f"s call_{number}")
    assert lines.propose("fact 3", "project", "s other").id == 4
    assert lines.propose("fact 3, again", "project", "s call_3").id == 4
    with pytest.raises(ConfigError, match="wait for the user's decision"):
        lines.propose("one more", "project", "s more")
    with pytest.raises(ConfigError, match="400 at most"):
        lines.add("x" * 500, "user")
    assert lines.add("of the user", "project").is_accepted


def test_the_newest_lines_fill_the_room_in_the_prompt_and_the_rest_is_named():
    lines = open_memory_lines(Path.cwd())
    for number in range(40):
        lines.add(f"{number:03} " + "x" * 390, "project")
    text, problem = format_for_prompt(lines.list_lines())
    assert len(text) <= PROMPT_CHARS
    assert "039 " in text
    assert "000 " not in text
    assert "only the newest 15 of 40 lines fit" in problem


async def test_a_damaged_file_is_named_and_never_overwritten(monkeypatch: pytest.MonkeyPatch):
    file = Path.home() / ".treadle/memory.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{half")
    async with ProviderServer([CALLS, FakeReply("fine")]) as server:
        _, results = await work(server, monkeypatch)
    assert "the line is not kept" in results[0].text
    with pytest.raises(ConfigError, match=r"memory\.json"):
        run_memory_action(Path.cwd(), ["add", "a line"])
    assert file.read_text() == "{half"
