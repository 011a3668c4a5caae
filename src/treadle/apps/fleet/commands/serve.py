"""`treadle fleet serve`: the report as a page on this machine, with what waits for approval."""

from __future__ import annotations

import argparse
import asyncio

from treadle.apps.console.console import UsageError, print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.fleet.commands.selection import use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.reports.page_server import PageServer
from treadle.lib.http.local_hosts import LOOPBACK


def serve_page(options: argparse.Namespace) -> int:
    if not 0 <= options.port < 65_536:
        raise UsageError(f"--port cannot be {options.port}; it must be below 65536")
    return use_database(options, lambda database: _serve(database, options.port))


async def _serve(database: FleetDatabase, port: int) -> int:
    server = PageServer(database)
    try:
        await server.start(port)
    except OSError as error:
        raise UsageError(
            f"{LOOPBACK}:{port} cannot be used: {error.strerror}; use another --port"
        ) from error
    print_line(f"{server.url}  (ctrl-c ends it; the address is the key: keep it to yourself)")
    try:
        await asyncio.Event().wait()
    finally:
        await server.aclose()
    return SUCCESS
