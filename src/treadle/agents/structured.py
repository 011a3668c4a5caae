"""Answers as instances: `agent.run(prompt, output=SomeType)`.

A model that can be held to a schema is; any other gets one more tool, whose call is the answer.
An answer that does not fit is returned with the reason, a bounded number of times.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.core.contracts.gate import Account, Pass, Stop
from treadle.core.contracts.tool import Probe, Resources, ToolContext, ToolOutput, ToolSpec
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.usage import Usage
from treadle.models.structured import parse, schema_of

NAME = "final_answer"
DESCRIPTION = "Give the final answer. Call this once, when the work is done."
NOT_GIVEN = f"Give your final answer by calling the tool `{NAME}`."


class FinalAnswer:
    """A tool whose call is the answer, and the gate that ends the turn behind it."""

    def __init__(self, kind: object) -> None:
        self._kind = kind
        # Not eager: a reply that breaks off has answered nothing.
        self._spec = ToolSpec(NAME, DESCRIPTION, schema_of(kind), effect="pure", eager=False)
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
            parse(self._kind, msgspec.json.encode(arguments).decode())
        except ValueError as error:
            return str(error)
        return None

    def summary(self, arguments: Arguments) -> str:
        return f"[{NAME}]"

    def resources(self, arguments: Arguments) -> Resources:
        return Resources()

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        self._text = msgspec.json.encode(arguments).decode()
        return ToolOutput("The answer is taken.")

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        return Probe("not_done", "an answer has no effect")

    def admit(self, account: Account) -> Pass | Stop:
        return Pass() if self._text is None else Stop("end_turn", "the answer was given")

    def settle(self, account: Account, used: Usage) -> None:
        return None
