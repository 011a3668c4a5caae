"""An answer that fits a schema: `--output-schema`.

The wiring holds the model to the schema, by its own means or by a last tool; here the answer is
read, and one that does not fit is sent back with the reason, a few times.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from treadle.agents.structured_output import MISSING_ANSWER
from treadle.apps.assembly import AgentSession
from treadle.apps.cli.options import UsageError
from treadle.core.errors import OutputMismatch
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import AssistantItem
from treadle.models.output_schema import parse_structured_output

MAX_ATTEMPTS = 3


def read_schema(file: str) -> dict[str, object]:
    try:
        schema = json.loads(Path(file).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--output-schema {file}: {error}") from error
    if not isinstance(schema, dict):
        raise UsageError(f"--output-schema {file}: a schema is a JSON object")
    return schema


async def run_structured_turn(
    session: AgentSession, driver: Driver, schema: dict[str, object]
) -> tuple[TurnResult, object]:
    """The turn that gave the answer, with the answer as its text, and the value in it."""
    for _ in range(MAX_ATTEMPTS):
        turn = await session.agent.finish_turn(driver)
        if turn.reason != "end_turn":
            return turn, None
        text = session.final_answer.text if session.final_answer is not None else turn.text
        if text is None:
            driver.submit(MISSING_ANSWER)
            continue
        try:
            value = parse_structured_output(schema, text)
        except ValueError as error:
            driver.submit(f"The answer does not fit: {error}. Give it again, corrected.")
            continue
        said = AssistantItem((Text(text),))
        return msgspec.structs.replace(turn, items=(*turn.items, said)), value
    name = session.model.name
    raise OutputMismatch(f"{name} gave no answer that fits in {MAX_ATTEMPTS} tries", provider=name)
