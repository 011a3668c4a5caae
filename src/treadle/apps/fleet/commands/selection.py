"""The database of a fleet command, and the runs that its arguments name."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from treadle.apps.console.console import UsageError
from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.store_address import DEFAULT_STORE, hide_password
from treadle.lib.text.text import suggest

_T = TypeVar("_T")


def get_store(options: argparse.Namespace) -> str:
    return str(options.store or DEFAULT_STORE)


def use_database(
    options: argparse.Namespace,
    work: Callable[[FleetDatabase], Awaitable[_T]],
    *,
    create: bool = False,
) -> _T:
    """Open the database, do the work, close it. Only commands that begin something create one."""

    async def main() -> _T:
        engine = getattr(options, "engine", "")
        database = await open_database(get_store(options), create=create, engine=engine)
        try:
            return await work(database)
        finally:
            await database.aclose()

    return asyncio.run(main())


def set_cluster(options: argparse.Namespace) -> None:
    """`--address`, for the engine `ray` of this process and of the workers that it starts."""
    if options.address:
        os.environ["RAY_ADDRESS"] = options.address


def parse_labels(texts: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--label {text!r} must be NAME=TEXT")
        labels[name] = value
    return labels


def name_command(database: FleetDatabase, command: str) -> str:
    """A command that the user may give next, for the same database."""
    is_default = database.url == DEFAULT_STORE
    store = "" if is_default else f" --store {shlex.quote(hide_password(database.url))}"
    return f"treadle fleet {command}{store}"


async def select_runs(database: FleetDatabase, options: argparse.Namespace) -> list[FleetRun]:
    """The runs that the arguments name; all of them without arguments."""
    found = await database.runs(
        ids=options.runs or None,
        state=options.state,
        labels=parse_labels(options.label) or None,
    )
    known = {run.id for run in found}
    missing = [
        name for name in options.runs if name not in known and await database.run(name) is None
    ]
    if missing:
        raise UsageError(await _explain_missing(database, missing))
    return found


async def find_run(database: FleetDatabase, name: str) -> FleetRun:
    run = await database.run(name)
    if run is not None:
        return run
    raise UsageError(await _explain_missing(database, [name]))


async def _explain_missing(database: FleetDatabase, names: Sequence[str]) -> str:
    near = suggest(names[0], [run.id for run in await database.runs()])
    listing = f"`{name_command(database, 'status')}` lists the runs"
    hint = f"did you mean {near}?" if near and len(names) == 1 else listing
    return f"there is no run {', '.join(repr(name) for name in names)}; {hint}"
