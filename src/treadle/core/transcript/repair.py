"""Makes a view lawful again: the repair is a list of entries, so that the log has it too.

A log with unreadable lines, or a history from elsewhere, may break a law. Positions in later
entries belong to the repaired view; without the repair in the log they would point elsewhere.
Uses integrity.py (the laws). Used by sessions/, agents/agent.py and core/loop/session_state.py.
"""

from __future__ import annotations

import msgspec

from treadle.core.transcript.entries import (
    EarlyResult,
    Entry,
    Intent,
    View,
    diff_views,
    fold_entries,
)
from treadle.core.transcript.integrity import repair_round
from treadle.core.transcript.pending import RunTools, pending

REPAIR = "repair"


def repair_entries(
    view: View, *, lacks_items: bool = False, lacks_intents: bool = False
) -> list[Entry]:
    """The entries that repair the view; none if every law holds and nothing else is wrong.

    `lacks_items`: items may be lost, so the positions of parts that a provider rejected are not
    certain; the repair clears them. `lacks_intents`: lines after the last reply are lost. An open
    call without an intent may have run, so it gets an assumed one.
    """
    entries: list[Entry] = []
    transcript, early = repair_round(view.transcript)
    if transcript is not view.transcript or (lacks_items and view.quarantine):
        change = diff_views(REPAIR, view.transcript, transcript)
        entries.append(msgspec.structs.replace(change, is_repair=True))
    entries += [EarlyResult(result) for result in early if result.call_id not in view.early_results]
    if lacks_intents and isinstance(move := pending(transcript), RunTools):
        known = {*view.intents, *view.early_results, *(result.call_id for result in early)}
        entries += [
            Intent(call.id, call.name, "", "irreversible", is_assumed=True)
            for call in move.calls
            if call.id not in known
        ]
    return entries


def repair_view(view: View) -> View:
    """The view with every law kept; the same object if it is lawful."""
    entries = repair_entries(view)
    return fold_entries(entries, view) if entries else view
