"""`--output-schema`: reads the schema, and runs turns until the answer matches it.

Assembly constrains the model (agents/structured_output.py). Used by headless.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from treadle.agents.structured_output import finish_structured_turn
from treadle.apps.assembly import AgentSession
from treadle.apps.cli.console import UsageError
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import AssistantItem

MAX_ATTEMPTS = 3


def read_schema(file: str) -> dict[str, object]:
    try:
        schema = json.loads(Path(file).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"--output-schema {file}: {error}") from error
    if not isinstance(schema, dict):
        raise UsageError(f"--output-schema {file}: not a JSON object")
    return schema


async def run_structured_turn(
    session: AgentSession, driver: Driver, schema: dict[str, object]
) -> tuple[TurnResult, object]:
    """The last turn, with the answer as its text, and the value of the answer."""
    turn, text, value = await finish_structured_turn(
        driver,
        session.agent.finish_turn,
        session.final_answer,
        schema,
        attempts=MAX_ATTEMPTS,
        model=session.model.name,
    )
    if text is None:
        return turn, None
    answer = AssistantItem((Text(text),))
    return msgspec.structs.replace(turn, items=(*turn.items, answer)), value
