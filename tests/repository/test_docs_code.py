"""The Python blocks of the docs run, one after the other, against a provider on loopback. Blocks of
JSON and YAML can be read."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from treadle.testing import FakeCall, FakeReply, ProviderServer

DOCS = Path(__file__).parents[2] / "docs"
FLAGS = re.DOTALL | re.MULTILINE
BLOCK = re.compile(r"(?:<!-- replies: (.*?) -->\n)?```python\n(.*?)```", re.DOTALL)
# A program that is shown beside ours; the library is not installed here.
OF_LANGGRAPH = re.compile(r"<!-- of LangGraph -->\n```python\n(.*?)```", re.DOTALL)


def read_blocks(page: str) -> list[tuple[list[FakeReply], str]]:
    """The blocks of a page, each with the replies of the model that a comment before it gives."""
    found = BLOCK.findall(OF_LANGGRAPH.sub("", (DOCS / page).read_text()))
    return [([make_reply(one) for one in json.loads(said or "[]")], code) for said, code in found]


def make_reply(said: str | dict[str, Any]) -> FakeReply:
    if isinstance(said, str):
        return FakeReply(said)
    return FakeReply(calls=tuple(FakeCall(name, arguments) for name, arguments in said["calls"]))


async def run_block(code: str, page: str, module: types.ModuleType) -> None:
    """Run a block where the others of its page were run; one that calls a `_sync` function
    in a thread, as a program without an event loop."""
    if "_sync(" in code:
        await asyncio.to_thread(exec, compile(code, page, "exec"), vars(module))
        return
    compiled = compile(code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    ended = eval(compiled, vars(module))
    if inspect.isawaitable(ended):
        await ended


def set_environment(monkeypatch: pytest.MonkeyPatch, server: ProviderServer) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.setenv(key, "k")


# These have tests of their own, or show the code of an example.
ELSEWHERE = {"coming-from.md", "extending.md", "tutorial.md", "writing-tools.md"}
PAGES = [page.name for page in sorted(DOCS.glob("*.md")) if "```python" in page.read_text()]


# It imports an SDK, which takes seconds.
SLOW = {"models.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])
        for page in PAGES
        if page not in ELSEWHERE
    ],
)
async def test_every_block_runs(page: str, monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("code_of_the_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for replies, code in read_blocks(page):
        async with ProviderServer(replies) as server:
            set_environment(monkeypatch, server)
            await run_block(code, page, module)
            assert server.violations == []
            asked = [
                one for one in server.generation_requests if not one.path.endswith("/embeddings")
            ]
            assert len(asked) == len(replies)


def run_readme(code: str) -> None:
    exec(compile(code, "README.md", "exec"), vars(types.ModuleType("readme")))


def test_the_program_of_the_readme_runs_without_a_key(capsys: pytest.CaptureFixture[str]):
    [(_, code)] = read_blocks("../README.md")
    run_readme(code)
    assert capsys.readouterr().out == "2 + 3 = 5\n"


async def test_with_a_key_one_line_of_the_program_of_the_readme_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    [(_, code)] = read_blocks("../README.md")
    readme = (DOCS.parent / "README.md").read_text()
    [line] = re.findall(r'`(model = ".*?")`', readme)
    code, count = re.subn(r"^model = .*$", line, code, flags=re.MULTILINE)
    replies = [FakeReply(calls=(FakeCall("add", {"a": 2, "b": 3}),)), FakeReply("5")]
    async with ProviderServer(replies) as server:
        set_environment(monkeypatch, server)
        await asyncio.to_thread(run_readme, code)
        assert (server.violations, len(server.generation_requests)) == ([], 2)
    assert (capsys.readouterr().out, count) == ("5\n", 1)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_every_block_of_json_or_yaml_can_be_read(page: Path):
    from mkdocs.utils.yaml import yaml_load  # not for every worker that collects tests

    for language, text in re.findall(r"^```(json|yaml)\n(.*?)^```", page.read_text(), FLAGS):
        assert json.loads(text) if language == "json" else yaml_load(text)
