"""`treadle fleet serve`: opens the page of the fleet, which is part of `treadle web`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import treadle
from treadle.apps.fleet.commands.selection import get_store, use_database
from treadle.apps.fleet.database import FleetDatabase


def serve_page(options: argparse.Namespace) -> int:
    use_database(options, _look)  # a fleet that is not there is said here
    program = [sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py")]
    port = ["--port", str(options.port)] if options.port else []
    sys.stdout.flush()
    os.execv(program[0], [*program, "web", "--fleet", get_store(options), *port])


async def _look(database: FleetDatabase) -> None:
    await database.totals()
