"""LangChain's create_agent, which runs on LangGraph, over Anthropic Messages. `sqlite` keeps the
session."""

import functools
from collections.abc import Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import StructuredTool


def make_model(task: Any) -> Any:
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(
        model="claude-sonnet-5-5", base_url=task.url, api_key="k", max_tokens=1000,
        streaming=True, timeout=600,
    )  # fmt: skip


class Engine:
    def __init__(self, task: Any, model: Any = None) -> None:
        tool = StructuredTool.from_function(
            coroutine=task.make_tool(), name=task.tool_name, description=task.description
        )
        self._task = task
        self._agent_of: Any = functools.partial(
            create_agent, model or make_model(task), [tool], system_prompt=task.instructions
        )
        self._settings = {
            "recursion_limit": 10 * task.max_turns,
            "configurable": {"thread_id": "one"},
        }
        self._agent = None if task.variant == "sqlite" else self._agent_of()

    async def run(self) -> int:
        if self._agent is not None:
            return await self._stream(self._agent)
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        path = str(self._task.make_folder() / "sessions.db")
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            return await self._stream(self._agent_of(checkpointer=saver))

    async def _stream(self, agent: Any) -> int:
        seen = 0
        prompt = {"messages": [{"role": "user", "content": "go"}]}
        stream = agent.astream(prompt, self._settings, stream_mode="messages")
        async for message, _ in stream:
            if isinstance(message, AIMessageChunk):
                seen += count_texts(message.content)
        return seen


def count_texts(content: Any) -> int:
    if isinstance(content, str):
        return int(bool(content))
    return sum(1 for block in content if block.get("type") == "text" and block.get("text"))


def make_in_process(task: Any, turns: int) -> Engine:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    class Canned(GenericFakeChatModel):  # type: ignore[misc]  # untyped where it is not installed
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    def replies() -> Iterator[Any]:
        for turn in range(turns):
            call = {"name": "add", "args": {"a": 1, "b": 2}, "id": f"c{turn}"}
            yield AIMessage(content="word word", tool_calls=[call])
        yield AIMessage(content="done")

    model = Canned(messages=replies())
    model.disable_streaming = True
    return Engine(task, model)
