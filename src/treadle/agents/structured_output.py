"""Answers as instances: `agent.run(prompt, output=SomeType)`.

A model that can be held to a schema is; any other gets one more tool, whose call is the answer.
An answer that does not fit is returned with the reason, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import OutputMismatch
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.usage import Usage
from treadle.models.output_schema import build_schema, parse_structured_output

TOOL_NAME = "final_answer"
DESCRIPTION = "Give the final answer. Call this once, when the work is done."
MISSING_ANSWER = f"Give your final answer by calling the tool `{TOOL_NAME}`."


class FinalAnswerTool(BaseTool):
    """A tool whose call is the answer, and the gate that ends the turn behind it."""

    def __init__(self, output_type: object) -> None:
        self._output_type = output_type
        # Not eager: a reply that breaks off has answered nothing.
        self._spec = ToolSpec(
            TOOL_NAME, DESCRIPTION, build_schema(output_type), effect="pure", eager=False
        )
        self._text: str | None = None

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    @property
    def text(self) -> str | None:
        """The answer as JSON, once it was given."""
        return self._text

    def check(self, arguments: Arguments) -> str | None:
        try:
            parse_structured_output(self._output_type, msgspec.json.encode(arguments).decode())
        except ValueError as error:
            return str(error)
        return None

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        self._text = msgspec.json.encode(arguments).decode()
        return ToolOutput("The answer is taken.")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("not_done", "an answer has no effect")

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return Admit() if self._text is None else Stop("end_turn", "the answer was given")

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None


def constrain_output(
    card: ModelCard, options: ModelOptions, output_type: object
) -> tuple[ModelOptions, FinalAnswerTool | None]:
    """Options that hold the model to the type, or the tool for a model that cannot be held."""
    if "schema" not in card.abilities:
        return options, FinalAnswerTool(output_type)
    schema = build_schema(output_type, strict=True)
    return msgspec.structs.replace(options, output_schema=schema), None


async def finish_structured_turn(
    driver: Driver,
    finish_turn: Callable[[Driver], Awaitable[TurnResult]],
    final_answer: FinalAnswerTool | None,
    output_type: object,
    *,
    attempts: int,
    model: str,
) -> tuple[TurnResult, str | None, Any]:
    """Run turns until the answer fits: the last turn, the text of the answer, and its value.

    The text is None if the turn ended without an answer, for another reason than `end_turn`.
    """
    for _ in range(attempts):
        turn = await finish_turn(driver)
        if turn.reason != "end_turn":
            return turn, None, None
        text = final_answer.text if final_answer is not None else turn.text
        if text is None:
            driver.submit(MISSING_ANSWER)
            continue
        try:
            return turn, text, parse_structured_output(output_type, text)
        except ValueError as error:
            driver.submit(f"The answer does not fit: {error}. Give it again, corrected.")
    raise OutputMismatch(f"{model} gave no answer that fits in {attempts} tries", provider=model)
