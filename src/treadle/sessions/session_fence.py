"""The fence of a session that several machines may continue: only the latest writer may append.

Each writer has a number, the epoch; the database has that of the latest one. A store with a fence
compares them in the transaction that writes the entries, so a writer that was only slow cannot
append after another has taken over. Used by sqlite_store.py and postgres_store.py.
"""

from __future__ import annotations

import msgspec

from treadle.core.errors import SessionBusy


class SessionFence(msgspec.Struct, frozen=True):
    """The row that has the epoch of the latest writer, by table and `id`, and our epoch."""

    table: str
    row_id: str
    epoch: int

    def make_query(self, placeholder: str) -> str:
        """Selects a row while this writer is the latest one."""
        return f"SELECT 1 FROM {self.table} WHERE id = {placeholder} AND epoch = {placeholder}"

    def make_error(self, session_id: str) -> SessionBusy:
        return SessionBusy(
            f"session {session_id} was taken over by another worker, or cancelled; this one stops"
        )
