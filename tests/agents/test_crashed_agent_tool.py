"""An agent with an output function as a tool, in a process that `kill -9` ends after its answer."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

PROGRAM = """
import asyncio, os, signal, sys
from dataclasses import dataclass
from treadle import Agent, ToolError, tool
from treadle.contracts import HookInput, ModelCard, ModelRequest
from treadle.hooks import hook
from treadle.models import Say, Scripted

place, answers = sys.argv[1:]

def note(line):
    with open("notes", "a") as file:
        file.write(line + "\\n")

def die_at(here):
    if place == here and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

@tool(effect="irreversible")
def pay(amount: int) -> str:
    "Pay for the data."
    note("paid")
    return "paid"

@dataclass
class Weather:
    degrees: int

async def measure(city: str) -> Weather:
    "Measure."
    die_at(f"at {city}")
    if city == "Gratz":
        raise ToolError("no city is called Gratz")
    return Weather(len(city))

def answer(city):
    call = Say(calls=[("final_answer", {"city": city})])
    return call if answers == "tool" else f'{{"city": "{city}"}}'

def reply(request: ModelRequest):
    items = request.transcript
    said = " ".join(item.text for item in items)
    if not any(getattr(item, "name", "") == "pay" for item in items):
        return Say(calls=[("pay", {"amount": 5})])
    note("answered")
    return answer("Graz" if "no city" in said else "Gratz")

@hook("post_tool_use", matcher="weather")
def die_after(hook_input: HookInput):
    die_at("after it")

abilities = {"tools"} if answers == "tool" else {"tools", "schema"}
card = ModelCard("scripted", abilities=frozenset(abilities))
asker = Agent(Scripted(reply, card=card), [pay], output_type=measure)

def tell(request: ModelRequest):
    results = [item for item in request.transcript if getattr(item, "name", "") == "weather"]
    return results[0].text if results else Say(calls=[("weather", {"prompt": "In Graz?"})])

weather = asker.as_tool("weather", "Knows it.")
agent = Agent(Scripted(tell), [weather], hooks=[die_after], store="s.db")

async def main():
    async with agent.session("a") as session:
        result = await session.run(None if session.can_continue else "How warm is it?")
        assert not session.doubts
        print(result.text)

asyncio.run(main())
"""


@pytest.mark.parametrize("answers", ["schema", "tool"])
@pytest.mark.parametrize("place", ["at Gratz", "at Graz", "after it", "nowhere"])
def test_the_answer_that_an_output_function_makes_survives_a_kill(
    place: str, answers: str, tmp_path: Path
):
    command = [sys.executable, "-c", PROGRAM, place, answers]

    def start() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    done = start()
    if place != "nowhere":
        assert done.returncode == -signal.SIGKILL, done.stderr
        done = start()
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"degrees":4}\n'
    notes = (tmp_path / "notes").read_text().split()
    assert notes == ["paid", "answered", "answered"], "nothing was done or asked twice"
