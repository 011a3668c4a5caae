"""`treadle undo --effects`: take back what a turn did beyond files, by the inverses of its tools.

What can and what cannot be taken back is shown; the chosen inverses are calls of a turn of the same
session, as those of `treadle apply`. Used by commands/undo.py; tools/undo.py finds the inverses.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.assembly.dry_run.recorded_calls import Effect, format_tries
from treadle.apps.cli.trials.apply import Choice, carry_out, choose_effects
from treadle.apps.console.console import print_line
from treadle.core.transcript.content import ToolCall
from treadle.lib.text.sanitize import escape_invisible
from treadle.sessions.log.journal import read_entries
from treadle.tools.undo import UndoStep, plan_undo

if TYPE_CHECKING:
    from treadle.apps.assembly import AgentSession

MESSAGE = "Take back what these calls did: {calls}"


async def undo_effects(
    session_dir: Path, folder: Path, only: str | None, flags: Mapping[str, object]
) -> int:
    async def choose(session: AgentSession) -> Choice:
        source = session.agent.config.source
        await source.open()
        chosen = _choose(plan_undo(read_entries(session_dir), source.tools()), only)
        return chosen, MESSAGE.format(calls=", ".join(one.title for one in chosen))

    return await carry_out(session_dir.name, folder, choose, flags)


def _choose(steps: list[UndoStep], only: str | None) -> list[Effect]:
    """Print the steps, and ask or take those that are named."""
    effects: list[Effect] = []
    for step in steps:
        line = f"cannot be taken back: {step.summary}: {step.reason}"
        if step.tool:
            raw = msgspec.json.encode(step.arguments).decode()
            call = ToolCall(step.tries.next_id, step.tool, raw)
            effects.append(Effect(call, step.summary, tries=step.tries))
            line = f"{len(effects)}. {step.summary} by {step.describe_inverse()}"
        print_line(escape_invisible(line))
        for line in format_tries(step.tries):
            print_line(escape_invisible(f"   {line}"))
    if not effects:
        print_line("nothing can be taken back" if steps else "no turn had effects beyond files")
        return []
    is_asked = only is not None or (sys.stdin.isatty() and sys.stdout.isatty())
    return choose_effects(effects, only) if is_asked else []
