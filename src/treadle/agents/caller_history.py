"""The log of a session whose history the caller owns: `chat` and `stream(transcript=...)`.

What the caller added since the last time is logged before the first model call; what the caller
changed or took away leaves the view, and the log keeps it. Used by agent.py.
"""

from __future__ import annotations

from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Entry, ItemAdded, View, ViewRewritten, fold_entries
from treadle.core.transcript.repair import repair_entries
from treadle.core.transcript.transcript import Transcript


async def log_history(store: Store, given: Transcript) -> View:
    """Log what the store does not have of the history, and its repair; the view of the log."""
    view = fold_entries(await store.load())
    known = view.transcript
    same = 0
    while same < min(len(known), len(given)) and known[same] == given[same]:
        same += 1
    entries: list[Entry] = [ItemAdded(item) for item in given[same:]]
    if same < len(known):
        entries.insert(0, ViewRewritten("caller", same, len(known), ()))
    entries += repair_entries(fold_entries(entries, view))
    for entry in entries:
        store.append(entry)
    if entries:
        await store.flush()
    return fold_entries(entries, view)
