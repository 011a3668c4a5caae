"""What other programs send is answered by the script, and measured, as it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import treadle
from benchmarks.peers.recorded.first_requests import SHELL_TURNS, ShellTurns, load_rows
from benchmarks.peers.recorded.program_calls import translate
from benchmarks.peers.recorded.recorder import Recorded, Recorder, serve, split_sizes
from benchmarks.peers.recorded.session_cost import find_purpose, measure_requests, read_any_request
from treadle.testing.provider import FakeCall

READ = FakeCall("read", {"file_path": "a.py", "offset": 3, "limit": 2})
EDIT = FakeCall("edit", {"file_path": "a.py", "old_string": "two", "new_string": "2"})


@pytest.mark.parametrize("model", ["anthropic/claude-opus-5-5", "openai/gpt-6.1-sol"])
async def test_a_program_gets_its_shell_turns_and_its_first_request_is_split(
    model: str, own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    turns = ShellTurns()
    turns.wanted = 2
    async with serve(Recorder(turns.answer)) as recorder:
        for maker, path in (("ANTHROPIC", ""), ("OPENAI", "/v1")):
            monkeypatch.setenv(f"{maker}_BASE_URL", recorder.url + path)
            monkeypatch.setenv(f"{maker}_API_KEY", "k")
        async with treadle.coding_agent(
            own_place, model=model, permission_mode="bypass", sandbox="off"
        ) as agent:
            result = await agent.run("say hi")
    assert result.text == "Hi."
    assert len(recorder.requests) == 3
    assert "hello 1" in json.dumps(recorder.requests[-1].body)
    parts = split_sizes(recorder.requests[0])
    assert parts.tools > parts.system > parts.messages > 0
    assert 0 < parts.all - parts.system - parts.tools - parts.messages < 500


@pytest.mark.parametrize(
    ("offered", "read", "edit"),
    [
        ({"Read", "Edit", "Bash"}, ("Read", "a.py"), ("Edit", '"old_string":"two"')),
        ({"exec_command"}, ("exec_command", "sed -n 3,4p"), ("exec_command", "-one two\\n+one 2")),
        ({"exec", "wait"}, ("exec", "tools.exec_command"), ("exec", "tools.apply_patch")),
    ],
)
def test_a_call_is_written_for_the_tools_that_are_offered(
    offered: set[str], read: tuple[str, str], edit: tuple[str, str], tmp_path: Path
):
    (tmp_path / "a.py").write_text("one two\nthree\n")
    for call, (name, part) in ((READ, read), (EDIT, edit)):
        made = translate(call, offered, tmp_path)
        assert made.name == name
        assert part in made.raw


def test_what_an_earlier_request_had_is_read_from_the_cache():
    def make(*texts: str, model: str = "m") -> dict[str, Any]:
        items = [{"id": f"i{text}{len(texts)}", "role": "user", "text": text} for text in texts]
        return {"model": model, "tools": [{"name": "exec"}], "input": items}

    bodies = [make("a"), make("a", "b"), make("c"), make("a", "b", model="other")]
    assert {find_purpose(body) for body in bodies} == {"turn"}
    cached = [one.cached for one in measure_requests([("turn", body) for body in bodies])]
    head = read_any_request(make()).size
    assert cached == [0, read_any_request(bodies[0]).size, head, 0]


def test_a_request_without_tools_is_for_a_title_and_tools_may_be_items():
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}]}
    assert find_purpose(body) == "title"
    body["input"] = [{"type": "additional_tools", "role": "developer", "tools": [{"name": "exec"}]}]
    assert find_purpose(body) == "turn"
    parts = split_sizes(Recorded("/v1/responses", 100, body))
    assert (parts.system, parts.messages) == (2, 2)
    assert parts.tools > 2


def test_the_kept_figures_are_of_whole_runs():
    assert SHELL_TURNS == 20
    assert all(row.after_commands > row.first.all > row.first.tools for row in load_rows())
