"""openai-agents over Responses, tracing off, with its stream of events; `sqlite` has a session."""

from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


class Engine:
    def __init__(self, task: Any, model: Any = None) -> None:
        if model is None:
            client = AsyncOpenAI(base_url=task.openai_url, api_key="k", timeout=600)
            model = OpenAIResponsesModel(model="loopback", openai_client=client)
        tools: list[Any] = [function_tool(task.make_tool())]
        self._agent: Any = Agent(
            name="calculator", instructions=task.instructions, model=model, tools=tools
        )
        self._options: Any = {"max_turns": task.max_turns}
        if task.variant == "sqlite":
            self._options["session"] = SQLiteSession("one", task.make_folder() / "sessions.db")

    async def run(self) -> int:
        seen = 0
        run = Runner.run_streamed(self._agent, "go", **self._options)
        async for event in run.stream_events():
            if event.type == "raw_response_event":
                seen += event.data.type == "response.output_text.delta"
        return seen


def make_in_process(task: Any, turns: int) -> Engine:
    return Engine(task, make_model(turns))


def make_model(turns: int) -> Any:
    """A model of canned items, as in the tests of the library itself."""
    from agents.models.interface import Model
    from openai.types.responses import (
        Response,
        ResponseCompletedEvent,
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Canned(Model):  # type: ignore[misc] # mypy does not read the package
        turn = 0

        async def get_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            turn = self.turn
            self.turn += 1
            text = ResponseOutputText(text="word word", type="output_text", annotations=[])
            output: list[Any] = [
                ResponseOutputMessage(
                    id=f"m{turn}", type="message", role="assistant", status="completed",
                    content=[text],
                )
            ]  # fmt: skip
            if turn < turns:
                output.append(
                    ResponseFunctionToolCall(
                        id=f"f{turn}", call_id=f"c{turn}", type="function_call", name="add",
                        arguments='{"a": 1, "b": 2}',
                    )
                )  # fmt: skip
            response = Response(
                id=f"r{turn}", created_at=1, model="loopback", object="response", output=output,
                tool_choice="none", tools=[], parallel_tool_calls=False,
            )  # fmt: skip
            yield ResponseCompletedEvent(
                type="response.completed", sequence_number=1, response=response
            )

    return Canned()
