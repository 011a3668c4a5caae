"""Repairs, with a model whose completions are scripted and files and checks that are real."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.models.embedded.tool_specs import CODING, content, write
from treadle.agents.agent import Agent
from treadle.core.contracts.hook import Block, HookInput, HookPoint
from treadle.core.contracts.model import ModelRequest, Reply
from treadle.core.errors import ToolError
from treadle.core.transcript import (
    AssistantItem,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models.embedded import Assisted, Embedded
from treadle.models.embedded.aids import repair
from treadle.models.embedded.server import CompletionChunk
from treadle.models.embedded.small_toolset import select_small_tools
from treadle.tools.function import FunctionTool

PROGRAM = """\
def half(number):
    return number / 3


def double(number):
    result = number * 2
    return result
"""
CHECK = "from maths import half\n\nassert half(8) == 4, half(8)\n"
ASKED = "The check `python3 -B test_maths.py` fails. Fix it."


@pytest.fixture(autouse=True)
def plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two new lines, then the first again: short enough to script the answers."""
    steps = (("line", -1), ("line", -1), ("line", 0), ("line", 0), ("function", 0))
    monkeypatch.setattr(repair, "PLAN", steps)


class FakeServer:
    """Replaces the server: returns scripted lines and records the questions."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def has_prefix(self, prefix: str) -> bool:
        return True

    async def load_prefix(self, prefix: str) -> None:
        pass

    async def complete_text(self, prompt: str, **options: Any) -> CompletionChunk:
        self.asked.append(str(options["grammar"]))
        return CompletionChunk(self.answers.pop(0), output_tokens=7)

    async def aclose(self) -> None:
        pass


def model(server: FakeServer) -> Assisted:
    Path("weights.gguf").write_bytes(b"")
    made = Embedded(path="weights.gguf")
    made.server = server  # type: ignore[assignment]
    return Assisted(made)


def line(wrong: str, right: str) -> str:
    return f"Wrong: {wrong}\nRight: {right}\n"


def tools() -> list[FunctionTool]:
    def read(path: str) -> str:
        """Read a file."""
        if not Path(path).exists():
            raise ToolError(f"no such file: {path}")
        return Path(path).read_text()

    def edit(path: str, old: str, new: str) -> str:
        """Change a file."""
        text = read(path)
        if text.count(old) != 1:
            raise ToolError(f"found {text.count(old)} times")
        Path(path).write_text(text.replace(old, new))
        return "changed"

    def bash(command: str) -> str:
        """Run a command."""
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        return done.stdout + done.stderr

    return [FunctionTool(read), FunctionTool(edit), FunctionTool(bash)]


def project() -> None:
    write("maths.py", PROGRAM)
    write("test_maths.py", CHECK)


def calls(transcript: Transcript) -> list[ToolCall]:
    return [call for item in transcript if isinstance(item, AssistantItem) for call in item.calls]


def tries(transcript: Transcript) -> list[str]:
    replies = [item for item in transcript if isinstance(item, AssistantItem)]
    return [item.text for item in replies if item.text.startswith("Try ")]


async def test_a_wrong_change_is_undone_and_the_next_one_tried_until_the_check_passes() -> None:
    project()
    server = FakeServer(
        line("return number / 3", "return number / 4"),
        line("def half(number):", "def half(number):"),  # looks right: costs no try
        line("return number / 3", "return number / 2"),
    )
    result = await Agent(model(server), tools()).run(ASKED)
    assert content("maths.py") == PROGRAM.replace("/ 3", "/ 2")
    assert "`return number / 3` became `return number / 2`" in result.text
    assert "`python3 -B test_maths.py` passes" in result.text
    assert tries(result.transcript) == [
        "Try 1: line 2 of maths.py.",
        "Try 3: line 2 of maths.py. Lines that look right: 1 of maths.py.",
    ]
    assert "return result" not in server.asked[0]  # the check speaks of half alone


async def test_a_repair_goes_on_from_its_transcript_alone() -> None:
    project()
    first = FakeServer(line("return number / 3", "return number / 4"))
    driver = Agent(model(first), tools()).start(prompt=ASKED)
    while not tries(driver.transcript) or not content("maths.py").count("/ 4"):
        await driver.next()
    crashed = Transcript(driver.transcript)
    await driver.aclose()
    second = FakeServer(
        line("def half(number):", "def half(number, by):"),
        line("return number / 3", "return number / 2"),
    )
    chat = Agent(model(second), tools()).start(history=crashed)
    while second.answers:
        await chat.next()
    assert "return number / 3" not in second.asked[0]  # it was named before the crash
    assert [text.split(":")[0] for text in tries(chat.transcript)] == ["Try 1", "Try 2", "Try 3"]
    await chat.aclose()


async def test_the_notice_of_a_goal_names_the_check_by_its_data() -> None:
    failed = "The command `rm -rf x` failed: AssertionError"
    for data, check in (({"goal_command": "pytest -q"}, "pytest -q"), (None, "")):
        notice = NoticeItem(failed, kind="stop_hook", next_move="ask", data=data)
        transcript = Transcript([to_user_item("Make it work."), notice])
        state = repair.read_repair_state(transcript, select_small_tools(CODING))
        assert state is not None
        assert state.check == check


async def test_when_nothing_helps_the_files_are_as_they_were() -> None:
    project()
    wrong = [line("return number / 3", f"return number / {n}") for n in range(10, 40)]
    result = await Agent(model(FakeServer(*wrong)), tools()).run(ASKED)
    assert "no change that makes the check pass" in result.text
    assert content("maths.py") == PROGRAM


class Goal:
    points: frozenset[HookPoint] = frozenset({"stop"})

    async def run(self, hook_input: HookInput) -> Block | None:
        command = ["python3", "-B", "test_maths.py"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        if done.returncode == 0:
            return None
        return Block(f"The goal `python3 -B test_maths.py` is not met:\n{done.stderr}")


async def test_without_a_shell_the_goal_does_the_checking() -> None:
    project()
    server = FakeServer(
        line("return number / 3", "return number / 4"),
        line("return number / 3", "return number / 2"),
        line("return number / 3", "return number / 2"),
    )
    read, edit, _ = tools()
    agent = Agent(model(server), [read, edit], hooks=[Goal()])
    notice = NoticeItem(
        'The goal `python3 -B test_maths.py` is not met:\n  File "test_maths.py", line 3\n'
        "    assert half(8) == 4\nAssertionError: 2.67",
        kind="stop_hook",
        next_move="ask",
        data={"goal_command": "python3 -B test_maths.py"},
    )
    driver = agent.start(history=[to_user_item("Make it work."), notice])
    while "/ 2" not in content("maths.py"):
        await driver.next()
    assert len(tries(driver.transcript)) == 2
    await driver.aclose()


async def test_edits_that_keep_being_refused_end_the_repair_with_the_reason() -> None:
    project()
    read, _, bash = tools()

    def edit(path: str, old: str, new: str) -> str:
        """Change a file."""
        raise ToolError("nobody is there to allow this")

    wrong = [line("return number / 3", f"return number / {n}") for n in range(10, 20)]
    server = FakeServer(*wrong)
    result = await Agent(model(server), [read, FunctionTool(edit), bash]).run(ASKED)
    assert result.text.endswith("nobody is there to allow this")
    assert len(tries(result.transcript)) == 2


async def test_a_question_with_a_command_in_it_is_no_repair() -> None:
    transcript = Transcript([to_user_item("What does `git status` do?")])
    assert repair.read_repair_state(transcript, select_small_tools(CODING)) is None


async def test_the_account_of_a_repair_counts_what_was_generated() -> None:
    project()
    server = FakeServer(line("return number / 3", "return number / 2"))
    result = await Agent(model(server), tools()).run(ASKED)
    assert result.usage.output == 7
    assert result.cost == 0.0


async def test_the_first_step_needs_no_thinking() -> None:
    offered = tuple(tool.spec for tool in tools())
    request = ModelRequest(Transcript([to_user_item(ASKED)]), tools=offered)
    *_, last = [event async for event in model(FakeServer()).stream(request)]
    assert isinstance(last, Reply)
    (call,) = last.item.calls
    assert call.name == "bash"
    assert "python3 -B test_maths.py" in call.raw


async def test_without_a_named_check_the_tests_of_the_folder_are_it() -> None:
    write("maths.py", PROGRAM)
    write(
        "test_maths.py", "from maths import half\n\n\ndef test_half():\n    assert half(8) == 4\n"
    )
    server = FakeServer(line("return number / 3", "return number / 2"))
    agent = Agent(model(server), tools())
    result = await agent.run("half returns the wrong number. Fix it.")
    assert "number / 2" in content("maths.py")
    assert "test_maths.py" in str([call.raw for call in calls(result.transcript)])
    assert result.reason == "end_turn"
    assert result.text.endswith("passes.")


async def test_a_repair_that_found_nothing_says_so_with_its_reason() -> None:
    project()
    server = FakeServer(*[line("return number / 3", "return number / 3")] * 4, "")
    agent = Agent(model(server), tools())
    result = await agent.run(ASKED)
    assert (result.reason, result.text[:30]) == ("refused", repair.GIVE_UP_TEXT[:30])
    assert content("maths.py") == PROGRAM


@pytest.mark.parametrize("output", ["[check passed]", "/usr/bin/python3: No module named pytest"])
async def test_a_check_that_was_found_and_does_not_fail_leads_no_repair(output: str) -> None:
    listing = ToolCall("c1", "Bash", '{"command":"ls -a ."}')
    offers = select_small_tools(CODING)
    begun = Transcript(
        [
            to_user_item("Fix the bug"),
            AssistantItem((listing,), stop="tool_use"),
            ToolResultItem("c1", "Bash", (Text("a.py\ntest_a.py\n"),)),
        ]
    )
    state = repair.read_repair_state(begun, offers)
    assert state is not None
    assert state.check.endswith("no:cacheprovider")
    check = ToolCall("c2", "Bash", json.dumps({"command": state.check}))
    ran = begun.append(AssistantItem((check,), stop="tool_use"))
    ran = ran.append(ToolResultItem("c2", "Bash", (Text(output),), is_error="No" in output))
    assert repair.read_repair_state(ran, offers) is None
