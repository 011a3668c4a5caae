"""Answers as instances: `agent.run(prompt, output=SomeType)`.

A model that can be held to a schema is; any other gets one more tool, whose call is the answer.
An answer that does not fit is returned with the reason, a bounded number of times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
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
