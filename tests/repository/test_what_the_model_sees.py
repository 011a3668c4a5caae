"""docs/what-the-model-sees.md is the first request of the coding agent, one model of each family.

UPDATE_REQUESTS=1 writes the page.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import treadle
from benchmarks.peers.recorded import first_requests
from treadle.testing.provider import FakeReply, ProviderServer

PAGE = Path(__file__).parents[2] / "docs" / "what-the-model-sees.md"
PROMPT = "The test in test_add.py fails. Make it pass."
SHOWN_FOLDER, SHOWN_DAY = "/home/user/project", "2026-11-16"


class Family(NamedTuple):
    title: str
    model: str
    url_variable: str
    key_variable: str
    path: str = ""  # after the address of the server


FAMILIES = (
    Family("Claude", "anthropic/claude-opus-5-5", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    Family("GPT", "openai/gpt-6.1-sol", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    Family("Gemini", "gemini/gemini-3.1-pro-preview", "GEMINI_BASE_URL", "GEMINI_API_KEY", "/v1"),
    Family("Open models", "ollama/qwen3-coder", "OLLAMA_HOST", "OLLAMA_API_KEY"),
)

# Bytes, with 60 for settings that the maker asks for (verbosity, reasoning of all turns). What a
# new tool adds has to be saved elsewhere.
LARGEST_FIRST_REQUEST = 16_060
INTRODUCTION = """\
# What the model sees

The whole first request of the coding agent for one model of each family: a trusted git repository
with two files, no memory files, skills or MCP servers, and this prompt: "{prompt}"
The tests write this page (`UPDATE_REQUESTS=1`) and fail when it is out of date.
The makers' own addresses get a web search, at most 65 bytes ([tools.md](tools.md#web-search)).
[context.md](context.md) explains the parts; `treadle prompt --tools` prints those of your folder.

| first request | model | system prompt | tools | all |
|---|---|--:|--:|--:|
{sizes}

Other coding agents, in their versions of November 2026, with a prompt of two words in an empty
repository; `python benchmarks/peers/recorded/first_requests.py` runs them and prints this table:

{peers}

The rest of a request is settings. [context.md](context.md#the-cache) has what a long session costs.

What changes later is appended: the permission mode (plan mode too), whether the user can answer,
changed files, tools of servers that started late. So these parts stay in the cache of the provider.
"""


@pytest.fixture
def project(own_place: Path) -> Path:
    """The same commit at each run."""
    (own_place / "add.py").write_text("def add(a, b):\n    return a - b\n")
    (own_place / "test_add.py").write_text(
        "from add import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    )
    day = "2026-11-16T12:00:00+00:00"
    who = {"NAME": "user", "EMAIL": "user@example.org", "DATE": day}
    env = {
        f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()
    }
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "add.py"],
        ["commit", "-q", "-m", "Add numbers"],
    ):
        subprocess.run(["git", *words], cwd=own_place, env={**os.environ, **env}, check=True)
    return own_place


async def record_request(
    family: Family, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    async with ProviderServer([FakeReply("Done.")]) as server:
        monkeypatch.setenv(family.url_variable, server.url + family.path)
        monkeypatch.setenv(family.key_variable, "k")
        async with treadle.coding_agent(folder, model=family.model, trust=True) as agent:
            await agent.run(PROMPT)
    [request] = server.generation_requests
    text = request.body.decode()
    shell = Path(os.environ.get("SHELL") or "/bin/sh").name
    here = f"Platform: {platform.system()} {platform.machine()}, shell {shell}"
    for old, new in (
        (str(folder), SHOWN_FOLDER),
        (datetime.now(UTC).strftime("%Y-%m-%d"), SHOWN_DAY),
        (here, "Platform: Linux x86_64, shell bash"),
    ):
        text = text.replace(old, new)
    body: dict[str, Any] = json.loads(
        re.sub(r'"prompt_cache_key":"[^"]*"', '"prompt_cache_key":"…"', text)
    )
    return body


def split_request(body: dict[str, Any]) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """System prompt, tools, and the rest of a request in any of the formats."""
    rest = dict(body)
    tools = rest.pop("tools")
    if "systemInstruction" in rest:
        (functions,) = [tool["functionDeclarations"] for tool in tools]
        return rest.pop("systemInstruction")["parts"][0]["text"], functions, rest
    if "instructions" in rest:
        return rest.pop("instructions"), tools, rest
    if "system" in rest:
        return rest.pop("system")[0]["text"], tools, rest
    system, *messages = rest["messages"]
    return system["content"], tools, {**rest, "messages": messages}


def format_size(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{len(text.encode()) / 1000:.1f} KB"


def render_family(family: Family, body: dict[str, Any]) -> str:
    system, tools, rest = split_request(body)
    lines = [
        f"## {family.title}: {family.model}",
        "",
        "### System prompt",
        "~~~text",
        system,
        "~~~",
    ]
    lines += ["", f"### {len(tools)} tools"]
    for tool in tools:
        spec = tool.get("function", tool)
        names = ("input_schema", "parameters", "parametersJsonSchema")
        (schema,) = [spec[name] for name in names if name in spec]
        lines += ["~~~text", f"{spec['name']}: {spec['description'].strip()}"]
        lines += [json.dumps(schema, ensure_ascii=False), "~~~"]
    lines += [
        "",
        "### The rest",
        "~~~json",
        json.dumps(rest, ensure_ascii=False, indent=1),
        "~~~",
        "",
    ]
    return "\n".join(lines)


def render_page(bodies: dict[str, dict[str, Any]]) -> str:
    sizes = []
    for family in FAMILIES:
        system, tools, _ = split_request(bodies[family.title])
        cells = (
            family.title,
            family.model,
            *map(format_size, (system, tools, bodies[family.title])),
        )
        sizes.append(f"| {' | '.join(cells)} |")
    peers = first_requests.format_table(first_requests.load_rows())
    text = INTRODUCTION.format(prompt=PROMPT, sizes="\n".join(sizes), peers=peers)
    return "\n".join([text, *[render_family(one, bodies[one.title]) for one in FAMILIES]])


async def test_the_page_shows_the_requests_as_they_are(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    bodies = {one.title: await record_request(one, project, monkeypatch) for one in FAMILIES}
    page = render_page(bodies)
    if os.environ.get("UPDATE_REQUESTS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "UPDATE_REQUESTS=1 writes the page"


async def test_the_first_request_is_smaller_than_those_of_the_others_on_the_page(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = first_requests.load_rows()
    others = [row.first.all for row in rows if row.title != "Treadle"]
    assert len(others) == len(rows) - 2 >= 3
    for family in FAMILIES:
        body = await record_request(family, project, monkeypatch)
        assert len(json.dumps(body)) < min(others)
        assert len(json.dumps(body)) <= LARGEST_FIRST_REQUEST
