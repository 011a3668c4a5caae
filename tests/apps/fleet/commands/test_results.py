from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import until_state
from treadle.apps.fleet import commands
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.store_address import DEFAULT_STORE


def test_what_a_fleet_keeps_and_reports_is_for_its_user_alone(
    own_place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        database = await open_database(DEFAULT_STORE)
        async with working(database):
            await until_state(database, "one", "done")
        await database.aclose()

    Path("tasks.jsonl").write_text('{"id": "one", "prompt": "look"}')
    assert commands.run(["run", "tasks.jsonl", "--detach"]) == 0
    asyncio.run(work())
    assert commands.run(["report", "--html", "r.html", "--sessions"]) == 0, capsys.readouterr()
    home = Path.home() / ".treadle"
    folders = [home, Path("r_sessions")]
    files = [home / "fleet.db", Path("r.html"), Path("r_sessions/one.html")]
    modes = [oct(path.stat().st_mode & 0o777) for path in (*folders, *files)]
    assert modes == ["0o700"] * 2 + ["0o600"] * 3
