"""Structured output: `agent.run(prompt, output=SomeType)` and `treadle -p --output-schema FILE`.

A model that supports schemas gets the schema with each request; any other gets one more tool,
whose call is the answer. An answer that does not fit is sent back with the reason, a bounded number
of times. Used by agent.py and apps/assembly; uses models/output_schema.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from treadle.agents.result import StructuredAnswer
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import OutputMismatch, OutputMissing
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.text import plural
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem
from treadle.models.output_schema import build_schema, parse_structured_output

TOOL_NAME = "final_answer"
DESCRIPTION = "Give the final answer. Call this once, when the work is done."
MAX_ATTEMPTS = 3


class FinalAnswerTool(BaseTool, BaseGate):
    """A tool whose call is the answer, and the gate that ends the turn after it.

    The answer is read off the transcript, so that a resumed session still has it.
    """

    def __init__(self, output_type: object) -> None:
        self._output_type = output_type
        # Not eager: a reply that breaks off is not an answer.
        schema = build_schema(output_type)
        self._spec = ToolSpec(TOOL_NAME, DESCRIPTION, schema, effect="pure", eager=False)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        try:
            parse_structured_output(self._output_type, msgspec.json.encode(arguments).decode())
        except ValueError as error:
            return str(error)
        return None

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return ToolOutput("The answer is accepted.", data={"answer": arguments})

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "an answer has no effect")

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if find_final_answer(estimate.transcript) is None:
            return Admit()
        return Stop("end_turn", "The answer was given.")


def find_final_answer(transcript: Sequence[Item]) -> str | None:
    """The answer as JSON, if the last round of the transcript gave one."""
    for item in reversed(transcript):
        if isinstance(item, ToolResultItem):
            if item.name == TOOL_NAME and item.data is not None and "answer" in item.data:
                return msgspec.json.encode(item.data["answer"]).decode()
        elif not isinstance(item, NoticeItem):
            return None
    return None


class StructuredOutput:
    """Makes one agent answer with `output_type`, a type or a JSON schema.

    Pass it to the agent (`structured_output`), which adds the schema or the tool to its own
    requests and not to those of child agents; then `run` drives its turns.
    """

    def __init__(self, output_type: object, model: Model) -> None:
        self._output_type = output_type
        self._model = model
        self._has_schema = "schema" in model.card.abilities
        self.final_answer = None if self._has_schema else FinalAnswerTool(output_type)

    def add_schema(self, options: ModelOptions) -> ModelOptions:
        if not self._has_schema:
            return options
        schema = build_schema(self._output_type, strict=True)
        return msgspec.structs.replace(options, output_schema=schema)

    def make_missing_error(self, turn: TurnResult, driver: Driver) -> OutputMissing:
        """For a run that stopped before it gave an answer."""
        return OutputMissing(turn.reason, driver.transcript, driver.total_usage)

    def read_partial(self, text: str) -> Any:
        """The value of an answer that has arrived in part; None before it begins."""
        return None

    async def run(
        self,
        driver: Driver,
        finish_turn: Callable[[Driver], Awaitable[TurnResult]],
        max_attempts: int = MAX_ATTEMPTS,
    ) -> StructuredAnswer:
        """Drive turns until an answer fits. OutputMismatch after the last attempt; a turn that
        does not end with `end_turn` is returned without an answer."""
        for attempt in range(1, max_attempts + 1):
            turn = await finish_turn(driver)
            if turn.reason != "end_turn":
                return StructuredAnswer(turn)
            is_text = self.final_answer is None
            text = turn.text if is_text else find_final_answer(driver.transcript)
            request = f"Give your final answer by calling the tool `{TOOL_NAME}`."
            if text is not None:
                try:
                    value = parse_structured_output(self._output_type, text)
                    return StructuredAnswer(turn, text, value)
                except ValueError as error:
                    request = f"The answer does not fit: {error}. Give it again, corrected."
            if attempt < max_attempts:
                driver.submit(request)
        name, attempts = self._model.name, plural(max_attempts, "attempt")
        text = f"{name} gave no answer that fits the schema in {attempts}"
        raise OutputMismatch(text, provider=name)
