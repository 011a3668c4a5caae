"""A loop written by hand over the anthropic SDK, streaming, as its documentation shows."""

import asyncio
from typing import Any

import anthropic


class Engine:
    def __init__(self, task: Any) -> None:
        self._task = task
        self._tool = task.make_tool()
        self._client: Any = anthropic.AsyncAnthropic(base_url=task.url, api_key="k", timeout=600)
        spec = {
            "name": task.tool_name,
            "description": task.description,
            "input_schema": task.schema,
        }
        self._fields: Any = {
            "model": "claude-sonnet-5-5",
            "max_tokens": 1000,
            "system": task.instructions,
            "tools": [spec],
        }

    async def run(self) -> int:
        seen = 0
        messages: list[Any] = [{"role": "user", "content": "go"}]
        while True:
            async with self._client.messages.stream(**self._fields, messages=messages) as stream:
                async for event in stream:
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        seen += 1
                reply = await stream.get_final_message()
            messages.append({"role": "assistant", "content": reply.content})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return seen
            results = await asyncio.gather(*(self._tool(**call.input) for call in calls))
            answers = [
                {"type": "tool_result", "tool_use_id": call.id, "content": str(result)}
                for call, result in zip(calls, results, strict=True)
            ]
            messages.append({"role": "user", "content": answers})

    async def aclose(self) -> None:
        await self._client.close()
