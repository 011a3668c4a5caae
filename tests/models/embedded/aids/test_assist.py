"""What the layer does around a change that a capable small model makes, and for a weak model, which
writes no answer; replies are scripted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.embedded.tool_specs import content, is_there, write
from treadle.agents.agent import Agent
from treadle.core.errors import ToolError
from treadle.core.loop.turn_end import NOT_DONE_DETAIL
from treadle.core.transcript import AssistantItem, ToolCall, Transcript
from treadle.models.embedded import Assisted, Embedded
from treadle.models.embedded.server import CompletionChunk
from treadle.models.embedded.weights import SMOLLM2
from treadle.tools.function import FunctionTool


class ScriptedServer:
    """Replaces the server: gives scripted texts, and keeps the grammars."""

    def __init__(self, *texts: str | dict[str, str]) -> None:
        self.texts = [one if isinstance(one, str) else json.dumps(one) for one in texts]
        self.grammars: list[str] = []

    async def has_prefix(self, prefix: str) -> bool:
        return True

    async def load_prefix(self, prefix: str) -> None:
        pass

    async def count_tokens(self, text: str) -> int:
        return len(text) // 4

    async def complete(self, prompt: str, **options: Any) -> AsyncIterator[CompletionChunk]:
        self.grammars.append(str(options.get("grammar", "")))
        text = self.texts.pop(0).replace('": "', '":"').replace('", "', '","')
        yield CompletionChunk(text, output_tokens=7)

    async def complete_text(self, prompt: str, **options: Any) -> CompletionChunk:
        return [chunk async for chunk in self.complete(prompt, **options)][-1]

    async def aclose(self) -> None:
        pass


def tools() -> list[FunctionTool]:
    def ls(path: str) -> str:
        """List files."""
        return "\n".join(sorted(one.name for one in Path(path).glob("*.py")))

    def read(path: str) -> str:
        """Read a file."""
        if not is_there(path):
            raise ToolError(f"no such file: {path}")
        return content(path)

    def edit(path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Change a file."""
        text = content(path)
        if not text.count(old) or (text.count(old) > 1 and not replace_all):
            raise ToolError(f"found {text.count(old)} times")
        write(path, text.replace(old, new))
        return "changed"

    def write_file(path: str, content: str) -> str:
        """Make a file."""
        write(path, content)
        return "written"

    write_tool = FunctionTool(write_file, name="write")
    return [FunctionTool(ls), FunctionTool(read), FunctionTool(edit), write_tool]


async def run(
    server: ScriptedServer,
    prompt: str,
    offered: list[FunctionTool] | None = None,
    *,
    is_weak: bool = False,
) -> Any:
    write("weights.gguf", b"")
    made = Embedded(path="weights.gguf")
    made.server = server  # type: ignore[assignment]
    if is_weak:
        made._weights = SMOLLM2
    return await Agent(Assisted(made), tools() if offered is None else offered).run(prompt)


def calls(transcript: Transcript) -> list[ToolCall]:
    return [call for item in transcript if isinstance(item, AssistantItem) for call in item.calls]


async def test_the_folder_and_the_files_are_shown_before_a_change() -> None:
    write("shop.py", "def calc():\n    return 1\n\n\nprint(calc())\n")
    edit = {"tool": "edit", "path": "shop.py", "old": "calc", "new": "total"}
    server = ScriptedServer(edit)
    result = await run(server, "Rename calc to total in shop.py")
    assert [(call.name, call.by) for call in calls(result.transcript)] == [
        ("ls", "engine"),
        ("read", "engine"),
        ("edit", ""),
    ]
    assert content("shop.py") == "def total():\n    return 1\n\n\nprint(total())\n"
    assert (result.reason, result.text) == ("end_turn", "In shop.py, `calc` became `total`.")
    (first,) = server.grammars
    assert "return 1" in first  # the old text is a line of the file, or a name of the request
    assert "answer" not in first


async def test_a_line_that_is_replaced_keeps_its_indent() -> None:
    write("a.py", "def f():\n    return 1\n")
    edit = {"tool": "edit", "path": "a.py", "old": "return 1", "new": "    return 2"}
    await run(ScriptedServer(edit), "Change a.py so that f returns 2")
    assert content("a.py") == "def f():\n    return 2\n"


async def test_a_file_is_written_as_plain_text() -> None:
    call = {"tool": "write", "path": "hello.py"}
    code = "def main():\n    print('hi')\n\n\nmain()"
    server = ScriptedServer(call, code)
    result = await run(server, "Create a script hello.py that prints hi")
    assert content("hello.py") == f"{code}\n"
    assert (result.reason, result.text) == ("end_turn", "I wrote hello.py.")


async def test_a_request_for_several_changes_ends_when_the_model_says_so() -> None:
    write("a.py", "x = 1\ny = 1\n")
    edits = [{"tool": "edit", "path": "a.py", "old": f"{n} = 1", "new": f"{n} = 2"} for n in "xy"]
    result = await run(ScriptedServer(*edits, {"answer": "Done."}), "Set x and y in a.py to 2")
    assert content("a.py") == "x = 2\ny = 2\n"
    assert (result.reason, result.text) == ("end_turn", "Done.")


async def test_an_edit_of_a_file_that_was_not_read_reads_it() -> None:
    write("deep.py", "x = 1\n")
    edit = {"tool": "edit", "path": "deep.py", "old": "x = 1", "new": "x = 2"}
    server = ScriptedServer(edit, edit)
    result = await run(server, "Fix the wrong variable")
    assert [call.name for call in calls(result.transcript)] == ["ls", "read", "edit"]
    assert content("deep.py") == "x = 2\n"


async def test_an_answer_instead_of_the_change_is_not_a_success() -> None:
    write("a.py", "x = 1\n")
    wrong = {"tool": "edit", "path": "a.py", "old": "y = 1", "new": ""}
    others = [wrong | {"new": f"z = {number}"} for number in range(2)]
    server = ScriptedServer(wrong, *others, {"answer": "It is fixed."})
    result = await run(server, "Remove the unused variable from a.py")
    assert result.reason == "refused"
    assert result.detail == NOT_DONE_DETAIL
    assert result.text.startswith("It is fixed.\n\nThis is not done.")
    assert content("a.py") == "x = 1\n"


@pytest.mark.parametrize(
    "prompt",
    [
        "Why does add return the wrong result?",
        "How do I reverse a list in Python?",
        "I need a snake game in pygame",
        "Review my code",
        "Write sort.py",
        "Schreibe eine Funktion, die eine Liste umdreht",
        "Écris une fonction qui trie une liste",
    ],
)
async def test_a_weak_model_writes_no_answer_and_says_what_it_can_do(prompt: str) -> None:
    result = await run(ScriptedServer(), prompt, is_weak=True)
    assert result.text.startswith(f"This is not done. {SMOLLM2.note}")
    assert "treadle login" in result.text
    assert "treadle tour" in result.text
    assert (result.reason, result.detail) == ("refused", NOT_DONE_DETAIL)
    assert calls(result.transcript) == []


@pytest.mark.parametrize("prompt", ["hello", "What can you do?", "Was kannst du?", "Merci !"])
async def test_small_talk_with_a_weak_model_is_a_success(prompt: str) -> None:
    result = await run(ScriptedServer(), prompt, is_weak=True)
    assert result.text.startswith(f"{SMOLLM2.note}\n\nAsk for example")
    assert "treadle tour" in result.text
    assert result.reason == "end_turn"


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("What does add.py do?", "end_turn"),
        ("Zeig mir add.py", "end_turn"),
        ("Muéstrame add.py", "end_turn"),
        ("Review add.py", "refused"),
        ("Repariere add.py", "refused"),
    ],
)
async def test_a_weak_model_shows_the_file_and_adds_no_word(prompt: str, reason: str) -> None:
    write("add.py", "def add(a, b):\n    return a - b\n")
    result = await run(ScriptedServer(), prompt, is_weak=True)
    assert result.text.startswith("add.py:\n\n```\ndef add(a, b):\n    return a - b\n```")
    assert result.reason == reason
    assert ("This is not done." in result.text) == (reason == "refused")


async def test_a_file_that_does_not_exist_is_no_success() -> None:
    result = await run(ScriptedServer(), "Show me gone.py", is_weak=True)
    assert result.text == "That did not work: no such file: gone.py"
    assert result.reason == "refused"


async def test_an_answer_that_a_weak_model_begins_is_not_shown() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    server = ScriptedServer({"answer": "I add joy."})
    result = await run(server, "Add something to my day", [FunctionTool(add)], is_weak=True)
    assert "answer" in server.grammars[0]
    assert "joy" not in result.text
    assert result.reason == "refused"
