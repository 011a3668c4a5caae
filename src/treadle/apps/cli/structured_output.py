"""`--output-schema`: reads the schema, and runs the turns until an answer fits it.

Uses agents/structured_output.py; used by headless.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import msgspec

from treadle.agents.run import Run
from treadle.apps.assembly import AgentSession
from treadle.apps.console.console import UsageError
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript import AssistantItem, Text
from treadle.lib.json.schema import find_schema_problem


def read_schema(file: str) -> dict[str, object]:
    try:
        schema = json.loads(Path(file).read_bytes())
    except OSError as error:
        raise UsageError(f"--output-schema: cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--output-schema: {file} is not JSON: {error}") from error
    problem = find_schema_problem(schema)
    if problem:
        raise UsageError(f"--output-schema: {file} is not a JSON schema: {problem}")
    return cast(dict[str, object], schema)


async def run_structured_turn(session: AgentSession, driver: Driver) -> tuple[TurnResult, object]:
    """The turn that gave the answer, with the answer as its text, and the value in it."""
    assert session.structured_output is not None, "the session has an output schema"
    run = Run(driver, session.agent.finish_turn, session.structured_output)
    run.configure()
    answer = await run.answer()
    if answer.text is None:
        return answer.turn, None
    items = (*answer.turn.items, AssistantItem((Text(answer.text),)))
    return msgspec.structs.replace(answer.turn, items=items), answer.value
