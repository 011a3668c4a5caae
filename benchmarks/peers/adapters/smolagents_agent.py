"""smolagents' ToolCallingAgent over chat completions, streaming. It has no async interface."""

from typing import Any

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

MARKER = "'call"  # it sends tool results as texts of the user


class Engine:
    def __init__(self, task: Any) -> None:
        self._task = task
        self._model = OpenAIModel(model_id="loopback", api_base=task.openai_url, api_key="k")
        call = task.make_plain_tool()

        def add(a: int, b: int) -> int:
            """Add two integers.

            Args:
                a: an integer
                b: an integer
            """
            result: int = call(a, b)
            return result

        def nap(a: int, b: int) -> int:
            """Sleep for 50 ms.

            Args:
                a: an integer
                b: an integer
            """
            result: int = call(a, b)
            return result

        # It reads the source of the function, so that each one has to be written out.
        self._tool = tool(add if task.tool_name == "add" else nap)

    async def run(self) -> int:
        seen: int = await self._task.run_in_thread(self._run)
        return seen

    def _run(self) -> int:
        agent = ToolCallingAgent(
            tools=[self._tool],
            model=self._model,
            stream_outputs=True,
            max_steps=self._task.max_turns,
            verbosity_level=LogLevel.OFF,
        )
        seen = 0
        for event in agent.run("go", stream=True):
            seen += type(event).__name__ == "ChatMessageStreamDelta" and bool(event.content)
        return seen
