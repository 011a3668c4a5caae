"""Structured output: `agent.run(prompt, output=SomeType)` and `treadle -p --output-schema FILE`.

A model that supports schemas gets the schema with each request; any other gets one more tool,
whose call is the answer. JSON text that fits is accepted in both modes. An answer that does not fit
is sent back with the reason, a bounded number of times. A function as the type is called with what
the model answers: what it returns is the answer, its ToolError goes to the model. Used by run.py
and apps/assembly; uses models/output_schema.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.events import TurnResult
from treadle.core.loop.config import TurnSettings
from treadle.core.transcript.content import Arguments, Text
from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem
from treadle.lib.json.schema import Mismatch
from treadle.models.output_schema import OutputType, get_output_type
from treadle.tools.function import FunctionTool, as_output

TOOL_NAME = "final_answer"
DESCRIPTION = "Give the final answer. Call this once, when the work is done."
MAX_ATTEMPTS = 3
ASK_FOR_CALL = f"Give your final answer by calling the tool `{TOOL_NAME}`."


class Attempts:
    """Counts the answers of one run that do not fit, calls and texts."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._texts = 0
        self._calls: set[str] = set()

    @property
    def are_used_up(self) -> bool:
        return self._texts + len(self._calls) >= self.limit

    def count_text(self) -> None:
        self._texts += 1

    def count_calls(self, results: Sequence[ToolResultItem]) -> None:
        """May be repeated for the same results."""
        self._calls.update([item.call_id for item in results if item.is_error])


class FinalAnswerTool(BaseTool, BaseGate):
    """A tool whose call is the answer, and the gate that ends the turn after it.

    The answer is read off the transcript, so that a resumed session still has it. The gate also
    ends the turn after as many calls that do not fit as the run has attempts.
    """

    reads_size = False

    def __init__(self, output: OutputType, about: str = "") -> None:
        self._output = output
        self.attempts: Attempts | None = None  # of the run
        # Not eager: a reply that breaks off is not an answer.
        description = f"{DESCRIPTION} {about}".strip()
        self._spec = ToolSpec(TOOL_NAME, description, output.schema, effect="pure", eager=False)

    def check(self, arguments: Arguments) -> str | None:
        try:
            self._output.convert(arguments)
        except Mismatch as problem:
            return f"the answer does not fit: {problem}"
        return None

    async def call(self, arguments: Arguments, context: ToolContext[Any]) -> ToolOutput:
        return ToolOutput("The answer is accepted.", data={"answer": arguments})

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext[Any]
    ) -> ProbeResult:
        return ProbeResult("not_done", "an answer has no effect")

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        results = _list_last_results(estimate.transcript)
        if any(_get_answer(item) is not None for item in results):
            return Stop("end_turn", "The answer was given.")
        if self.attempts is not None:
            self.attempts.count_calls(results)
            if self.attempts.are_used_up:
                return Stop("end_turn", "No answer fits.")
        return Admit()


def find_final_answer(transcript: Sequence[Item]) -> str | None:
    """The answer as JSON, if the last round of the transcript gave one."""
    answers = filter(None, map(_get_answer, _list_last_results(transcript)))
    return next(answers, None)


def _list_last_results(transcript: Sequence[Item]) -> list[ToolResultItem]:
    """The results of `final_answer` at the end of the transcript, the last first."""
    results: list[ToolResultItem] = []
    for item in reversed(transcript):
        if isinstance(item, ToolResultItem):
            results += [item] if item.name == TOOL_NAME else []
        elif not isinstance(item, NoticeItem):
            break
    return results


def _get_answer(item: ToolResultItem) -> str | None:
    if item.data is None or "answer" not in item.data:
        return None
    return msgspec.json.encode(item.data["answer"]).decode()


class StructuredOutput:
    """What the answer of one run has to be: `output_type`, a type, a JSON schema, or a function of
    the answer. ConfigError if it is none of them."""

    def __init__(self, output_type: object, model: Model) -> None:
        self._function: FunctionTool | None = None
        if isinstance(output_type, FunctionTool):
            self._function = output_type
        elif inspect.isroutine(output_type):
            self._function = FunctionTool(output_type)
        function = self._function
        self._output = get_output_type(output_type if function is None else function.spec.schema)
        self._model = model
        self._has_schema = "schema" in model.card.abilities
        about = "" if function is None else function.spec.description
        self.final_answer = None if self._has_schema else FinalAnswerTool(self._output, about)
        self._attempts = Attempts(MAX_ATTEMPTS)

    def copy(self, model: Model) -> StructuredOutput:
        """The same for another run, with this model."""
        return StructuredOutput(self._function or self._output, model)

    def make_settings(self, options: ModelOptions) -> TurnSettings:
        """What the turns of the run change: the schema, or one more tool and its gate."""
        if self.final_answer is not None:
            return TurnSettings(tools=(self.final_answer,), gates=(self.final_answer,))
        schema = self._output.strict_schema
        return TurnSettings(msgspec.structs.replace(options, output_schema=schema))

    def begin(self, max_attempts: int) -> None:
        self._attempts = Attempts(max_attempts)
        if self.final_answer is not None:
            self.final_answer.attempts = self._attempts

    def is_answer_call(self, name: str) -> bool:
        """Whether a call of this tool is the answer."""
        return self.final_answer is not None and name == TOOL_NAME

    def read_partial(self, text: str) -> Any:
        """The value of an answer that is still being written; None before it begins."""
        return self._output.read_partial(text) if self._function is None else None

    def find_answer(self, turn: TurnResult, transcript: Sequence[Item]) -> str:
        """The answer of a finished turn as text."""
        return find_final_answer(transcript) or _count_answer(turn, self._attempts)

    def parse(self, text: str) -> Any:
        """The value of an answer; a Mismatch says what does not fit."""
        value = self._output.parse(text)
        problem = None if self._function is None else self._function.check(value)
        if problem is not None:
            raise Mismatch(problem)
        return value

    async def finish(self, value: Any, context: ToolContext[Any]) -> Any:
        """The answer for the caller. A ToolError of the function refuses it."""
        return (
            value if self._function is None else await self._function.call_function(value, context)
        )

    def write(self, value: Any, text: str) -> str:
        """What the model of a caller reads: what the function made of the answer, or the answer."""
        if self._function is None:
            return text
        content = as_output(value).content
        if isinstance(content, str):
            return content
        return "".join(part.text for part in content if isinstance(part, Text))

    @property
    def has_attempts(self) -> bool:
        return not self._attempts.are_used_up

    def ask_again(self, problem: str) -> str:
        """The next message after an answer that does not fit."""
        if self.final_answer is None:
            return f"The answer does not fit: {problem}. Answer again with one JSON value only."
        return f"The answer does not fit: {problem}. {ASK_FOR_CALL}"


def _count_answer(turn: TurnResult, attempts: Attempts) -> str:
    """What the model said last: a call of `final_answer` that does not fit, or a text."""
    wrong_calls = _list_last_results(turn.items)
    if not wrong_calls or turn.reply is None:
        attempts.count_text()
        return turn.text
    attempts.count_calls(wrong_calls)
    said = [call.raw for call in turn.reply.calls if call.name == TOOL_NAME]
    return said[-1] if said else turn.text
