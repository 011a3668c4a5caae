"""`treadle undo --effects`: take back what a turn did beyond files, by the inverses of its tools.

What can and what cannot be taken back is shown; the chosen inverses are calls of a turn of the same
session, as those of `treadle apply`. Used by commands/undo.py; tools/undo.py finds the inverses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from treadle.apps.cli.trials.apply import CallPlayer, Effect, choose_effects, open_session
from treadle.apps.console.console import print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.core.transcript.content import ToolCall
from treadle.lib.text.sanitize import escape_invisible
from treadle.sessions.log.journal import read_entries
from treadle.tools.undo import UNDO_PREFIX, UndoStep, plan_undo

MESSAGE = "Take back what these calls did: {calls}"


async def undo_effects(session_dir: Path, folder: Path, only: str | None) -> int:
    player = CallPlayer()
    session = await open_session(session_dir.name, folder, player)
    chosen: list[Effect] = []
    try:
        source = session.agent.config.source
        await source.open()
        steps = plan_undo(read_entries(session_dir), source.tools())
        chosen = _choose(steps, only)
    finally:
        if not chosen:
            await session.store.aclose()
            await session.aclose()
    if not chosen:
        return SUCCESS
    names = ", ".join(step.summary for step in steps)
    return await player.play(session, chosen, MESSAGE.format(calls=names))


def _choose(steps: list[UndoStep], only: str | None) -> list[Effect]:
    """Print the steps, and ask or take those that are named."""
    effects: list[Effect] = []
    for step in steps:
        line = f"cannot be taken back: {step.summary}: {step.reason}"
        if step.tool:
            raw = msgspec.json.encode(step.arguments).decode()
            new_id = f"{UNDO_PREFIX}{step.call.id}"
            effects.append(Effect(ToolCall(step.call.id, step.tool, raw), new_id=new_id))
            shown = step.arguments.get("command", raw)
            line = f"{len(effects)}. {step.summary} by {step.tool}: {shown}"
        print_line(escape_invisible(line))
    if not effects:
        print_line("nothing can be taken back" if steps else "no turn had effects beyond files")
        return []
    is_asked = only is not None or (sys.stdin.isatty() and sys.stdout.isatty())
    return choose_effects(effects, only) if is_asked else []
