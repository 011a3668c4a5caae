"""Who is compared: libraries, each with its environment, its adapter and its variant.

Programs for the terminal are in programs.py.
"""

from __future__ import annotations

from typing import NamedTuple

HTTP = ("turns", "deltas", "agents", "parallel", "fails", "import")
ALL = (*HTTP, "in_process")
STORED = ("turns",)  # with the library's own store of sessions


class Library(NamedTuple):
    """`lock` names the environment, `requires` the package whose version is shown."""

    title: str
    lock: str
    adapter: str
    variant: str
    imports: str
    package: str
    measures: tuple[str, ...] = HTTP


BASELINE = "raw_aiohttp"
FLOOR = "raw_treadle_client"
OURS = "treadle"
PLAIN = "treadle_plain"
CHARTED = (OURS, BASELINE, "pydantic_ai", "openai_agents", "langgraph")
# Rows that are another thing in one of the measures: without HTTP, no client takes part.
TITLES_BY_MEASURE = {("raw_aiohttp", "in_process"): "loop by hand, local function as the model"}


def treadle(title: str, variant: str, measures: tuple[str, ...]) -> Library:
    imports = "from treadle import Agent, tool" if title == "Treadle" else ""
    return Library(title, "treadle", "treadle_agent", variant, imports, "treadle", measures)


LIBRARIES = {
    "treadle": treadle("Treadle", "anthropic", ALL),
    "treadle_chat": treadle("Treadle, chat completions", "chat", HTTP),
    "treadle_responses": treadle("Treadle, Responses", "responses", HTTP),
    "treadle_plain": treadle("Treadle, plain function as the tool", "plain", ("in_process",)),
    "treadle_journal": treadle("Treadle, journal", "journal", STORED),
    "treadle_sqlite": treadle("Treadle, SQLite", "sqlite", STORED),
    "treadle_default_tool": treadle(
        "Treadle, journal, tool with its default options", "journal_default", STORED
    ),
    "raw_treadle_client": Library(
        "loop over Treadle's HTTP client", "treadle", "raw_loop", "treadle", "", "treadle"
    ),
    "raw_aiohttp": Library(
        "loop over aiohttp", "raw_aiohttp", "raw_loop", "aiohttp", "import aiohttp",
        "aiohttp", ALL,
    ),
    "raw_httpx": Library(
        "loop over httpx", "raw_httpx", "raw_loop", "httpx", "import httpx", "httpx"
    ),
    "anthropic_sdk": Library(
        "loop over the anthropic SDK", "anthropic_sdk", "anthropic_sdk", "anthropic",
        "import anthropic", "anthropic",
    ),
    "openai_sdk_chat": Library(
        "loop over the openai SDK, chat", "openai_sdk", "openai_sdk", "chat",
        "import openai", "openai",
    ),
    "openai_sdk_responses": Library(
        "loop over the openai SDK, Responses", "openai_sdk", "openai_sdk", "responses", "",
        "openai",
    ),
    "pydantic_ai": Library(
        "pydantic-ai", "pydantic_ai", "pydantic_ai_agent", "anthropic",
        "from pydantic_ai import Agent; import pydantic_ai.models.anthropic", "pydantic-ai-slim",
        ALL,
    ),
    "openai_agents": Library(
        "openai-agents", "openai_agents", "openai_agents_runner", "responses",
        "from agents import Agent, Runner", "openai-agents", ALL,
    ),
    "openai_agents_sqlite": Library(
        "openai-agents, SQLiteSession", "openai_agents", "openai_agents_runner", "sqlite", "",
        "openai-agents", STORED,
    ),
    "langgraph": Library(
        "LangGraph (LangChain agent)", "langgraph", "langgraph_agent", "anthropic",
        "from langchain.agents import create_agent; import langchain_anthropic", "langgraph", ALL,
    ),
    "langgraph_sqlite": Library(
        "LangGraph, AsyncSqliteSaver", "langgraph", "langgraph_agent", "sqlite", "", "langgraph",
        STORED,
    ),
    "strands": Library(
        "strands-agents", "strands", "strands_agent", "anthropic",
        "from strands import Agent; import strands.models.anthropic", "strands-agents",
    ),
    "strands_files": Library(
        "strands-agents, FileSessionManager", "strands", "strands_agent", "files", "",
        "strands-agents", STORED,
    ),
    "smolagents": Library(
        "smolagents", "smolagents", "smolagents_agent", "chat", "import smolagents", "smolagents"
    ),
}  # fmt: skip


def title_library(name: str, measure: str = "") -> str:
    return TITLES_BY_MEASURE.get((name, measure), LIBRARIES[name].title)
