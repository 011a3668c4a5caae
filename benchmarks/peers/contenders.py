"""Who is compared: libraries, each with its environment, its adapter and its variant.

Programs for the terminal are in programs.py.
"""

from __future__ import annotations

from typing import NamedTuple


class Library(NamedTuple):
    """`lock` names the environment, `requires` the package whose version is shown."""

    title: str
    lock: str
    adapter: str
    variant: str
    imports: str
    package: str
    has_in_process: bool = False


BASELINE = "raw_aiohttp"
FLOOR = "raw_treadle_client"
OURS = "treadle"
# Rows that are another thing in one of the measures: without HTTP, no client takes part.
TITLES_BY_MEASURE = {("raw_aiohttp", "in_process"): "loop by hand, local function as the model"}

LIBRARIES = {
    "treadle": Library(
        "Treadle", "treadle", "treadle_agent", "anthropic", "from treadle import Agent, tool",
        "treadle", True,
    ),
    "treadle_chat": Library(
        "Treadle, chat completions", "treadle", "treadle_agent", "chat", "", "treadle"
    ),
    "treadle_responses": Library(
        "Treadle, Responses", "treadle", "treadle_agent", "responses", "", "treadle"
    ),
    "raw_treadle_client": Library(
        "loop over Treadle's HTTP client", "treadle", "raw_loop", "treadle", "", "treadle"
    ),
    "raw_aiohttp": Library(
        "loop over aiohttp", "raw_aiohttp", "raw_loop", "aiohttp", "import aiohttp",
        "aiohttp", True,
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
        True,
    ),
    "openai_agents": Library(
        "openai-agents", "openai_agents", "openai_agents_runner", "responses",
        "from agents import Agent, Runner", "openai-agents", True,
    ),
    "langgraph": Library(
        "LangGraph (LangChain agent)", "langgraph", "langgraph_agent", "anthropic",
        "from langchain.agents import create_agent; import langchain_anthropic", "langgraph", True,
    ),
    "strands": Library(
        "strands-agents", "strands", "strands_agent", "anthropic",
        "from strands import Agent; import strands.models.anthropic", "strands-agents",
    ),
    "smolagents": Library(
        "smolagents", "smolagents", "smolagents_agent", "chat", "import smolagents", "smolagents"
    ),
}  # fmt: skip


def title_library(name: str, measure: str = "") -> str:
    return TITLES_BY_MEASURE.get((name, measure), LIBRARIES[name].title)
