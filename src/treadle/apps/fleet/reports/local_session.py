"""The session of a run on this machine: to open, replay and fork it, to read it, to show it.

    await copy_session(database, run, folder, library)   with the user's other sessions
    await read_session(database, run)                    as blocks, for logs
    await render_session(database, run)                  as a page

The database keeps the log; these are copies. Used by the command line.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.reports.report_text import STATE_VERBS
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.sql.sql_database import SESSION_PREFIX
from treadle.core.errors import SessionNotFound
from treadle.core.transcript.entries import Entry
from treadle.sessions.export import ExportBlock, read_blocks
from treadle.sessions.library import Library, project_name
from treadle.sessions.log.journal import Journal
from treadle.sessions.summaries import SessionSummary


class ReadSession(msgspec.Struct, frozen=True):
    """A session as the exports need it."""

    summary: SessionSummary
    blocks: list[ExportBlock]


async def copy_session(
    database: FleetDatabase, run: FleetRun, folder: Path, library: Library
) -> str:
    """Copy the log of a run to a session of this folder; its id. A session that is here already
    stays as it is: the copy then has a new id. So has that of a session that was sent to the fleet,
    which may come back."""
    entries = await _load_entries(database, run)
    session_dir = library.root / project_name(folder) / run.session
    is_sent = not run.session.startswith(SESSION_PREFIX)
    if is_sent or await asyncio.to_thread(session_dir.exists):
        journal = await asyncio.to_thread(library.create, folder)
    else:
        home = await asyncio.to_thread(folder.resolve)
        journal = Journal.create(session_dir, folder=str(home))
    await _write(journal, entries)
    return journal.session_id


async def read_session(database: FleetDatabase, run: FleetRun) -> ReadSession:
    """What happened in a run so far. SessionNotFound if it has not begun."""
    async with _copy_for_a_moment(database, run) as (summary, session_dir):
        return ReadSession(summary, await asyncio.to_thread(read_blocks, session_dir))


async def render_session(database: FleetDatabase, run: FleetRun) -> str:
    """The same as an HTML page."""
    from treadle.apps.pages.session_html import render_session_html

    async with _copy_for_a_moment(database, run) as (summary, session_dir):
        return await asyncio.to_thread(render_session_html, summary, session_dir)


@asynccontextmanager
async def _copy_for_a_moment(
    database: FleetDatabase, run: FleetRun
) -> AsyncIterator[tuple[SessionSummary, Path]]:
    entries = await _load_entries(database, run)
    with tempfile.TemporaryDirectory(prefix="treadle-fleet-") as folder:
        library = Library(Path(folder))
        session_dir = library.root / "fleet" / run.session
        await _write(Journal.create(session_dir), entries)
        yield await asyncio.to_thread(library.get_summary, session_dir), session_dir


async def _load_entries(database: FleetDatabase, run: FleetRun) -> Sequence[Entry]:
    entries = await database.load_session(run.id)
    if entries:
        return entries
    if not run.has_ended:
        raise SessionNotFound(f"the run {run.id} has no session yet: it is {run.state}")
    why = f": {run.error}" if run.error else ""
    verb = STATE_VERBS[run.state]
    raise SessionNotFound(f"the run {run.id} {verb} before its session began{why}")


async def _write(journal: Journal, entries: Sequence[Entry]) -> None:
    try:
        for entry in entries:
            journal.append(entry)
    finally:
        await journal.aclose()
