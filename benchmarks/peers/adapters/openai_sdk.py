"""A loop written by hand over the openai SDK, streaming. Variants: chat, responses."""

import asyncio
import json
from typing import Any

import openai


class Engine:
    def __init__(self, task: Any) -> None:
        self._task = task
        self._tool = task.make_tool()
        self._client: Any = openai.AsyncOpenAI(base_url=task.openai_url, api_key="k", timeout=600)

    async def run(self) -> int:
        return await (self._run_chat() if self._task.variant == "chat" else self._run_responses())

    def _function(self) -> dict[str, Any]:
        task = self._task
        fields = {"name": task.tool_name, "description": task.description}
        return {**fields, "parameters": task.schema}

    async def _run_responses(self) -> int:
        seen = 0
        history: list[Any] = [{"role": "user", "content": "go"}]
        tools = [{"type": "function", **self._function()}]
        while True:
            stream = await self._client.responses.create(
                model="loopback",
                instructions=self._task.instructions,
                input=history,
                tools=tools,
                stream=True,
            )
            output: list[Any] = []
            async for event in stream:
                if event.type == "response.output_text.delta":
                    seen += 1
                elif event.type == "response.completed":
                    output = event.response.output
            history += output
            calls = [item for item in output if item.type == "function_call"]
            if not calls:
                return seen
            values = [json.loads(call.arguments) for call in calls]
            results = await asyncio.gather(*(self._tool(**value) for value in values))
            history += [
                {"type": "function_call_output", "call_id": call.call_id, "output": str(result)}
                for call, result in zip(calls, results, strict=True)
            ]

    async def _run_chat(self) -> int:
        seen = 0
        messages: list[Any] = [
            {"role": "system", "content": self._task.instructions},
            {"role": "user", "content": "go"},
        ]
        tools = [{"type": "function", "function": self._function()}]
        while True:
            stream = await self._client.chat.completions.create(
                model="loopback",
                messages=messages,
                tools=tools,
                stream=True,
                stream_options={"include_usage": True},
            )
            reply, deltas = await read_chat(stream)
            seen += deltas
            messages.append(reply)
            calls = reply.get("tool_calls")
            if not calls:
                return seen
            values = [json.loads(call["function"]["arguments"]) for call in calls]
            results = await asyncio.gather(*(self._tool(**value) for value in values))
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": str(result)}
                for call, result in zip(calls, results, strict=True)
            ]

    async def aclose(self) -> None:
        await self._client.close()


async def read_chat(stream: Any) -> tuple[dict[str, Any], int]:
    """The message of a streamed chat completion, and the number of its text deltas."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    async for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        if delta.content:
            text.append(delta.content)
        for part in delta.tool_calls or []:
            function = {"name": "", "arguments": ""}
            call = calls.setdefault(part.index, {"type": "function", "function": function})
            if part.id:
                call["id"] = part.id
            if part.function.name:
                call["function"]["name"] = part.function.name
            call["function"]["arguments"] += part.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
    if calls:
        message["tool_calls"] = list(calls.values())
    return message, len(text)
